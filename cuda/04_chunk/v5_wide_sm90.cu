// v5_wide_sm90.cu -- K = 256: a scan that stores the states, then the outputs.
// Book: chapter 18, "Keys of 256 channels".
#include "cuda/tile/wide_forward.cuh"
#include "cuda/host/stages_v2.cuh"

// A state of 256 rows leaves no registers and no shared memory for q and Aqk. Therefore
// the scan computes only v_new and S, one block per 64 columns of V, and a parallel
// kernel computes o from the stored states. V is any number of blocks. Bound of the
// scan: 4 C K 64 sequential flops per chunk, 1024 cycles of the tensor core. Bound of
// the outputs: memory, 2 K V bytes of h per chunk and head, written and read.
static __global__ __launch_bounds__(WIDE_THREADS, 1)
void scan_wide(const struct kcp_chunk a, const __grid_constant__ CUtensorMap h)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int s = blockIdx.x, n = blockIdx.y;
    const int64_t state = ((int64_t)s * a.HV + n) * ROWS_K * a.V;
    forward_block<1>(a, s, n, blockIdx.z * 64,
                     a.h_in ? (const float *)a.h_in + state : NULL,
                     (float *)a.h_out + state, a.V, &h,
                     (struct forward_storage *)shared);
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
    const size_t one = sizeof(struct forward_storage);
    const size_t two = sizeof(struct output_storage);
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (a->C != CHUNK || a->K != ROWS_K || a->V % 64) return KCP_NA;
    if ((a->NS && (!a->h || !a->v_new)) || !device_is_sm90()) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    CUtensorMap h;
    if (!wide_store_map(&h, a->h, a->NC, a->HV, a->V)) return KCP_NA;
    cudaFuncSetAttribute(scan_wide, most, one);
    cudaFuncSetAttribute(output_wide, most, two);
    scan_wide<<<dim3(a->NS, a->HV, a->V / 64), WIDE_THREADS, one, a->stream>>>(*a, h);
    if (a->o && a->NC)
        output_wide<<<dim3(a->NC * (a->V / 64), a->HV), 128, two, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT(chunk_v5_wide) = {
    "04_chunk", "v5_wide_sm90", "K = 256: a scan that stores states, then the outputs",
    KCP_BF16, KCP_DEVICE, "K 256, V a multiple of 64, C 64; sm_90a", v5_chunk, NULL };
