// v3_records_prepare.cuh -- the kernel that makes records: a chunk and head a block.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_PREPARE_CUH
#define KCP_V3_RECORDS_PREPARE_CUH

#include "v3_records_pairs.cuh"

// Half a square (I, J) of both matrices: Aqk to the record, L where the inverse wants
// it.
template <int K, int on>
static __device__ __forceinline__ void scores_out(const struct records &x,
                                                  struct span z, int n, struct role w,
                                                  int J, struct share &y,
                                                  struct prepare<K> &s,
                                                  unsigned char *Aqk)
{
    const int lane = threadIdx.x % 32, e = lane % 4 * 2, in_span = w.h * 8 + lane / 4;
    const int i = w.I * SPAN + in_span;
    const float own = s.own[i], b = s.beta[i];
    uint32_t top[2], rest[2], pair[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int j = h * 8 + e;
        float *a = y.d[h];
        if (on) {
            a[0] = j > in_span ? 0.0f : j == in_span ? own : a[0];
            a[1] = j + 1 > in_span ? 0.0f : j + 1 == in_span ? own : a[1];
        }
        pair[h] = pack(a[0], a[1]);
        if (on) *(float2 *)&s.square[w.I][in_span][j] = make_float2(a[2] * b, a[3] * b);
        else split(a[2] * b, a[3] * b, top[h], rest[h]);
    }
    const uint2 four = four_of(pair[0], pair[1]);
    put_four(Aqk, i, J, four);
    if (x.to13.Aqk) put_row(x, x.to13.Aqk, z, n, i, J, four);
    if (on) return;
    uint4 (*L)[32] = s.L[square_of(w.I, J)];
    ((uint2 *)&L[0][lane])[w.h] = make_uint2(top[0], top[1]);
    ((uint2 *)&L[1][lane])[w.h] = make_uint2(rest[0], rest[1]);
}

// Above the diagonal the block's Aqk and A are zero: a warp has its span's rows of one
// of them.
static __device__ __forceinline__ void zeros_out(const struct records &x, struct span z,
                                                 int n, struct role w)
{
    const int i = w.I * SPAN + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
    void *to = w.h ? x.to13.A : x.to13.Aqk;
    if (!to || i >= z.len) return;
    for (int p = 2 * w.I + 2 + half; p < CHUNK / 8; p += 2)
        *(uint4 *)(out<bf16>(to, z.t + i, x.a.HV, n, CHUNK) + p * 8) =
            make_uint4(0, 0, 0, 0);
}

// beta of a chunk's row, 0 past its end, and what the block keeps of it.
static __device__ __forceinline__ float beta_of(const struct records &x, struct span z,
                                                int n, int i)
{
    if (i >= z.len) return 0.0f;
    const int64_t at = (z.t + i) * x.a.HV + n;
    float b = (float)((const bf16 *)x.a.beta_raw)[at];
    const float top = x.a.beta_form == KCP_BETA_SIGMOID2 ? 2.0f : 1.0f;
    if (x.a.beta_form != KCP_BETA_RAW) b = top / (1.0f + __expf(-b));
    if (x.to13.beta) ((float *)x.to13.beta)[at] = b;
    return b;
}

// What the block keeps of q and k, once for the heads that share them.
template <int K>
static __device__ __forceinline__ void rows_kept(const struct records &x, struct span z,
                                                 int m, const struct lane_row &l,
                                                 const struct prepare<K> &s)
{
    const float nq = s.norm[l.i].x / (float)x.a.scale, nk = s.norm[l.i].y;
    const int64_t at = s.base + l.at;
    if (l.i >= z.len) return;
    #pragma unroll 1
    for (int i = 0; i < K; i += 32) {
        float y[8];
        unpack_row(y, eight((const bf16 *)x.a.q_raw + at + i), nq);
        *(uint4 *)((bf16 *)x.to13.q + at + i) = pack_row(y);
        unpack_row(y, eight((const bf16 *)x.a.k_raw + at + i), nk);
        *(uint4 *)((bf16 *)x.to13.k + at + i) = pack_row(y);
    }
    const int64_t row = (z.t + l.i) * x.a.H + m;
    if (threadIdx.x % 4 == 0)
        ((float *)x.to13.rstd_q)[row] = nq, ((float *)x.to13.rstd_k)[row] = nk;
}

#endif
