// v3_group_sm90.cu -- the map for gradients by warpgroups, one block per head.
// Book: chapter T, "Chapter 11: the map in reverse".
#include "cuda/tile/warpgroup_scan.cuh"
#include "cuda/host/stages_v3.cuh"

// Runs chapter 05's v3 from the last chunk to the first, on [dh_ext | N], N = M^T. Each
// of two warpgroups owns 64 columns of dh_ext and of N. N is split into two bf16
// pieces. Bound: C K (6 V + 8 K) flops (14.7 MFLOP) per chunk, 2 us of an SM at its
// peak. A chunk's 80 KiB are read once. Only two pipeline stages fit in shared memory,
// so a chunk is copied during the second half of the previous step. If reuse_M is set
// (M was saved), N is omitted. Barriers and warpgroups work as in chapter 05.
enum { W, KG, QG, DO, DV, STAGES = 2, THREADS = 256 };
typedef struct chunk_pipeline<5, STAGES> tiles;

static __device__ void load_chunk(const struct kcp_merge_backward &a,
                                  struct token_range z, int n, int of_h,
                                  bf16 (*to)[2 * SWIZZLE128_TILE])
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV, ld = HV * DIM;
    cp_async_swizzled_rows(to[W], in<bf16>(a.w, z.t, HV, n, DIM), ld, z.len);
    cp_async_swizzled_rows(to[KG], k.x, k.ld, z.len);
    if (!of_h) return;
    cp_async_swizzled_rows(to[QG], q.x, q.ld, z.len);
    cp_async_swizzled_rows(to[DO], in<bf16>(a.do_, z.t, HV, n, DIM), ld, z.len);
    cp_async_swizzled_rows(to[DV], in<bf16>(a.dv_local, z.t, HV, n, DIM), ld, z.len);
}

// Computes N <- Lambda N - w^T (kg N) for the 64 columns of a warpgroup.
static __device__ __forceinline__ void retreat_N(const tiles *s, int at, int gdn,
                                                 float (*N)[4])
{
    float x[8][4];
    warpgroup_times_rows<2>(x, N, s->tile[at][KG]);
    if (gdn) scale_columns<8>(x, s->ek[at]);
    warpgroup_decay_minus(N, x, s->tile[at][W], s->decay[at]);
}

// Computes x = kg y + dv_local, then y <- Lambda y + scale qg^T dO - w^T x.
static __device__ __forceinline__ void retreat_h(const tiles *s, int at, int gdn,
                                                 float (*y)[4])
{
    const int half = threadIdx.x / 128 * SWIZZLE128_TILE;
    float x[8][4], d[8][4];
    warpgroup_times_rows<1>(x, y, s->tile[at][KG]);
    if (gdn) scale_columns<8>(x, s->ek[at]);
    ldmatrix_swizzled(d, s->tile[at][DV] + half);
    #pragma unroll
    for (int i = 0; i < 32; i++) x[i / 4][i % 4] = -x[i / 4][i % 4] - d[i / 4][i % 4];
    scale_columns<16>(y, s->decay[at]);
    warpgroup_add_rows(y, x, s->tile[at][W]);
    ldmatrix_swizzled(d, s->tile[at][DO] + half);
    scale_columns<8>(d, s->eq[at]);
    warpgroup_add_rows(y, d, s->tile[at][QG]);
}

// Processes all chunks of stretch z (a token range of one sequence), last chunk first.
static __device__ __forceinline__ void reverse_stretch(
    const struct kcp_merge_backward &a, int z, int n, int want, tiles *s, float (*N)[4],
    float (*y)[4])
{
    const int *cn = (const int *)a.cn, last = cn[z + 1] - 1, count = last + 1 - cn[z];
    const int of_h = want & KCP_WANT_H, of_N = want & KCP_WANT_M, gdn = a.KG == 1;
    const int group = threadIdx.x / 128;
    struct gate_share g = {};

    if (count) {
        load_chunk(a, chunk_tokens(a, z, last), n, of_h, s->tile[0]);
        cp_async_commit();
        g = read_gate(a, chunk_tokens(a, z, last), n, DIM);
    }
    for (int i = -1; i < count; i++) {
        const int at = i & 1, next = at ^ 1;
        if (i >= 0) {
            mbarrier_wait(&s->full[at], i / STAGES);
            if (of_N && group == 0) retreat_N(s, at, gdn, N);
            if (of_h && group == 1) retreat_h(s, at, gdn, y);
            if (i + 1 < count) {
                if (i > 0) mbarrier_wait(&s->empty[next], (i + 1) / STAGES - 1);
                load_chunk(a, chunk_tokens(a, z, last - i - 1), n, of_h, s->tile[next]);
                cp_async_commit();
            }
            if (of_N && group == 1) retreat_N(s, at, gdn, N);
            if (of_h && group == 0) retreat_h(s, at, gdn, y);
            mbarrier_arrive(&s->empty[at]);
        }
        if (i + 1 < count) {
            cp_async_wait<0>();
            write_gate(a, g, DIM, s->decay[next], s->eq[next], s->ek[next]);
            fence_proxy_async();
            mbarrier_arrive(&s->full[next]);
        }
        if (i + 2 < count) g = read_gate(a, chunk_tokens(a, z, last - i - 2), n, DIM);
    }
}

static __global__ __launch_bounds__(THREADS, 1)
void merge_backward(const struct kcp_merge_backward a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    tiles *s = (tiles *)shared;
    const int z = blockIdx.x, n = blockIdx.y, col = threadIdx.x / 32 * 16;
    const int want = ((const int *)a.want)[z] & (a.reuse_M ? KCP_WANT_H : ~0);
    const int64_t state = ((int64_t)z * a.HV + n) * DIM;
    const float *dh_end = (const float *)a.dh_end;
    float *dmap = (float *)a.dmap + state * 2 * DIM, N[16][4], y[16][4];

    if (!want) return;
    if (threadIdx.x < STAGES) {
        mbarrier_init(&s->full[threadIdx.x], THREADS);
        mbarrier_init(&s->empty[threadIdx.x], THREADS);
    }
    __syncthreads();
    set_identity<DIM>(N, col);
    load_state<DIM>(y, dh_end ? dh_end + state * DIM + col : NULL, 1, DIM);
    reverse_stretch(a, z, n, want, s, N, y);
    if (want & KCP_WANT_H) store_state<DIM>(dmap + col, 1, 2 * DIM, y);
    if (want & KCP_WANT_M) store_state<DIM>(dmap + col * 2 * DIM + DIM, 2 * DIM, 1, N);
}

int v3_merge_backward(void *args)
{
    const struct kcp_merge_backward *a = (const struct kcp_merge_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->do_, a->dv_local };
    if (a->C != CHUNK || a->V != DIM || a->K != DIM || !device_is_sm90()) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return launch_shared(merge_backward, dim3(a->NS, a->HV), THREADS, sizeof(tiles),
                         a->stream, *a);
}

KCP_VARIANT(merge_backward_v3_group) = {
    "11_merge_backward", "v3_group_sm90",
    "warpgroups: one block computes all columns of a head",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64; sm_90a", v3_merge_backward, NULL };
