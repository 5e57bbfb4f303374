// token_decay.cuh -- e^g of one token, for the recurrence that multiplies a thousand.
// Book: chapter 01, "Code: kernels".
// Checked by: tests/01_step/checks.c.
// Next: v1_column.cu.
#ifndef KCP_01_TOKEN_DECAY_CUH
#define KCP_01_TOKEN_DECAY_CUH

// The state is multiplied by it once a token. Near 1 expf leans to one side, by less
// than a last place; over a thousand tokens that adds up. 1 + expm1f(g) is rounded to
// the nearest there. Below -1/2 the state has gone before errors can gather, and 1 + a
// number near -1 would lose the places of a small e^g.
static __device__ __forceinline__ float token_decay(float g)
{
    return g > -0.5f ? 1.0f + expm1f(g) : expf(g);
}

#endif
