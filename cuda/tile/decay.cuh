// decay.cuh -- decay factors from the gate: per row, per column and per chunk.
// Book: chapter T, "Chapter 04: the scan".
#pragma once

#include "state_io.cuh"

// Multiplies each column of D tiles by the column's factor. With e = 2 (lane % 4), a
// lane holds columns 8 i + e and 8 i + e + 1 of tile i.
template <int tiles>
static __device__ __forceinline__ void scale_columns(float (*y)[4], const float *factor)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const float low = factor[i * 8 + e], high = factor[i * 8 + e + 1];
        y[i][0] *= low;
        y[i][1] *= high;
        y[i][2] *= low;
        y[i][3] *= high;
    }
}

// Returns exp2(to - from) for two adjacent channels.
static __device__ __forceinline__ float2 decay_between(const float *to,
                                                       const float *from)
{
    const float2 a = *(const float2 *)to, b = *(const float2 *)from;
    return make_float2(ex2_approx(a.x - b.x), ex2_approx(a.y - b.y));
}

static __device__ __forceinline__ uint32_t scale_bf16x2(uint32_t x, float2 y)
{
    return pack_bf16x2(bf16x2_low(x) * y.x, bf16x2_high(x) * y.y);
}

// Gate values that thread i loads early: `last` = G_last of channel i, `row` = G of row
// i (GDN only). `write_gate` later converts these values to factors.
struct gate_share {
    float last, row;
};

template <class Args>
static __device__ __forceinline__ struct gate_share read_gate(const Args &a,
                                                              struct token_range z,
                                                              int n, int K)
{
    const int i = threadIdx.x, row = i < z.len ? i : z.len - 1;
    const int64_t last = z.t + z.len - 1;
    return { i < K ? gate(a, last, n, i) : 0.0f,
             a.KG == 1 && i < CHUNK ? gate(a, z.t + row, n, 0) : 0.0f };
}

// Stores decay [K] = exp2(G_last), and the factors eq of the rows of q and ek of the
// rows of k. GDN: eq = scale exp2(G), and ek = exp2(G_last - G). KDA: eq = scale, and
// ek = 1, because qg and kg already contain the powers of two.
template <class Args>
static __device__ __forceinline__ void write_gate(const Args &a, struct gate_share g,
                                                  int K, float *decay, float *eq,
                                                  float *ek)
{
    const int i = threadIdx.x, kda = a.KG > 1;
    if (i < K) decay[i] = exp2f(g.last);
    if (i >= CHUNK) return;
    eq[i] = (float)a.scale * (kda ? 1.0f : exp2f(g.row));
    ek[i] = kda ? 1.0f : exp2f(g.last - g.row);
}

// `x` is the address of a chunk's first row, and `ld` is the row stride in elements.
// KDA reads rows of qg or kg. GDN reads rows of q or k of the query/key head.
struct rows {
    const bf16 *x;
    int64_t ld;
};

template <class Args>
static __device__ __forceinline__ struct rows rows_of(const Args &a, int64_t t, int n,
                                                      const void *gated,
                                                      const void *raw)
{
    if (a.KG > 1) return { in<bf16>(gated, t, a.HV, n, a.K), (int64_t)a.HV * a.K };
    return { in<bf16>(raw, t, a.H, n / (a.HV / a.H), a.K), (int64_t)a.H * a.K };
}
