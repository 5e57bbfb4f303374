// v5_wide_sm90.cu -- K = 256: a scan that stores the states, then the outputs.
// Book: chapter 18, "Keys of 256 channels".
#include "cuda/tile/wide_scan.cuh"
#include "cuda/host/stages_v2.cuh"

// A state of 256 rows leaves no registers and no shared memory for q and Aqk. Therefore
// the scan computes only v_new and S, one block per 64 columns of V, and a parallel
// kernel computes o from the stored states. V is any number of blocks. Bound of the
// scan: 4 C K 64 sequential flops per chunk, 1024 cycles of the tensor core. Bound of
// the outputs: memory, 2 K V bytes of h per chunk and head, written and read.
//
// Threads 0 to 127 copy w and kg of later chunks while threads 128 to 255 compute.
// Tile 2 i of the ring is w of chunk i, and tile 2 i + 1 is kg. u and the factors of
// chunk i arrive with w. They have three stages, because slot 2 i % SLOTS is empty when
// chunk i - 3 has been computed.
enum { STAGES = 3 };

struct scan_storage {
    wide_tile tile[SLOTS], old;
    bf16 u[STAGES][SWIZZLE128_TILE];
    struct wide_gate g[STAGES];
    struct wide_ring ring;
};

static __device__ __forceinline__ void load_chunks(const struct kcp_chunk &a, int s,
                                                   int n, int v, int c0, int count,
                                                   struct scan_storage *m)
{
    const int64_t HV = a.HV;
    const int id = threadIdx.x;
    float2 g = {};
    if (count) g = wide_gate_read(a, chunk_tokens(a, s, c0), n, id);
    for (int i = 0; i < count; i++) {
        const struct token_range z = chunk_tokens(a, s, c0 + i);
        const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
        ring_wait_empty(&m->ring, 2 * i);
        wide_gate_write(&m->g[i % STAGES], g, a.KG == 1, a.scale, id);
        cp_async_tiles<1>(m->u[i % STAGES], in<bf16>(a.u, z.t, HV, n, a.V) + v,
                          HV * a.V, z.len, id);
        cp_async_tiles<K_TILES>(m->tile[2 * i % SLOTS],
                                in<bf16>(a.w, z.t, HV, n, ROWS_K), HV * ROWS_K, z.len,
                                id);
        ring_issued(&m->ring, 2 * i);
        if (i + 1 < count) g = wide_gate_read(a, chunk_tokens(a, s, c0 + i + 1), n, id);
        ring_wait_empty(&m->ring, 2 * i + 1);
        cp_async_tiles<K_TILES>(m->tile[(2 * i + 1) % SLOTS], k.x, k.ld, z.len, id);
        ring_issued(&m->ring, 2 * i + 1);
    }
    ring_finish(&m->ring, 2 * count - 1);
}

// Computes v_new = u - w S in place of u, then S <- Lambda S + kg^T v_new. While the
// tensor core computes S, stores the old S and v_new. The first barrier separates the
// copies of the previous chunk from writes to the same memory. The second barrier
// separates these writes from the copies.
static __device__ __forceinline__ void scan_step(const struct kcp_chunk &a,
                                                 struct token_range z, int n, int v,
                                                 int c, int i, struct scan_storage *m,
                                                 float (*S)[4])
{
    const int gdn = a.KG == 1, w = 2 * i, k = 2 * i + 1;
    const struct wide_gate &g = m->g[i % STAGES];
    bf16 *u = m->u[i % STAGES];
    uint32_t x_[4][1][4];
    float x[8][4], y[8][4];

    //> kernel-wide
    warpgroup_sync();
    ring_wait_full(&m->ring, w);
    wide_times_rows(y, S, m->tile[w % SLOTS], m->old);
    wide_decay(S, g, gdn);
    ldmatrix_swizzled(x, u);
    wgmma_wait<0>();
    fence_operand<8>(y);
    ring_release(&m->ring, w);
    #pragma unroll
    for (int j = 0; j < 32; j++) x[j / 4][j % 4] -= y[j / 4][j % 4];
    stmatrix_swizzled<8>(u, x);
    if (gdn) scale_columns<8>(x, g.ek);
    pack_accumulator<8>((uint32_t(*)[4])x_, x);
    ring_wait_full(&m->ring, k);
    wgmma_fence();
    wide_add_rows(S, x_, m->tile[k % SLOTS]);
    wgmma_commit();
    warpgroup_sync();
    copy_swizzled_rows<ROWS_K>(
        (bf16 *)a.h + ((int64_t)c * a.HV + n) * ROWS_K * a.V + v, a.V, ROWS_K, m->old);
    copy_swizzled_rows<CHUNK>(out<bf16>(a.v_new, z.t, a.HV, n, a.V) + v,
                              (int64_t)a.HV * a.V, z.len, u);
    wgmma_wait<0>();
    keep_operand(x_);
    fence_operand<32>(S);
    ring_release(&m->ring, k);
    //< kernel-wide
}

static __global__ __launch_bounds__(WIDE_THREADS, 1)
void scan_wide(const struct kcp_chunk a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct scan_storage *m = (struct scan_storage *)shared;
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = blockIdx.z * 64;
    const int c0 = cn[s], count = __shfl_sync(~0u, cn[s + 1] - c0, 0);

    ring_init(&m->ring);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == 0) {
        load_chunks(a, s, n, v, c0, count, m);
        return;
    }
    const int64_t state = ((int64_t)s * a.HV + n) * ROWS_K * a.V + v
                        + threadIdx.x / 32 % 4 * 16;
    float S[ROWS_K / 8][4];
    load_state<ROWS_K>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, a.V);
    for (int i = 0; i < count; i++)
        scan_step(a, chunk_tokens(a, s, c0 + i), n, v, c0 + i, i, m, S);
    store_state<ROWS_K>((float *)a.h_out + state, 1, a.V, S);
}

