// device.cuh -- definitions shared by all kernels: tensor rows, chunks, the gate.
// Book: chapter 04, "Code: kernels".
#pragma once

#include "kcp.h"
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "jitter.cuh"

typedef __nv_bfloat16 bf16;

// The largest K or V, and the largest chunk, that the v1 kernels support.
enum { KMAX = 256, CMAX = 64 };

// Returns row (t, n) of a tensor [T,H,D] with elements of type X.
template <class X>
static __device__ __forceinline__ const X *in(const void *a, int64_t t, int H, int n,
                                              int D)
{
    return (const X *)a + (t * H + n) * D;
}

template <class X>
static __device__ __forceinline__ X *out(void *a, int64_t t, int H, int n, int D)
{
    return (X *)a + (t * H + n) * D;
}

// The first token and the number of tokens of chunk c in stretch s. A stretch is a
// local token range of one sequence.
struct token_range {
    int64_t t;
    int len;
};

template <class Args>
static __device__ __forceinline__ struct token_range chunk_tokens(const Args &a, int s,
                                                                  int c)
{
    const int *cu = (const int *)a.cu, *cn = (const int *)a.cn;
    const int64_t t = cu[s] + (int64_t)(c - cn[s]) * a.C, left = cu[s + 1] - t;
    return { t, left < a.C ? (int)left : a.C };
}

// Returns G of channel i at token t. KDA has a gate per channel, GDN a gate per head.
template <class Args>
static __device__ __forceinline__ float gate(const Args &a, int64_t t, int n, int i)
{
    return in<float>(a.G, t, a.HV, n, a.KG)[a.KG == 1 ? 0 : i];
}

// Row t of qg or kg. KDA: x is the stored row, and e = 1. GDN: x is the raw row of q or
// k, and the caller multiplies x by e, which is exp2(G) or exp2(G_last - G).
template <class X>
struct gated {
    const X *x;
    float e;
};

template <class X, class Args>
static __device__ __forceinline__ struct gated<X> gated_q(const Args &a, int64_t t,
                                                          int n)
{
    if (a.model != KCP_GDN) return { in<X>(a.qg, t, a.HV, n, a.K), 1.0f };
    return { in<X>(a.q, t, a.H, n / (a.HV / a.H), a.K), exp2f(gate(a, t, n, 0)) };
}

template <class X, class Args>
static __device__ __forceinline__ struct gated<X> gated_k(const Args &a, int64_t t,
                                                          int n, int64_t last)
{
    if (a.model != KCP_GDN) return { in<X>(a.kg, t, a.HV, n, a.K), 1.0f };
    return { in<X>(a.k, t, a.H, n / (a.HV / a.H), a.K),
             exp2f(gate(a, last, n, 0) - gate(a, t, n, 0)) };
}

// Returns 1 if the v1 kernels support the call: K and V up to 256, chunks up to 64.
static inline int v1_takes(const struct kcp_call *a)
{
    return a->K <= KMAX && a->V <= KMAX && a->C <= CMAX;
}

static inline int launched(void)
{
    return cudaGetLastError() == cudaSuccess ? KCP_OK : KCP_CUDA;
}

// Defines a variant for bf16 and one for fp32, whose name ends in _f32. In the fields
// from `run` on, which are the macro's last arguments, X is the type.
#define KCP_VARIANT_PAIR(ident, stage, name, why, shapes, ...)                        \
    namespace ident##_of_bf16 {                                                       \
    typedef bf16 X;                                                                   \
    KCP_VARIANT(ident) = { stage, name, why, KCP_BF16, KCP_DEVICE, shapes,            \
                           __VA_ARGS__ };                                             \
    }                                                                                 \
    namespace ident##_of_f32 {                                                        \
    typedef float X;                                                                  \
    KCP_VARIANT(ident) = { stage, name "_f32", why, KCP_F32, KCP_DEVICE, shapes,      \
                           __VA_ARGS__ };                                             \
    }
