// v3_group_sm90.cu -- state scan and output, with 64 columns of S per warpgroup.
// Book: chapter T, "Chapter 04: the scan".
#include "cuda/tile/warpgroup_scan.cuh"
#include "cuda/host/processors.cuh"
#include "cuda/host/stages_v3.cuh"

// In v2, each of eight warps reads all of w, qg, kg and Aqk into registers: 8 x 56 KiB
// of shared memory per chunk. Here the tensor core reads these tiles once per 64
// columns. Bound: 6 C K V + 2 C^2 V flops (7.3 MFLOP) per chunk, 1.02 us of an SM at
// its peak. A chunk moves 88 KiB of memory if h and v_new are not stored. S is rounded
// to bf16 once for both products w S and qg S. Three pipeline stages of 72 KiB are
// synchronized by the barriers `full` and `empty`, as in chapter 05's v3.
enum { W, QG, KG, U, STAGES = 3 };

template <int groups>
struct tiles {
    bf16 Aqk[STAGES][SWIZZLE128_TILE];
    struct chunk_pipeline<4, STAGES> r;
};

template <int groups>
static __device__ void load_chunk(const struct kcp_chunk &a, struct token_range z,
                                  int n, int v0, tiles<groups> *s, int at)
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV;
    const bf16 *u = in<bf16>(a.u, z.t, HV, n, DIM) + v0;
    bf16(*to)[2 * SWIZZLE128_TILE] = s->r.tile[at];
    const bf16 *w = in<bf16>(a.w, z.t, HV, n, DIM);
    cp_async_swizzled_rows<2, 128 * groups>(to[W], w, HV * DIM, z.len);
    cp_async_swizzled_rows<2, 128 * groups>(to[QG], q.x, q.ld, z.len);
    cp_async_swizzled_rows<2, 128 * groups>(to[KG], k.x, k.ld, z.len);
    cp_async_swizzled_rows<groups, 128 * groups>(to[U], u, HV * DIM, z.len);
    cp_async_swizzled_rows<1, 128 * groups>(
        s->Aqk[at], in<bf16>(a.Aqk, z.t, HV, n, CHUNK), HV * CHUNK, z.len);
}

// Issues y += a X^T, where `steps` slices of 16 columns of `a` are in registers and
// tile X is in shared memory. If `add` is 0, the product overwrites y.
template <int steps>
static __device__ __forceinline__ void multiply_tile(float (*y)[4],
                                                     const uint32_t (*a)[1][4],
                                                     const bf16 *X, int add)
{
    #pragma unroll
    for (int i = 0; i < steps; i++)
        wgmma_m64n64k16_rs<0>(y, a[i][0],
                              smem_desc_k_major(X) + i / 4 * DESC_NEXT_TILE
                                  + i % 4 * DESC_STEP_K_MAJOR,
                              add || i);
    wgmma_commit();
}

// Issues y = S^T w^T and o = S^T qg^T, both with the same rounded S, without waiting.
template <class Tile>
static __device__ __forceinline__ void begin_step(const Tile *tile, const float (*S)[4],
                                                  uint32_t (*b)[1][4], float (*y)[4],
                                                  float (*o)[4])
{
    #pragma unroll
    for (int i = 0; i < 8; i++) split_bf16<1>(b[i], S + 2 * i);
    wgmma_fence();
    multiply_tile<8>(y, b, tile[W], 0);
    multiply_tile<8>(o, b, tile[QG], 0);
}

// Completes the chunk that begin_step began. The warp processes 16 columns.
template <int groups>
static __device__ __forceinline__ void finish_step(const struct kcp_chunk &a,
                                                   struct token_range z, int n, int v,
                                                   const tiles<groups> *s, int at,
                                                   float (*S)[4], uint32_t (*b)[1][4],
                                                   float (*y)[4], float (*o)[4])
{
    const int64_t to = (z.t * a.HV + n) * DIM + v, ld = (int64_t)a.HV * DIM;
    const bf16(*tile)[2 * SWIZZLE128_TILE] = s->r.tile[at];
    float x[8][4];

    //> kernel-group
    ldmatrix_swizzled(x, tile[U] + threadIdx.x / 128 * SWIZZLE128_TILE);
    wgmma_wait<1>();
    fence_operand<8>(y);
    #pragma unroll
    for (int i = 0; i < 32; i++) x[i / 4][i % 4] -= y[i / 4][i % 4];
    if (a.v_new) store_rows<8>((bf16 *)a.v_new + to, ld, z.len, x);
    wgmma_wait<0>();
    fence_operand<8>(o);
    #pragma unroll
    for (int i = 0; i < 4; i++) split_bf16<1>(b[i], x + 2 * i);
    if (a.model == KCP_GDN) scale_columns<8>(x, s->r.ek[at]);
    #pragma unroll
    for (int i = 0; i < 4; i++) split_bf16<1>(b[4 + i], x + 2 * i);
    scale_columns<8>(o, s->r.eq[at]);
    scale_columns<16>(S, s->r.decay[at]);
    wgmma_fence();
    multiply_tile<4>(o, b, s->Aqk[at], 1);
    #pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_m64n128k16_rs<1>(S, b[4 + i][0],
                               smem_desc_mn_major(tile[KG]) + i * DESC_STEP_MN_MAJOR);
    wgmma_commit();
    wgmma_wait<1>();
    fence_operand<8>(o);
    store_rows<8>((bf16 *)a.o + to, ld, z.len, o);
    wgmma_wait<0>();
    fence_operand<16>(S);
    //< kernel-group
}

