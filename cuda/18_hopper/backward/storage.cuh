// storage.cuh -- backward from chunk factors: the data that its three kernels share.
// Book: chapter 18c.
#pragma once

#include "cuda/tile/launch.cuh"
#include "cuda/tile/registers.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warp.cuh"
#include "cuda/tile/wgmma.cuh"
#include "cuda/tile/warp_scan.cuh"

// Backward has three kernels. `states` scans a stretch (a local token range of one
// sequence) like forward's scan, and stores v_new and the state h before each chunk.
// `reverse` scans from the last chunk to the first and stores dv and dS, the gradient
// of the state after each chunk. `finish` processes (chunk, head) pairs in any order
// and computes all other gradients. With k~ = exp2(G) k, qg = exp2(G) q, kg =
// exp2(G_last - G) k and Lambda = exp2(G_last) (G, A, Aqk: chunk_factors.cuh),
// eq:short-adjoint of the book gives
//
//     v_new = A beta (v - k~ h)                 h  <- Lambda h + kg^T v_new
//     dv    = (A beta)^T (kg dS + Aqk^T dO)     dS <- Lambda dS + (scale qg)^T dO
//                                                     - k~^T dv
//     dbeta_i = (dv v_new^T)_ii / beta_i^2
//
// All arrays that pass data between the kernels have 64 rows per chunk. Rows past the
// end of a stretch are 0 in v_new, rstd_q, rstd_k and beta. In arrays of the caller's
// layout these rows belong to another token range. In all rows before the end |beta| is
// at least 2^-40, because `finish` divides by beta.

// h or dS of a chunk and head, bf16 in swizzle128 tiles: tile (i, j) has rows 64 i to
// 64 i + 63 of K and columns 64 j to 64 j + 63 of V.
template <int K, int V>
struct packed_state { unsigned char tile[K / 64][V / 64][TILE_BYTES]; };

// v_new of a chunk and head: tile j has 64 tokens of columns 64 j to 64 j + 63.
template <int V>
struct packed_rows { unsigned char tile[V / 64][TILE_BYTES]; };

// States of token ranges: range z loads from, or stores to, state row[z] of `x`. If
// row[z] is -1 or `x` is NULL, a loaded state is 0, and a result is not stored.
struct scan_states {
    const void *x;                       // [..,HV,K,V], or in `layout`
    const int *row;
    enum kcp_layout layout;
};

// Parameters of all three kernels. The entry of the rank's chunk c and value head n has
// index c HV + n. The entry of chunk c and query/key head m has index c H + m.
struct backward_params {
    struct kcp_backward a;               // the call; reverse writes a.dv
    // Arrays that forward saved, in format 2 or 5 of ref/core/saved.def.
    const void *factors;                 // [NC][HV] chunk_factors or gdn_head_factors
    const void *qk_rows;                 // GDN: [NC][H] gdn_qk_rows
    const float *rstd_q, *rstd_k;        // [NC][H][64]; 1 without l2norm
    const float *beta;                   // [NC][HV][64] after sigmoid and floor 2^-40
    // Arrays in the workspace that pass data between the kernels.
    void *h;                             // [NC][HV] packed_state, before each chunk
    void *dS;                            // [NC][HV] packed_state, after each chunk
    void *v_new;                         // [NC][HV] packed_rows
    // Terms of the sums dA_log and ddt_bias. `finish` computes these terms. A term is
    // the sum over a chunk's rows, for one head and channel.
    float *dA_part, *ddt_part;           // [NC][HV][KG]
    // KDA's `finish` keeps here, if HV > H, sums of dq and dk over the value heads of a
    // query/key head. Aligned to 256 bytes.
    void *scratch;
    // The jobs of a launch, those of long stretches first. A job is SCAN_JOBS times the
    // index of a stretch (a segment, or a strip: part of one), plus an enum scan_job.
    const int *jobs;
    int njobs;
    // `first`: the state before each stretch. `last`: the gradient of the state after
    // each stretch. `of_first` receives the gradient of the state before each stretch.
    // `dh_ext` receives this gradient from SCAN_DH_EXT jobs, and from SCAN_REVERSE jobs
    // without a row in `of_first`. `pitch`: elements between key rows of dh_ext.
    struct scan_states first, last, of_first;    // h, dS, dS
    float *dh_ext;                       // [stretches,HV,K,pitch]; NULL: not stored
    int pitch;
    // For each range whose `want` has KCP_WANT_M, backward_maps stores the matrix M in
    // `maps`. Forward's state after a range is M (state before the range) + h_ext.
    float *maps;                         // [stretches,HV,K,V+K]
    const int *want;
    // v7_by_head: `deep` as in forward_params. The kernels leave out heads of sequences
    // that are not deep. The scans append the other pairs of a chunk and a query/key
    // head, c H + m, to `pairs`, which begins with their number.
    const unsigned char *deep;
    int *pairs;
};

// SCAN_REVERSE stores dv and dS of every chunk. SCAN_DH_EXT runs the scan of
// SCAN_REVERSE, but stores only the gradient of the stretch's first state.
enum scan_job { SCAN_STATES, SCAN_REVERSE, SCAN_DH_EXT, SCAN_JOBS };

template <int K, int V>
static __device__ __forceinline__ struct packed_state<K, V> *packed_state_of(
    const struct backward_params &x, void *states, int c, int n)
{
    return (struct packed_state<K, V> *)states + ((int64_t)c * x.a.HV + n);
}

template <int V>
static __device__ __forceinline__ struct packed_rows<V> *v_new_of(
    const struct backward_params &x, int c, int n)
{
    return (struct packed_rows<V> *)x.v_new + ((int64_t)c * x.a.HV + n);
}

// `backward_maps`: computes M of token ranges from the saved factors, as forward does.
// Each element of `own` [NS] must be -1: the scan for h_ext (not used) starts from 0.
// `backward_scans`: runs all jobs in one grid, in blocks of 64 or 128 columns.
// `backward_finish_scratch`: returns the bytes of scratch that backward_finish needs.
// `kda_finish_by_head`: as backward_finish, for the pairs that x->pairs lists, in
// `blocks` blocks.
int backward_maps(const struct backward_params *x, const int *own);
int backward_scans(const struct backward_params *x, int columns);
int backward_finish(const struct backward_params *x, int processors);
size_t backward_finish_scratch(const struct kcp_backward *a);
int kda_finish_by_head(const struct backward_params *x, int blocks);
