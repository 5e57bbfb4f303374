// storage.cuh -- backward from chunk factors: what travels between its three kernels.
// Book: chapter 18, "Backward".
// Checked by: tests/13_backward/checks.c.
// Next: states.cuh.
#ifndef KCP_BACKWARD_STORAGE_CUH
#define KCP_BACKWARD_STORAGE_CUH

#include "cuda/tile/launch.cuh"
#include "cuda/tile/registers.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warp.cuh"
#include "cuda/tile/wgmma.cuh"
#include "cuda/tile/warp_scan.cuh"

// Three kernels make a backward. `states` walks forward over a stretch as the scan did
// and leaves the state h with which each chunk begins, and v_new. `reverse` walks
// backward and leaves dS, the gradient of the state with which each chunk ends, and dv.
// `finish` has a chunk and head at a time, in any order, and makes all other gradients.
// With x = A^T dU (eq:short-adjoint):
//
//     v_new = A beta (v - k~ h)                 h  <- Lambda h + kg^T v_new
//     dv    = (A beta)^T (kg dS + Aqk^T dO)     dS <- Lambda dS + (scale qg)^T dO
//                                                     - k~^T dv
//     dA = scale tril(dO v_new^T, -1)   beta dL = -tril(dv v_new^T, -1)
//     P = scale dO h^T    Q = -dv h^T    W = v_new dS^T
//     dbeta_i = (dv v_new^T)_ii / beta_i^2
//
// Everything here is by chunks of 64 rows: rows past the end of a stretch's last chunk
// are 0 in v_new, in the norms and in beta, and absent (another stretch's) in whatever
// has the caller's layout. |beta| is at least 2^-40 for a token's row, so that it may
// divide.

// h and dS of a chunk and head: bf16 in swizzle128 tiles, 64 key rows of 64 value
// columns each. Tile (i, j) has rows 64 i .. and columns 64 j ..
template <int K, int V>
struct packed_state { unsigned char tile[K / 64][V / 64][TILE_BYTES]; };

// v_new of a chunk and head: tile j has 64 tokens of columns 64 j ..
template <int V>
struct packed_rows { unsigned char tile[V / 64][TILE_BYTES]; };

// States of stretches: stretch z has row[z] of x. -1: none; it begins with 0, or what
// comes out goes nowhere. x NULL: no stretch has one.
struct scan_states {
    const void *x;                       // [..,HV,K,V], or as layout says
    const int *row;
    enum kcp_layout layout;
};

// The parameters of all three. Chunk c of the rank and value head n: number c HV + n;
// of a query/key head m: c H + m.
struct backward_params {
    struct kcp_backward a;               // the call; reverse writes a.dv
    // Of the block, format 2 (ref/core/saved.def).
    const void *factors;                 // [NC][HV] chunk_factors or gdn_head_factors
    const void *qk_rows;                 // GDN: [NC][H] gdn_qk_rows
    const float *rstd_q, *rstd_k;        // [NC][H][64]; 1 where there is no norm
    const float *beta;                   // [NC][HV][64], sigmoid applied, floor too
    // Between the kernels, in the workspace.
    void *h;                             // [NC][HV] packed_state, of a chunk's start
    void *dS;                            // [NC][HV] packed_state, of a chunk's end
    void *v_new;                         // [NC][HV] packed_rows
    // What finish leaves of the parameters' gradients, a chunk and head each: the terms
    // of dA_log and ddt_bias summed over the chunk's rows, a channel each.
    float *dA_part, *ddt_part;           // [NC][HV][KG]
    // Where HV > H: place for sums of dq and dk over the value heads of a query/key
    // head; backward_finish_scratch() bytes, 256-byte aligned.
    void *scratch;
    // The stretches that the scans walk over: a's, or strips of them. A launch has
    // jobs, a stretch times SCAN_JOBS and which scan each, long ones first.
    const int *jobs;
    int njobs;
    // A stretch begins with a state, ends with a gradient, and leaves that of its first
    // state. dh_ext is left by jobs of that name, pitch numbers from key row to key
    // row, and by reverse where of_first has no row.
    struct scan_states first, last, of_first;    // h, dS, dS
    float *dh_ext;                       // [stretches,HV,K,pitch]; NULL: nowhere
    int pitch;
    // backward_maps: M of the stretches that want asks for.
    float *maps;                         // [stretches,HV,K,V+K]
    const int *want;
};

// SCAN_REVERSE leaves dS of every chunk and dv; SCAN_DH_EXT, the same scan, only the
// gradient with which it comes out at the first chunk.
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

// The launchers. backward_maps: M of the stretches, of the block's factors, as forward
// makes it; own [NS]: -1. backward_scans: the jobs, in one grid; strips: the stretches
// are.
// finish_scratch: bytes of x->scratch for this call (0: none).
// backward_factors: a block without factors; forward's kernel makes them again where x
// says, of size bytes a chunk and value head, with rstd and beta.
int backward_maps(const struct backward_params *x, const int *own);
int backward_factors(const struct backward_params *x, int processors);
size_t backward_factors_size(const struct kcp_backward *a);
int backward_scans(const struct backward_params *x, int processors, int strips);
int backward_finish(const struct backward_params *x, int processors);
size_t backward_finish_scratch(const struct kcp_backward *a);

#endif
