// v4_wide_sm90.cu -- K = 256: the reverse scan, one block per 64 columns of V.
// Book: chapter 18, "Keys of 256 channels".
#include "cuda/tile/wide_scan.cuh"
#include "cuda/host/stages_v2.cuh"

// Bound: 6 C K 64 sequential flops per chunk, 1536 cycles of the tensor core. Tiles
// 3 i, 3 i + 1 and 3 i + 2 of the ring are kg, q and w of step i, which is chunk
// last - i. dv_local arrives with kg, dO with q. They have two stages, because slot
// 3 i % SLOTS is empty when the consumers have released q of step i - 2, after their
// last read of both.
enum { STAGES = 2 };

struct reverse_storage {
    wide_tile tile[SLOTS], old;
    bf16 dv[STAGES][SWIZZLE128_TILE], dO[STAGES][SWIZZLE128_TILE];
    struct wide_gate g[STAGES];
    struct wide_ring ring;
};

static __device__ __forceinline__ void load_chunks(const struct kcp_chunk_backward &a,
                                                   int s, int n, int v, int last,
                                                   int count, struct reverse_storage *m)
{
    const int64_t HV = a.HV, ldv = HV * a.V;
    const int id = threadIdx.x;
    float2 g = {};
    if (count) g = wide_gate_read(a, chunk_tokens(a, s, last), n, id);
    for (int i = 0; i < count; i++) {
        const struct token_range z = chunk_tokens(a, s, last - i);
        const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
        const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
        const int j = 3 * i;
        ring_wait_empty(&m->ring, j);
        wide_gate_write(&m->g[i % STAGES], g, a.KG == 1, a.scale, id);
        cp_async_tiles<1>(m->dv[i % STAGES],
                          in<bf16>(a.dv_local, z.t, HV, n, a.V) + v, ldv, z.len, id);
        cp_async_tiles<K_TILES>(m->tile[j % SLOTS], k.x, k.ld, z.len, id);
        ring_issued(&m->ring, j);
        if (i + 1 < count)
            g = wide_gate_read(a, chunk_tokens(a, s, last - i - 1), n, id);
        ring_wait_empty(&m->ring, j + 1);
        cp_async_tiles<1>(m->dO[i % STAGES], in<bf16>(a.do_, z.t, HV, n, a.V) + v, ldv,
                          z.len, id);
        cp_async_tiles<K_TILES>(m->tile[(j + 1) % SLOTS], q.x, q.ld, z.len, id);
        ring_issued(&m->ring, j + 1);
        ring_wait_empty(&m->ring, j + 2);
        cp_async_tiles<K_TILES>(m->tile[(j + 2) % SLOTS],
                                in<bf16>(a.w, z.t, HV, n, ROWS_K), HV * ROWS_K, z.len,
                                id);
        ring_issued(&m->ring, j + 2);
    }
    ring_finish(&m->ring, 3 * count - 1);
}

// Multiplies columns by the rows' factors (GDN) or by `scale` (KDA).
static __device__ __forceinline__ void scale_rows(float (*d)[4], const float *eq,
                                                  int gdn, float scale)
{
    if (gdn) return scale_columns<8>(d, eq);
    #pragma unroll
    for (int j = 0; j < 32; j++) d[j / 4][j % 4] *= scale;
}