// Waits for this thread's copies of the next chunk, stores the decay factors of the
// chunk's gate `g`, and arrives at the chunk's barrier `full`.
template <int groups>
static __device__ __forceinline__ void producer_commit(const struct kcp_chunk &a,
                                                       struct gate_share g,
                                                       tiles<groups> *s, int at)
{
    cp_async_wait<STAGES - 2>();
    write_gate(a, g, DIM, s->r.decay[at], s->r.eq[at], s->r.ek[at]);
    fence_proxy_async();
    mbarrier_arrive(&s->r.full[at]);
}

// Processes all chunks of stretch z, a token range of one sequence. Issues the copies
// of chunk i+2 and completes the copies of chunk i+1 while the products of chunk i run.
template <int groups>
static __device__ __forceinline__ void scan_stretch(const struct kcp_chunk &a, int z,
                                                    int n, int v0, tiles<groups> *s,
                                                    float (*S)[4])
{
    const int *cn = (const int *)a.cn, c0 = cn[z], count = cn[z + 1] - c0;
    const int v = v0 + threadIdx.x / 32 * 16;
    struct gate_share g = {};

    for (int i = 0; i < STAGES - 1; i++) {
        if (i < count) load_chunk<groups>(a, chunk_tokens(a, z, c0 + i), n, v0, s, i);
        cp_async_commit();
    }
    if (count)
        producer_commit<groups>(a, read_gate(a, chunk_tokens(a, z, c0), n, DIM), s, 0);
    if (count > 1) g = read_gate(a, chunk_tokens(a, z, c0 + 1), n, DIM);
    for (int i = 0; i < count; i++) {
        const int at = i % STAGES, ahead = (i + 2) % STAGES;
        float y[8][4], o[8][4];
        uint32_t b[8][1][4];
        if (a.h)
            store_rows<16>((bf16 *)a.h + ((c0 + i) * (int64_t)a.HV + n) * DIM * DIM + v,
                           DIM, DIM, S);
        mbarrier_wait(&s->r.full[at], i / STAGES);
        begin_step(s->r.tile[at], S, b, y, o);
        if (i + 2 < count) {
            if (i > 0) mbarrier_wait(&s->r.empty[ahead], (i + 2) / STAGES - 1);
            load_chunk<groups>(a, chunk_tokens(a, z, c0 + i + 2), n, v0, s, ahead);
        }
        cp_async_commit();
        if (i + 1 < count) producer_commit<groups>(a, g, s, (i + 1) % STAGES);
        if (i + 2 < count) g = read_gate(a, chunk_tokens(a, z, c0 + i + 2), n, DIM);
        finish_step<groups>(a, chunk_tokens(a, z, c0 + i), n, v, s, at, S, b, y, o);
        mbarrier_arrive(&s->r.empty[at]);
    }
}

template <int groups>
static __global__ __launch_bounds__(128 * groups, 1)
void chunk(const struct kcp_chunk a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    tiles<groups> *s = (tiles<groups> *)shared;
    const int z = blockIdx.x, n = blockIdx.y, v0 = blockIdx.z * 64 * groups;
    const int64_t state = ((int64_t)z * a.HV + n) * DIM * DIM + v0
                        + threadIdx.x / 32 * 16;
    float S[16][4];

    if (threadIdx.x < STAGES) {
        mbarrier_init(&s->r.full[threadIdx.x], 128 * groups);
        mbarrier_init(&s->r.empty[threadIdx.x], 128 * groups);
    }
    __syncthreads();
    load_state<DIM>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, DIM);
    scan_stretch<groups>(a, z, n, v0, s, S);
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

template <int groups>
static int chunk_v3_group_launch(const struct kcp_chunk *a)
{
    cudaFuncSetAttribute(chunk<groups>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         sizeof(tiles<groups>));
    chunk<groups><<<dim3(a->NS, a->HV, 2 / groups), 128 * groups, sizeof(tiles<groups>),
                    a->stream>>>(*a);
    return launched();
}

// With few stretches and heads, a block has one warpgroup, so that more SMs have work.
int v3_chunk(void *args)
{
    const struct kcp_chunk *a = (const struct kcp_chunk *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->u, a->w, a->Aqk, a->o, a->v_new,
                        a->h };
    if (a->C != CHUNK || a->V != DIM || a->K != DIM || !device_is_sm90()) return KCP_NA;
    if (!a->o) return KCP_NA;
    for (const void *x : p)
        if (!is_aligned_16(x)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    const int64_t few = (int64_t)a->NS * a->HV * 2 <= processors();
    return few ? chunk_v3_group_launch<1>(a) : chunk_v3_group_launch<2>(a);
}

KCP_VARIANT(chunk_v3_group) = {
    "04_chunk", "v3_group_sm90", "warpgroups: wgmma reads tiles from shared memory",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64; sm_90a", v3_chunk, NULL };
