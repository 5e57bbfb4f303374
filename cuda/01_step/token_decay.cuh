// token_decay.cuh -- e^g of one token, without a bias that accumulates over tokens.
// Book: chapter 01, "Code: kernels".
#pragma once

// Returns e^g. The state is multiplied by e^g once per token, so a bias accumulates
// over thousands of tokens. For results near 1, expf has a bias below one ulp, whereas
// 1 + expm1f(g) is rounded to nearest. For g < -1/2, where 1 + expm1f(g) would lose
// digits, expf is used: the state decays before a bias accumulates.
static __device__ __forceinline__ float token_decay(float g)
{
    return g > -0.5f ? 1.0f + expm1f(g) : expf(g);
}
