// v3_group_sm90.cu -- (M, h_ext) by warpgroups, where a block computes a whole map.
// Book: chapter T, "Chapter 05: the map".
#include "cuda/tile/warpgroup_scan.cuh"
#include "cuda/host/stages_v3.cuh"

// v2 reads w and kg once per 64 columns and splits M into three pieces. Here a block
// owns all 256 columns of [h_ext | M], 128 KiB of fp32 registers. Each of two
// warpgroups owns 64 columns of h_ext and 64 columns of M. M is split into two bf16
// pieces. The omitted remainder, 2^-18 of an element, is a fifth of the tolerance of
// chapter 19. Bound: 4 C K (V + 2 K) flops (12.6 MFLOP) per chunk, 1.75 us of an SM at
// its peak. The w, kg and u of a chunk (48 KiB) are read once. The warpgroups process M
// and h_ext in opposite order, so that one warpgroup splits numbers while the products
// of the other warpgroup run. Copies run three chunks ahead. Instead of a block-wide
// barrier, each pipeline stage has two mbarriers: `full` completes when the copies of
// all threads have arrived, and `empty` when all threads have read the stage.
enum { W, KG, U, STAGES = 4, THREADS = 256 };
typedef struct chunk_pipeline<3, STAGES> tiles;

static __device__ void load_chunk(const struct kcp_affine &a, struct token_range z,
                                  int n, int of_h, bf16 (*to)[2 * SWIZZLE128_TILE])
{
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV;
    cp_async_swizzled_rows(to[W], in<bf16>(a.w, z.t, HV, n, DIM), HV * DIM, z.len);
    cp_async_swizzled_rows(to[KG], k.x, k.ld, z.len);
    if (of_h)
        cp_async_swizzled_rows(to[U], in<bf16>(a.u, z.t, HV, n, DIM), HV * DIM, z.len);
}

// Computes M <- Lambda M - kg^T (w M) for the 64 columns of a warpgroup.
static __device__ __forceinline__ void advance_M(const tiles *s, int at, int gdn,
                                                 float (*M)[4])
{
    float y[8][4];
    warpgroup_times_rows<2>(y, M, s->tile[at][W]);
    if (gdn) scale_columns<8>(y, s->ek[at]);
    warpgroup_decay_minus(M, y, s->tile[at][KG], s->decay[at]);
}

// Computes h <- Lambda h + kg^T (u - w h) for the 64 columns of a warpgroup.
static __device__ __forceinline__ void advance_h(const tiles *s, int at, int gdn,
                                                 float (*h)[4])
{
    float x[8][4], y[8][4];
    warpgroup_times_rows<1>(y, h, s->tile[at][W]);
    ldmatrix_swizzled(x, s->tile[at][U] + threadIdx.x / 128 * SWIZZLE128_TILE);
    #pragma unroll
    for (int i = 0; i < 32; i++) x[i / 4][i % 4] -= y[i / 4][i % 4];
    if (gdn) scale_columns<8>(x, s->ek[at]);
    scale_columns<16>(h, s->decay[at]);
    warpgroup_add_rows(h, x, s->tile[at][KG]);
}

// Processes all chunks of stretch z, a token range of one sequence.
static __device__ __forceinline__ void affine_stretch(const struct kcp_affine &a, int z,
                                                      int n, int want, tiles *s,
                                                      float (*M)[4], float (*h)[4])
{
    const int *cn = (const int *)a.cn, c0 = cn[z], count = cn[z + 1] - c0;
    const int of_h = want & KCP_WANT_H, of_M = want & KCP_WANT_M, gdn = a.KG == 1;
    const int group = threadIdx.x / 128;
    struct gate_share g = {};

    for (int i = 0; i < STAGES - 1; i++) {
        if (i < count) load_chunk(a, chunk_tokens(a, z, c0 + i), n, of_h, s->tile[i]);
        cp_async_commit();
    }
    if (count) g = read_gate(a, chunk_tokens(a, z, c0), n, DIM);
    for (int i = -1; i < count; i++) {
        const int at = i & STAGES - 1, next = i + 1 & STAGES - 1;
        const int ahead = i + STAGES - 1;
        if (i >= 0) {
            mbarrier_wait(&s->full[at], i / STAGES);
            if (of_M && group == 0) advance_M(s, at, gdn, M);
            if (of_h && group == 1) advance_h(s, at, gdn, h);
            if (ahead < count) {
                if (i > 0)
                    mbarrier_wait(&s->empty[ahead & STAGES - 1], ahead / STAGES - 1);
                load_chunk(a, chunk_tokens(a, z, c0 + ahead), n, of_h,
                           s->tile[ahead & STAGES - 1]);
            }
            cp_async_commit();
        }
        if (i + 1 < count) {
            cp_async_wait<STAGES - 2>();
            write_gate(a, g, DIM, s->decay[next], s->eq[next], s->ek[next]);
            fence_proxy_async();
            mbarrier_arrive(&s->full[next]);
        }
        if (i + 2 < count) g = read_gate(a, chunk_tokens(a, z, c0 + i + 2), n, DIM);
        if (i >= 0) {
            if (of_M && group == 1) advance_M(s, at, gdn, M);
            if (of_h && group == 0) advance_h(s, at, gdn, h);
            mbarrier_arrive(&s->empty[at]);
        }
    }
}

static __global__ __launch_bounds__(THREADS, 1) void affine(const struct kcp_affine a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    tiles *s = (tiles *)shared;
    const int z = blockIdx.x, n = blockIdx.y, want = ((const int *)a.want)[z];
    const int col = threadIdx.x / 32 * 16;
    const int64_t state = ((int64_t)z * a.HV + n) * DIM;
    const float *h0 = (const float *)a.h_start;
    float *map = (float *)a.map + state * 2 * DIM + col, M[16][4], h[16][4];

    if (!want) return;
    if (threadIdx.x < STAGES) {
        mbarrier_init(&s->full[threadIdx.x], THREADS);
        mbarrier_init(&s->empty[threadIdx.x], THREADS);
    }
    __syncthreads();
    set_identity<DIM>(M, col);
    load_state<DIM>(h, h0 ? h0 + state * DIM + col : NULL, 1, DIM);
    affine_stretch(a, z, n, want, s, M, h);
    if (want & KCP_WANT_H) store_state<DIM>(map, 1, 2 * DIM, h);
    if (want & KCP_WANT_M) store_state<DIM>(map + DIM, 1, 2 * DIM, M);
}

int v3_affine(void *args)
{
    const struct kcp_affine *a = (const struct kcp_affine *)args;
    const void *p[] = { a->k, a->kg, a->u, a->w };
    if (a->C != CHUNK || a->V != DIM || a->K != DIM || !device_is_sm90()) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return launch_shared(affine, dim3(a->NS, a->HV), THREADS, sizeof(tiles), a->stream,
                         *a);
}

KCP_VARIANT(affine_v3_group) = {
    "05_affine", "v3_group_sm90",
    "warpgroups: one block computes all columns of a head",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64; sm_90a", v3_affine, NULL };