// Computes dU = kg dS + dv_local in place of dv_local, then dS <- Lambda dS + scale
// qg^T dO - w^T dU. While the tensor core computes, stores dU and the old dS. The first
// barrier separates the copies of the previous chunk from writes to the same memory.
// The second barrier separates these writes from the copies.
static __device__ __forceinline__ void reverse_step(const struct kcp_chunk_backward &a,
                                                    struct token_range z, int n, int v,
                                                    int c, int i,
                                                    struct reverse_storage *m,
                                                    float (*dS)[4])
{
    const int gdn = a.KG == 1, k = 3 * i, q = k + 1, w = k + 2;
    const struct wide_gate &g = m->g[i % STAGES];
    bf16 *dv = m->dv[i % STAGES];
    uint32_t x_[4][1][4], d_[4][1][4];
    float x[8][4], d[8][4];

    //> kernel-wide
    warpgroup_sync();
    ring_wait_full(&m->ring, k);
    wide_times_rows(x, dS, m->tile[k % SLOTS], m->old);
    wide_decay(dS, g, gdn);
    ldmatrix_swizzled(d, dv);
    wgmma_wait<0>();
    fence_operand<8>(x);
    ring_release(&m->ring, k);
    if (gdn) scale_columns<8>(x, g.ek);
    #pragma unroll
    for (int j = 0; j < 32; j++) x[j / 4][j % 4] += d[j / 4][j % 4];
    stmatrix_swizzled<8>(dv, x);
    #pragma unroll
    for (int j = 0; j < 32; j++) x[j / 4][j % 4] = -x[j / 4][j % 4];
    pack_accumulator<8>((uint32_t(*)[4])x_, x);
    ring_wait_full(&m->ring, q);
    ldmatrix_swizzled(d, m->dO[i % STAGES]);
    scale_rows(d, g.eq, gdn, a.scale);
    pack_accumulator<8>((uint32_t(*)[4])d_, d);
    wgmma_fence();
    wide_add_rows(dS, d_, m->tile[q % SLOTS]);
    ring_wait_full(&m->ring, w);
    wide_add_rows(dS, x_, m->tile[w % SLOTS]);
    wgmma_commit();
    warpgroup_sync();
    copy_swizzled_rows<ROWS_K>(
        (bf16 *)a.dh + ((int64_t)c * a.HV + n) * ROWS_K * a.V + v, a.V, ROWS_K, m->old);
    copy_swizzled_rows<CHUNK>(out<bf16>(a.dU, z.t, a.HV, n, a.V) + v,
                              (int64_t)a.HV * a.V, z.len, dv);
    wgmma_wait<0>();
    keep_operand(x_);
    keep_operand(d_);
    fence_operand<32>(dS);
    ring_release(&m->ring, q);
    ring_release(&m->ring, w);
    //< kernel-wide
}

static __global__ __launch_bounds__(WIDE_THREADS, 1)
void reverse_wide(const struct kcp_chunk_backward a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct reverse_storage *m = (struct reverse_storage *)shared;
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = blockIdx.z * 64;
    const int last = cn[s + 1] - 1, count = __shfl_sync(~0u, last + 1 - cn[s], 0);

    ring_init(&m->ring);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == 0) {
        load_chunks(a, s, n, v, last, count, m);
        return;
    }
    const int64_t state = ((int64_t)s * a.HV + n) * ROWS_K * a.V + v
                        + threadIdx.x / 32 % 4 * 16;
    float dS[ROWS_K / 8][4];
    load_state<ROWS_K>(dS, a.dh_out ? (const float *)a.dh_out + state : NULL, 1, a.V);
    for (int i = 0; i < count; i++)
        reverse_step(a, chunk_tokens(a, s, last - i), n, v, last - i, i, m, dS);
    store_state<ROWS_K>((float *)a.dh_in + state, 1, a.V, dS);
}

int v4_chunk_backward(void *args)
{
    const struct kcp_chunk_backward *a = (const struct kcp_chunk_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->Aqk, a->v_new, a->do_,
                        a->dv_local, a->dU, a->dh, a->dAqk };
    const size_t bytes = sizeof(struct reverse_storage);
    if (a->C != CHUNK || a->K != ROWS_K || a->V % 64) return KCP_NA;
    if (!device_is_sm90()) return KCP_NA;
    if (!(a->part & (KCP_LOCAL | KCP_REVERSE))) return KCP_BAD;
    for (const void *x : p)
        if (!is_aligned_16(x)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    struct kcp_chunk_backward local = *a;
    local.part = KCP_LOCAL;              // this part does not depend on K
    int status = KCP_OK;
    if (a->part & KCP_LOCAL && a->NC) status = v2_chunk_backward(&local);
    if (status || !(a->part & KCP_REVERSE)) return status;
    cudaFuncSetAttribute(reverse_wide, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    reverse_wide<<<dim3(a->NS, a->HV, a->V / 64), WIDE_THREADS, bytes, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT(chunk_backward_v4_wide) = {
    "09_chunk_backward", "v4_wide_sm90", "K = 256: a warpgroup holds 64 columns of dS",
    KCP_BF16, KCP_DEVICE, "K 256, V a multiple of 64, C 64; sm_90a", v4_chunk_backward,
    NULL };
