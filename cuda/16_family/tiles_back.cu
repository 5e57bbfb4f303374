// tiles_back.cu -- tensor-core backward of u, w, kg, qg, Aqk (the form): GDN-2 and GLA.
// Book: chapter T, "Chapter 16: the family".
#include "v2_back.cuh"

int family_tiles_back(const struct family *x)
{
    if (x->a.model == KCP_DPLR) return family_tiles_back_dplr(x);
    return x->a.model == KCP_GDN2 ? any_size<KCP_GDN2>(x) : any_size<KCP_GLA>(x);
}
