// v2_scan.cuh -- DPLR's scan and reverse scan: four computing and four storing warps.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_scan_step.cuh"
#include "cuda/tile/launch_shared.cuh"

// Returns the tokens of chunk i of a stretch, a token range of one sequence from token
// `first` to token `end` - 1.
static __device__ __forceinline__ struct token_range step_tokens(int64_t first,
                                                                 int64_t end, int i)
{
    const int64_t t = first + (int64_t)i * TOKENS, left = end - t;
    return { t, left < TOKENS ? (int)left : TOKENS };
}

// Processes 64 columns of a head's S (or dS) through all chunks of a token range.
// `keep` [NC,HV,K,V] receives the state before (or gradient after) each chunk.
template <int K, int reverse>
static __global__ __launch_bounds__(256, 1) void dplr_scan(const struct family x,
                                                           const float *from, float *to,
                                                           bf16 *keep)
{
    extern __shared__ __align__(128) unsigned char shared[];
    typedef struct scan_pipeline<K> R;
    R &s = *(R *)shared;
    const int z = blockIdx.x, n = blockIdx.y, v0 = blockIdx.z * 64, V = x.a.V;
    const int v = threadIdx.x / 32 % 4 * 16, carries = threadIdx.x < 128, c0 = x.cn[z];
    const int64_t first = x.cu[z] / 2, end = x.cu[z + 1] / 2;
    const int count = x.cn[z + 1] - c0;
    const int64_t state = ((int64_t)z * x.a.HV + n) * K * V + v0 + v;
    const int64_t at = n * (int64_t)V + v0 + v;
    float S[K / 8][4];

    if (carries) load_state<K>(S, from + state, 1, V);
    for (int i = -R::ahead; i <= count; i++) {
        const int next = i + R::ahead, late = i - 1;
        const int then = reverse ? count - 1 - late : late;
        if (i >= 0) {
            cp_async_wait<R::ahead - 1>();
            __syncthreads();
        }
        if (next < count)
            load_step<K, reverse>(
                x, step_tokens(first, end, reverse ? count - 1 - next : next), n, v0,
                s.stage + next % R::stages);
        cp_async_commit();
        if (carries && i >= 0 && i < count) {
            if (reverse)
                reverse_step<K>(s.stage + i % R::stages, v, x.a.scale,
                                s.fragments + i % 2, S);
            else scan_step<K>(s.stage + i % R::stages, v, s.fragments + i % 2, S);
        } else if (!carries && i > 0) {
            bf16 *kept = keep ? keep + ((int64_t)(c0 + then) * x.a.HV + n) * K * V
                                + v0 + v : NULL;
            const struct token_range was = step_tokens(first, end, then);
            const struct step_storage<K> *l = s.stage + late % R::stages;
            if (reverse)
                store_reverse_step<K>(x, was, at, l, v, s.fragments + late % 2, kept);
            else store_step<K>(x, was, at, l, v, s.fragments + late % 2, kept);
        }
    }
    if (carries) store_state<K>(to + state, 1, V, S);
}

// Computes dv_local for chapter 11: a token's two rows Aqb^T dO and Aqk^T dO.
static __global__ __launch_bounds__(128) void dplr_local(const struct family x,
                                                         void *to)
{
    __shared__ __align__(128) struct step_storage<64> s;
    const struct token_range z = tokens(x, blockIdx.x);
    const int n = blockIdx.y, v0 = blockIdx.z * 64, v = threadIdx.x / 32 * 16;
    const int64_t ld = (int64_t)x.a.HV * x.a.V;
    bf16 *row = (bf16 *)to + 2 * z.t * ld + n * (int64_t)x.a.V + v0 + v;
    uint32_t d_[TOKENS / 16][4];
    float f[4][4] = {}, w[4][4] = {};
    load_form_rows<CHUNK, TOKENS>(x, z, n, 1, s.Aqb[0], x.Aqk);
    cp_async_rows<64, TOKENS>(s.u[0], in<bf16>(x.a.do_, z.t, x.a.HV, n, x.a.V) + v0, ld,
                              z.len);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    fragments(d_, s.u[0] + v);
    by_columns<TOKENS, 1>(f, d_, s.Aqb[0], CHUNK + PAD);
    by_columns<TOKENS, 1>(w, d_, s.Aqb[0] + TOKENS, CHUNK + PAD);
    store_rows<4>(row, 2 * ld, z.len, f);
    store_rows<4>(row + ld, 2 * ld, z.len, w);
}

template <int K, int reverse>
static int launch_dplr_scan(const struct family *x, const void *from, void *to,
                            void *keep)
{
    const size_t bytes = sizeof(struct scan_pipeline<K>);
    return launch_shared(dplr_scan<K, reverse>, dim3(x->a.NS, x->a.HV, x->a.V / 64),
                         256, bytes, x->a.stream, *x, (const float *)from, (float *)to,
                         (bf16 *)keep);
}
