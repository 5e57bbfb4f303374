// tiles_back_dplr.cu -- tensor-core backward of u, w, kg, qg, Aqk (the form): DPLR.
// Book: chapter T, "Chapter 16: the family".
#include "v2_back.cuh"

int family_tiles_back_dplr(const struct family *x)
{
    return any_size<KCP_DPLR>(x);
}
