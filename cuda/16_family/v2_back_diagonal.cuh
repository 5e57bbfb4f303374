// v2_back_diagonal.cuh -- backward through the pairs of 16 x 16 diagonal tiles.
// Book: chapter T, "Chapter 16: the family".
#pragma once

#include "v2_back_pairs.cuh"

// Pairs within 16 rows are computed one at a time. The tensor core would process each
// diagonal tile four times, mostly masked: for blocks of 8, 4, 2 and 1 rows. A pair
// takes 15 instructions and one exponential per channel, in registers.

// Keys, gates and partial sums of gradients of 16 columns j, for one channel.
struct columns {
    float k[16], b[16], G[16], dk[16], db[16];
};

// Returns the gradients of the scores qk, qb, ab, ak as floats. GDN-2 writes only along
// k and has only two scores: qk, and ak, which is stored in field `ab`.
static __device__ __forceinline__ float4 scores_of(const struct near<2> &A)
{
    return make_float4((float)A.qk, (float)A.qb, (float)A.ab, (float)A.ak);
}

static __device__ __forceinline__ float4 scores_of(const struct near<1> &A)
{
    return make_float4((float)A.qk, 0.0f, 0.0f, (float)A.ab);
}

// Processes the pairs of row e and each column j < e. Adds the gradient of q to x, and
// the gradient of `look` to y. `look` is the vector with which a token reads the state
// decayed by G_e.
template <int model, class Near>
static __device__ __forceinline__ void row_of_pairs(const Near *near, int e, float q,
                                                    float look, struct columns &c,
                                                    float &x, float &y)
{
    enum { m = traits<model>::m, looks = traits<model>::looks };
//> kernel-near
    #pragma unroll
    for (int j = 0; j < e; j++) {
        const float4 A = scores_of(near[16 * e + j]);
        const float D = ex2_approx(c.G[e] - c.G[j]), kD = c.k[j] * D, bD = c.b[j] * D;
        x += A.x * kD;
        if (looks) y += A.w * kD;
        if (m == 2) {
            x += A.y * bD;
            y += A.z * bD;
        }
        c.dk[j] += D * (looks ? A.x * q + A.w * look : A.x * q);
        if (m == 2) c.db[j] += D * (A.y * q + A.z * look);
    }
    //< kernel-near
}

// Stores one element of dq and of dk. Of the value heads that share q and k, the last
// stores the total in dq and dk, and earlier heads store partial sums in x.z [2,T,H,K].
static __device__ __forceinline__ void store_shared(const struct family &x, int64_t t,
                                                    int n, int d, float dq, float dk)
{
    const int H = x.a.H, K = x.a.K, group = x.a.HV / H, part = n % group;
    const int64_t at = (t * H + n / group) * K + d, next = x.a.T * H * K;
    if (part) {
        dq += x.z[at];
        dk += x.z[next + at];
    }
    if (part < group - 1) {
        x.z[at] = dq;
        x.z[next + at] = dk;
    } else {
        ((bf16 *)x.a.dq)[at] = dq;
        ((bf16 *)x.a.dk)[at] = dk;
    }
}

// Processes rows i of channel d, 16 B <= i < 16 B + 16: the pairs within these rows,
// the pairs without decay, and the terms in s.far. Rows are processed from the last to
// the first, so that dk and db of a row are complete when the row is processed. If
// `early` is 1, a token reads the state before the decay, so row e + 1 reads with G_e.
template <int model, int K, int V>
static __device__ void rows_back(const struct family &x, struct token_range z, int n,
                                 struct back_storage<model, K, V> &s, int B, int d)
{
    enum { C = traits<model>::C, m = traits<model>::m, HAS_B = 3 };
    struct columns c = {};
    #pragma unroll
    for (int r = 0; r < 16; r++) {
        c.k[r] = s.k[16 * B + r][d];
        c.G[r] = s.G[16 * B + r + 1][d];
        if (m == 2) c.b[r] = s.b[16 * B + r][d];
    }
    #pragma unroll
    for (int e = 15; e >= 0; e--) {
        const int i = 16 * B + e, l = i + s.early;
        const float q = s.q[i][d], gate = s.looks && l < C ? (float)s.a[l][d] : 0.0f;
        const float look = m == 1 ? gate * c.k[e] : gate, A = s.by_k[i];
        float dq = 0.0f, y = 0.0f, dk = c.dk[e], db = c.db[e];
        row_of_pairs<model>(s.near[B][0], e, q, look, c, dq, y);
        s.dG[i][d] += q * dq + look * y - c.k[e] * dk - c.b[e] * db;
        dq += (float)s.far[0][i][d] + A * c.k[e];
        dk += (float)s.far[1][i][d] + A * q;
        if (m == 2) {
            dq += s.by_b[i] * c.b[e];
            dk += s.next_k[i + 1] * look;
            db += (float)s.far[HAS_B][i][d] + s.by_b[i] * q + s.next_b[i + 1] * look;
            if (l < C) y += s.next_b[l] * c.b[e] + s.next_k[l] * c.k[e];
        }
        if (s.looks && l < C) y += (float)s.far[2][l][d];
        if (m == 1 && s.looks) {
            dk += gate * y;
            db = c.k[e] * y;
        }
        const int64_t at = ((z.t + i) * x.a.HV + n) * K + d, after = at + x.a.HV * K;
        if (s.looks && i < z.len) ((bf16 *)x.a.db)[at] = db;
        if (m == 2 && l < z.len) ((bf16 *)x.a.da)[after] = y;
        if (m == 2 && i == 0 && z.len) ((bf16 *)x.a.da)[at] = s.far[2][0][d];
        if (i < z.len) store_shared(x, z.t + i, n, d, dq, dk);
    }
}
