// v3_rows_sm90.cu -- the reverse scan by warpgroups, one block per head.
// Book: chapter T, "Whole rows".
#include "cuda/tile/warpgroup_store.cuh"
#include "v3_rows_local.cuh"
#include "cuda/host/stages_v2.cuh"

// In v2, each of eight warps reads every 16 KiB tile from shared memory and writes only
// 32 bytes per row of dh and dU, so a step takes 7 us. Here each of two warpgroups (64
// columns) reads the tiles once and stores 128 bytes per row. Bound: memory, 128 KiB
// per step, 2.9 us if 96 of 132 SMs share the bandwidth. The 6 C K V flops take only 1
// us. Chunk c-1 is copied during step c. Each step has one block-wide barrier, after
// the step's chunk has arrived and all warps have read the previous chunk.
enum { W, KG, QG, DO, DV, TENSORS };

struct tiles {
    bf16 tile[2][TENSORS][2 * SWIZZLE128_TILE], out[2][2 * SWIZZLE128_TILE];
    float decay[2][DIM], eq[2][CHUNK], ek[2][CHUNK];
};

static __device__ void load_chunk(const struct kcp_chunk_backward &a,
                                  struct token_range z, int n,
                                  bf16 (*to)[2 * SWIZZLE128_TILE])
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV, ld = HV * DIM;
    cp_async_swizzled_rows(to[KG], k.x, k.ld, z.len);
    cp_async_swizzled_rows(to[DV], in<bf16>(a.dv_local, z.t, HV, n, DIM), ld, z.len);
    cp_async_swizzled_rows(to[DO], in<bf16>(a.do_, z.t, HV, n, DIM), ld, z.len);
    cp_async_swizzled_rows(to[QG], q.x, q.ld, z.len);
    cp_async_swizzled_rows(to[W], in<bf16>(a.w, z.t, HV, n, DIM), ld, z.len);
    cp_async_commit();
}

// Computes dU = kg dS + dv_local in place of dv_local, then dS <- Lambda dS + scale
// qg^T dO - w^T dU. While the tensor core computes, stores dU and the old dS.
static __device__ __forceinline__ void reverse_step(const struct kcp_chunk_backward &a,
                                                    struct token_range z, int n, int c,
                                                    struct tiles *s, int at,
                                                    float (*dS)[4])
{
    const int group = threadIdx.x / 128, v = group * 64;
    bf16 *dv = s->tile[at][DV] + group * SWIZZLE128_TILE, *out_ = s->out[group];
    uint32_t x_[4][1][4], d_[4][1][4];
    float x[8][4], d[8][4];

    //> kernel-rows
    stmatrix_swizzled<16>(out_, dS);
    warpgroup_times_rows<1>(x, dS, s->tile[at][KG]);
    if (a.KG == 1) scale_columns<8>(x, s->ek[at]);
    ldmatrix_swizzled(d, dv);
    #pragma unroll
    for (int i = 0; i < 32; i++) x[i / 4][i % 4] += d[i / 4][i % 4];
    stmatrix_swizzled<8>(dv, x);
    warpgroup_sync();

    ldmatrix_swizzled(d, s->tile[at][DO] + group * SWIZZLE128_TILE);
    scale_columns<8>(d, s->eq[at]);
    scale_columns<16>(dS, s->decay[at]);
    #pragma unroll
    for (int i = 0; i < 32; i++) x[i / 4][i % 4] = -x[i / 4][i % 4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        split_bf16<1>(x_[i], x + 2 * i);
        split_bf16<1>(d_[i], d + 2 * i);
    }
    wgmma_fence();
    warpgroup_add_rows_async(dS, d_, s->tile[at][QG]);
    warpgroup_add_rows_async(dS, x_, s->tile[at][W]);
    wgmma_commit();
    copy_swizzled_rows<128>((bf16 *)a.dh + ((int64_t)c * a.HV + n) * DIM * DIM + v, DIM,
                            DIM, out_);
    copy_swizzled_rows<64>(out<bf16>(a.dU, z.t, a.HV, n, DIM) + v, (int64_t)a.HV * DIM,
                           z.len, dv);
    wgmma_wait<0>();
    keep_operand(x_);
    keep_operand(d_);
    fence_operand<16>(dS);
    //< kernel-rows
}

static __global__ __launch_bounds__(256, 1)
void reverse(const struct kcp_chunk_backward a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct tiles *s = (struct tiles *)shared;
    const int *cn = (const int *)a.cn;
    const int z = blockIdx.x, n = blockIdx.y, col = threadIdx.x / 32 * 16;
    const int count = cn[z + 1] - cn[z], last = cn[z + 1] - 1;
    const int64_t state = ((int64_t)z * a.HV + n) * DIM * DIM + col;
    const float *dh_out = (const float *)a.dh_out;
    struct gate_share g = {};
    float dS[16][4];

    load_state<DIM>(dS, dh_out ? dh_out + state : NULL, 1, DIM);
    if (count) {
        load_chunk(a, chunk_tokens(a, z, last), n, s->tile[0]);
        g = read_gate(a, chunk_tokens(a, z, last), n, DIM);
    }
    for (int i = 0; i < count; i++) {
        const int at = i & 1, c = last - i;
        cp_async_wait<0>();
        write_gate(a, g, DIM, s->decay[at], s->eq[at], s->ek[at]);
        fence_proxy_async();
        __syncthreads();
        if (i + 1 < count) {
            load_chunk(a, chunk_tokens(a, z, c - 1), n, s->tile[at ^ 1]);
            g = read_gate(a, chunk_tokens(a, z, c - 1), n, DIM);
        }
        reverse_step(a, chunk_tokens(a, z, c), n, c, s, at, dS);
    }
    store_state<DIM>((float *)a.dh_in + state, 1, DIM, dS);
}

int v3_chunk_backward(void *args)
{
    const struct kcp_chunk_backward *a = (const struct kcp_chunk_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->Aqk, a->v_new, a->do_,
                        a->dv_local, a->dU, a->dh, a->dAqk };
    if (a->C != CHUNK || a->V != DIM || a->K != DIM || !device_is_sm90()) return KCP_NA;
    if (!(a->part & (KCP_LOCAL | KCP_REVERSE))) return KCP_BAD;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    const int status = a->part & KCP_LOCAL && a->NC ? launch_local<DIM>(a) : KCP_OK;
    if (status || !(a->part & KCP_REVERSE)) return status;
    return launch_shared(reverse, dim3(a->NS, a->HV), 256, sizeof(struct tiles),
                         a->stream, *a);
}

KCP_VARIANT(chunk_backward_v3_rows) = {
    "09_chunk_backward", "v3_rows_sm90", "warpgroups: one block computes dS of a head",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64; sm_90a", v3_chunk_backward, NULL };
