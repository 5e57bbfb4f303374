// tiles_back_dplr.cu -- tensor-core backward of u, w, kg, qg, Aqk (the form): DPLR.
// Book: chapter T, "Chapter 16: the family".
#include "v2_back.cuh"
#include "v2_sizes.cuh"

template <int model, int K, int V>
static int one_size(const struct family *x)
{
    return back_of<model, K, V>(x);
}

int family_tiles_back_dplr(const struct family *x)
{
    return any_size<KCP_DPLR>(x);
}
