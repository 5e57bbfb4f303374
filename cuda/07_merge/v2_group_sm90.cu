// v2_group_sm90.cu -- the fold, apply and compose by warpgroups, fp32 in three pieces.
// Book: chapter 07, "Tensor cores".
// Checked by: tests/07_merge.c and every form of the exchange.
// Next: mapops.cu, which calls apply and compose.
#include "../map_walk.cuh"
#include "../stages_v3.cuh"

// v1 walks on the plain units, a thread a column, and waits for memory at every row of
// M. Here 64 columns of one head are a block, see map_walk.cuh. Bound: a link's 1.75
// us, one after another, and 64 KiB of M each, shared by V / 64 blocks through the
// cache.
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
    const struct walk_of_maps w = { h - v + a.V + step, h + step, step, j1 - j0 - 1,
                                    VK };
    walk_maps<backward>(w, X, (map_room<DIM, backward> *)shared);
    store_state<DIM>((float *)a.S + (int64_t)n * DIM * a.V + v + warp, 1, a.V, X);
}

// One link, of kcp_mapops' apply: columns v0 + 64 y of h, columns 64 y of S, and half
// of the rows, block z's. In place, a block has all rows of its columns.
struct one {
    const float *map, *S_in;
    float *S_out;
    int V, first, v0, ld_in, ld_out;
};

template <int backward>
static __global__ __launch_bounds__(128, 1) void apply(const struct one a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int v = blockIdx.y * 64, i = blockIdx.z * 64, VK = a.V + DIM;
    const int warp = threadIdx.x / 32 * 16;
    const int64_t row = (int64_t)blockIdx.x * DIM;
    const float *map = a.map + row * VK, *h = map + a.v0 + v;
    float X[16][4], Y[8][4];

    if (a.first) load_state<64>(Y, h + (int64_t)i * VK + warp, 1, VK);
    else {
        load_state<DIM>(X, a.S_in + row * a.ld_in + v + warp, 1, a.ld_in);
        one_link(map + a.V, h, VK, i, Y, X, (map_room<64, backward> *)shared);
    }
    store_state<64>(a.S_out + (row + i) * a.ld_out + v + warp, 1, a.ld_out, Y);
}

template <int backward>
static __global__ __launch_bounds__(128, 1) void apply_in_place(const struct one a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int v = blockIdx.y * 64, warp = threadIdx.x / 32 * 16, VK = a.V + DIM;
    const int64_t row = (int64_t)blockIdx.x * DIM;
    const float *map = a.map + row * VK;
    float X[16][4], *S = a.S_out + row * a.ld_out + v + warp;

    load_state<DIM>(X, S, 1, a.ld_out);
    const struct walk_of_maps w = { map + a.V, map + a.v0 + v, 0, 1, VK };
    walk_maps<backward>(w, X, (map_room<DIM, backward> *)shared);
    store_state<DIM>(S, 1, a.ld_out, X);
}

// One link under a whole map [h | M]: columns of h as in apply; those of M have no h,
// and backward, where M = M_a M_b, they are rows: M^T = M_b^T M_a^T.
template <int backward>
static __global__ __launch_bounds__(128, 1) void compose(int V, const float *b,
                                                         const float *a, float *out)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int v = blockIdx.y * 64, col = v + threadIdx.x / 32 * 16, VK = V + DIM;
    const int of_h = v < V, turned = backward && !of_h, i = blockIdx.z * 64;
    const int64_t head = (int64_t)blockIdx.x * DIM * VK, di = turned ? 1 : VK;
    const int64_t at = head + (turned ? (int64_t)(col - V) * VK + V : col);
    float X[16][4], Y[8][4];

    load_state<DIM>(X, a + at, turned ? VK : 1, di);
    one_link(b + head + V, of_h ? b + head + v : NULL, VK, i, Y, X,
             (map_room<64, backward> *)shared);
    store_state<64>(out + at + i * di, turned ? VK : 1, di, Y);
}

// May these take it? Rows of M must be aligned for 16-byte copies.
static int takes(int K, int V, int columns, const void *map)
{
    return K == DIM && V % 64 == 0 && columns % 64 == 0 && aligned_16(map)
        && on_hopper();
}

enum { ROOM = sizeof(map_room<DIM, 0>), ROOM_ONE = sizeof(map_room<64, 0>) };

template <class Kernel>
static Kernel *roomy(Kernel *k)
{
    cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM);
    return k;
}

int v2_apply(int HV, int K, int V, const void *map, int backward, int first, int v0,
             int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
             struct CUstream_st *stream)
{
    if (!takes(K, V, Vb, map)) return KCP_NA;
    const struct one a = { (const float *)map, (const float *)S_in, (float *)S_out, V,
                           first, v0, ld_in, ld_out };
    if (HV && Vb && S_in == S_out && !first)
        roomy(backward ? apply_in_place<1> : apply_in_place<0>)<<<
            dim3(HV, Vb / 64), 128, ROOM, stream>>>(a);
    else if (HV && Vb)
        roomy(backward ? apply<1> : apply<0>)<<<dim3(HV, Vb / 64, 2), 128, ROOM_ONE,
                                                stream>>>(a);
    return launched();
}

int v2_compose(int HV, int K, int V, const void *b, const void *a, int backward,
               int a_first, void *out, struct CUstream_st *stream)
{
    if (!takes(K, V, 64, b)) return KCP_NA;
    if (HV)
        roomy(backward ? compose<1> : compose<0>)<<<
            dim3(HV, (a_first ? V : V + K) / 64, 2), 128, ROOM_ONE, stream>>>(
            V, (const float *)b, (const float *)a, (float *)out);
    return launched();
}

static int run(void *args)
{
    const struct kcp_merge *a = (const struct kcp_merge *)args;
    if (!takes(a->K, a->V, 64, a->maps)) return KCP_NA;
    roomy(a->pass == KCP_BACKWARD ? merge<1> : merge<0>)<<<
        dim3(a->HV, a->V / 64), 128, ROOM, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT(merge_v2_group) = {
    "07_merge", "v2_group_sm90", "warpgroups: fp32 in three bf16 pieces, six products",
    KCP_BF16, KCP_DEVICE, "K 128, V a multiple of 64; sm_90a", run, NULL };
KCP_VARIANT(merge_v2_group_f32) = {
    "07_merge", "v2_group_sm90_f32", "warpgroups: fp32 in three bf16 pieces",
    KCP_F32, KCP_DEVICE, "K 128, V a multiple of 64; sm_90a", run, NULL };