// A block computes o = scale qg h + Aqk v_new of one chunk and 64 columns of V.
struct output_storage {
    bf16 q[K_TILES * SWIZZLE128_TILE], h[K_TILES * SWIZZLE128_TILE];
    bf16 Aqk[SWIZZLE128_TILE], v_new[SWIZZLE128_TILE];
    float eq[CHUNK];
};

static __device__ __forceinline__ void load_output(const struct kcp_chunk &a,
                                                   struct token_range z, int c, int n,
                                                   int v, struct output_storage &m)
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const bf16 *h = (const bf16 *)a.h + ((int64_t)c * a.HV + n) * ROWS_K * a.V + v;
    const int64_t HV = a.HV;
    const int i = threadIdx.x;
    cp_async_tiles<K_TILES>(m.q, q.x, q.ld, z.len, i);
    for (int t = 0; t < K_TILES; t++)
        cp_async_tiles<1>(m.h + t * SWIZZLE128_TILE, h + t * 64 * a.V, a.V, CHUNK, i);
    cp_async_commit();
    cp_async_tiles<1>(m.Aqk, in<bf16>(a.Aqk, z.t, HV, n, CHUNK), HV * CHUNK, z.len, i);
    cp_async_tiles<1>(m.v_new, in<bf16>(a.v_new, z.t, HV, n, a.V) + v, HV * a.V, z.len,
                      i);
    cp_async_commit();
    if (i < CHUNK)
        m.eq[i] = (float)a.scale
                * (a.KG > 1 ? 1.0f
                            : exp2f(gate(a, z.t + min(i, z.len - 1), n, 0)));
}

static __global__ __launch_bounds__(128) void output_wide(const struct kcp_chunk a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct output_storage &m = *(struct output_storage *)shared;
    const int blocks = a.V / 64, c = blockIdx.x / blocks, n = blockIdx.y;
    const int v = blockIdx.x % blocks * 64;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    float y[8][4];

    load_output(a, z, c, n, v, m);
    cp_async_wait<1>();
    fence_proxy_async();
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 32; i++) y[i / 4][i % 4] = 0.0f;
    wgmma_fence();
    #pragma unroll
    for (int p = 0; p < ROWS_K / 16; p++) {
        const int step = p / 4 * DESC_NEXT_TILE + p % 4 * DESC_STEP_K_MAJOR;
        wgmma_m64n64k16_ss_trans<0, 1>(y, smem_desc_k_major(m.q) + step,
                                       smem_desc_mn_major(m.h)
                                           + p * DESC_STEP_MN_MAJOR);
    }
    wgmma_commit();
    cp_async_wait<0>();
    fence_proxy_async();
    __syncthreads();
    wgmma_wait<0>();
    fence_operand<8>(y);
    #pragma unroll
    for (int i = 0; i < 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) y[i][j] *= m.eq[row + j / 2 * 8];
    wgmma_fence();
    #pragma unroll
    for (int p = 0; p < CHUNK / 16; p++)
        wgmma_m64n64k16_ss_trans<0, 1>(
            y, smem_desc_k_major(m.Aqk) + p * DESC_STEP_K_MAJOR,
            smem_desc_mn_major(m.v_new) + p * DESC_STEP_MN_MAJOR);
    wgmma_commit();
    wgmma_wait<0>();
    fence_operand<8>(y);
    #pragma unroll
    for (int i = 0; i < 8; i++)          // a warp overwrites its rows of q
        #pragma unroll
        for (int j = 0; j < 2; j++)
            *(uint32_t *)((char *)m.q + swizzle128_offset(row + 8 * j, i)
                          + lane % 4 * 4) = pack_bf16x2(y[i][2 * j], y[i][2 * j + 1]);
    __syncthreads();
    copy_swizzled_rows<CHUNK>(out<bf16>(a.o, z.t, a.HV, n, a.V) + v,
                              (int64_t)a.HV * a.V, z.len, m.q);
}

int v5_chunk(void *args)
{
    const struct kcp_chunk *a = (const struct kcp_chunk *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->u, a->w, a->Aqk, a->o, a->v_new,
                        a->h };
    const size_t one = sizeof(struct scan_storage), two = sizeof(struct output_storage);
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (a->C != CHUNK || a->K != ROWS_K || a->V % 64) return KCP_NA;
    if (!a->h || !a->v_new || !device_is_sm90()) return KCP_NA;
    for (const void *x : p)
        if (!is_aligned_16(x)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    cudaFuncSetAttribute(scan_wide, most, one);
    cudaFuncSetAttribute(output_wide, most, two);
    scan_wide<<<dim3(a->NS, a->HV, a->V / 64), WIDE_THREADS, one, a->stream>>>(*a);
    if (a->o && a->NC)
        output_wide<<<dim3(a->NC * (a->V / 64), a->HV), 128, two, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT(chunk_v5_wide) = {
    "04_chunk", "v5_wide_sm90", "K = 256: a scan that stores states, then the outputs",
    KCP_BF16, KCP_DEVICE, "K 256, V a multiple of 64, C 64; sm_90a", v5_chunk, NULL };
