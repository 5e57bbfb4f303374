// v2_sizes.cuh -- dispatch from a call's model, K and V to template arguments.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "workspace.cuh"

// family_tiles_form computes the form (u, w, kg, qg, Aqk) of a call. The other
// functions compute the backward of the form. All return KCP_OK or KCP_CUDA.
int family_tiles_form(const struct family *x);
int family_tiles_back(const struct family *x);
int family_tiles_back_dplr(const struct family *x);    // DPLR

// Runs one model at one size. Defined for each .cu file that includes this header.
template <int model, int K, int V>
static int one_size(const struct family *x);

template <int model>
static int any_size(const struct family *x)
{
    const int K = x->a.K, V = x->a.V;
    if (K == 64)
        return V == 64 ? one_size<model, 64, 64>(x) : one_size<model, 64, 128>(x);
    return V == 64 ? one_size<model, 128, 64>(x) : one_size<model, 128, 128>(x);
}
