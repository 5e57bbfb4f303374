// v2_group_sm90.cu -- folds and composes maps by warpgroups, fp32 as three bf16 pieces.
// Book: chapter T, "Chapter 07: the fold".
#include "v2_group_maps.cuh"
#include "cuda/host/stages_v3.cuh"

// v1 uses the FP32 units with one thread per column, and waits for memory at every row
// of M. Here a block processes 64 columns of one head (v2_group_maps.cuh). Bound:
// latency of sequential maps, 1.75 us per map. V / 64 blocks share a map's 64 KiB of M
// through the cache.
template <int backward>
static __global__ __launch_bounds__(128, 1) void merge(const struct kcp_merge a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int *range = (const int *)a.range, j0 = range[0], j1 = range[1];
    const int VK = a.V + DIM;
    const int n = blockIdx.x, v = blockIdx.y * 64, warp = threadIdx.x / 32 * 16;
    const int64_t head = (int64_t)DIM * VK, step = (backward ? -a.HV : a.HV) * head;
    const float *h = (const float *)a.maps + n * head + v
                   + (backward ? j1 - 1 : j0) * a.HV * head;
    float X[16][4];

    load_state<DIM>(X, j0 < j1 ? h + warp : NULL, 1, VK);
    const struct map_sequence w = { h - v + a.V + step, h + step, step, j1 - j0 - 1,
                                    VK };
    apply_maps<backward>(w, X, (struct map_storage *)shared);
    store_state<DIM>((float *)a.S + (int64_t)n * DIM * a.V + v + warp, 1, a.V, X);
}

// Composes two maps by applying map b to all columns [h | M] of map a. Map b's h is
// added only to the columns of map a's h. In backward, M = M_a M_b, so a block computes
// columns of M^T = M_b^T M_a^T instead.
template <int backward>
static __global__ __launch_bounds__(128, 1) void compose(int V, const float *b,
                                                         const float *a, float *out)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int v = blockIdx.y * 64, col = v + threadIdx.x / 32 * 16, VK = V + DIM;
    const int of_h = v < V, transposed = backward && !of_h;
    const int64_t head = (int64_t)blockIdx.x * DIM * VK;
    const int64_t at = head + (transposed ? (int64_t)(col - V) * VK + V : col);
    float X[16][4];

    load_state<DIM>(X, a + at, transposed ? VK : 1, transposed ? 1 : VK);
    const struct map_sequence w = { b + head + V, of_h ? b + head + v : NULL, 0, 1,
                                    VK };
    apply_maps<backward>(w, X, (struct map_storage *)shared);
    store_state<DIM>(out + at, transposed ? VK : 1, transposed ? 1 : VK, X);
}

// Returns whether the GPU, the shape and the alignment (16-byte copies) are supported.
static int takes(int K, int V, const void *map)
{
    return K == DIM && V % 64 == 0 && is_aligned_16(map) && device_is_sm90();
}

int v2_compose(int HV, int K, int V, const void *b, const void *a, int backward,
               int a_first, void *out, struct CUstream_st *stream)
{
    if (!takes(K, V, b)) return KCP_NA;
    if (!HV) return KCP_OK;
    return launch_shared(backward ? compose<1> : compose<0>,
                         dim3(HV, (a_first ? V : V + K) / 64), 128,
                         sizeof(struct map_storage), stream, V, (const float *)b,
                         (const float *)a, (float *)out);
}

static int merge_v2_group_run(void *args)
{
    const struct kcp_merge *a = (const struct kcp_merge *)args;
    if (!takes(a->K, a->V, a->maps)) return KCP_NA;
    return launch_shared(a->pass == KCP_BACKWARD ? merge<1> : merge<0>,
                         dim3(a->HV, a->V / 64), 128, sizeof(struct map_storage),
                         a->stream, *a);
}

KCP_VARIANT_PAIR(merge_v2_group, "07_merge", "v2_group_sm90",
    "warpgroups: fp32 in three bf16 pieces, six products",
    "K 128, V a multiple of 64; sm_90a", merge_v2_group_run);
