// token_decay.cuh -- e^g of one token, accurate over thousands of tokens.
// Book: chapter 01, "Code: kernels".  Checked by: tests/01_step/checks.c.
// Next: v1_column.cu.
#ifndef KCP_01_TOKEN_DECAY_CUH
#define KCP_01_TOKEN_DECAY_CUH

// Computes e^g. The state is multiplied by e^g once per token, so a bias accumulates
// over thousands of tokens. Near 1, expf is biased by less than an ulp, whereas 1 +
// expm1f(g) is rounded to nearest. For g below -1/2 the state decays before errors
// accumulate, and 1 + expm1f(g) would lose digits of a small e^g, so expf is used.
static __device__ __forceinline__ float token_decay(float g)
{
    return g > -0.5f ? 1.0f + expm1f(g) : expf(g);
}

#endif
