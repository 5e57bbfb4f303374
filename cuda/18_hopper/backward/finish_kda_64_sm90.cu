// finish_kda_64_sm90.cu -- KDA's finishing kernels for K = V = 64.
// Book: chapter 18, "Code: kernels".
// Checked by: bench/finish.cu, tests/13_backward/checks.c.
// Next: finish_gdn_sm90.cu.
#include "finish_kda.cuh"

int kda_finish_64(const struct backward_params *x, unsigned char *marks, int blocks)
{
    return finish_of_K<64>(x, marks, blocks);
}
