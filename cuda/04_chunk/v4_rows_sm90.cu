// v4_rows_sm90.cu -- state scan and output by warpgroups, which store whole rows.
// Book: chapter T, "Whole rows".
#include "cuda/tile/warpgroup_store.cuh"
#include "cuda/host/stages_v2.cuh"

// In v2, each of eight warps reads all of w, qg, kg and Aqk from shared memory. Here
// the tensor core reads these tiles once per 64 columns: 6 C K V + 2 C^2 V flops (7.3
// MFLOP) per chunk, 1.02 us of an SM at its peak. In v2, a warp's store of h or v_new
// covers 32 bytes per row, and the load-store unit processes one row at a time, so
// stores take 3000 cycles per step. Here a store covers 128 bytes per row. Bound:
// memory, 136 KiB per step, or 96 KiB without o. Each step has one block-wide barrier,
// after its chunk arrived and the previous chunk was read.
enum { W, KG, U, QG, TENSORS };

struct tiles {
    bf16 tile[2][TENSORS][2 * SWIZZLE128_TILE], Aqk[2][SWIZZLE128_TILE],
        out[2][2 * SWIZZLE128_TILE];
    float decay[2][DIM], eq[2][CHUNK], ek[2][CHUNK];
};

// Copies rows of 64 numbers to a swizzle128 tile.
static __device__ __forceinline__ void fetch_panel(bf16 *to, const bf16 *from,
                                                   int64_t stride, int len)
{
    const int row = threadIdx.x / 8, piece = threadIdx.x % 8;
    char *at = (char *)to + swizzle128_offset(row, piece);
    for (int r = row; r < CHUNK; r += 32, at += 4096)
        cp_async_16(at, from + (r < len ? r : 0) * stride + piece * 8, r < len);
}

template <int of_o>
static __device__ void load_chunk(const struct kcp_chunk &a, struct token_range z,
                                  int n, struct tiles *s, int to)
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV, ld = HV * DIM;
    cp_async_swizzled_rows(s->tile[to][W], in<bf16>(a.w, z.t, HV, n, DIM), ld, z.len);
    cp_async_swizzled_rows(s->tile[to][U], in<bf16>(a.u, z.t, HV, n, DIM), ld, z.len);
    cp_async_swizzled_rows(s->tile[to][KG], k.x, k.ld, z.len);
    if (of_o) {
        cp_async_swizzled_rows(s->tile[to][QG], q.x, q.ld, z.len);
        fetch_panel(s->Aqk[to], in<bf16>(a.Aqk, z.t, HV, n, CHUNK), HV * CHUNK, z.len);
    }
    cp_async_commit();
}

// Computes o = scale qg S + Aqk v_new. Aqk needs no mask: it is 0 above the diagonal.
static __device__ __forceinline__ void output(struct tiles *s, int at,
                                              const float (*S)[4],
                                              const uint32_t (*x_)[1][4], float (*y)[4])
{
    warpgroup_times_rows<1>(y, S, s->tile[at][QG]);
    scale_columns<8>(y, s->eq[at]);
    wgmma_fence();
    #pragma unroll
    for (int c = 0; c < 4; c++)
        wgmma_m64n64k16_rs<0>(y, x_[c][0],
                              smem_desc_k_major(s->Aqk[at]) + c * DESC_STEP_K_MAJOR, 1);
    wgmma_commit();
    wgmma_wait<0>();
    keep_operand(x_);
    fence_operand<8>(y);
}

// Computes v_new = u - w S in place of u, then o, then S <- Lambda S + kg^T v_new.
// While the tensor core computes S, stores the old S and o (v_new if `of_o` is 0).
template <int of_o>
static __device__ __forceinline__ void scan_step(const struct kcp_chunk &a,
                                                 struct token_range z, int n, int c,
                                                 struct tiles *s, int at, float (*S)[4])
{
    const int group = threadIdx.x / 128, v = group * 64;
    const int64_t ld = (int64_t)a.HV * DIM, row = (z.t * a.HV + n) * DIM + v;
    bf16 *u = s->tile[at][U] + group * SWIZZLE128_TILE, *out_ = s->out[group];
    uint32_t x_[4][1][4];
    float x[8][4], y[8][4];

    //> kernel-rows
    stmatrix_swizzled<16>(out_, S);
    warpgroup_times_rows<1>(y, S, s->tile[at][W]);
    ldmatrix_swizzled(x, u);
    #pragma unroll
    for (int i = 0; i < 32; i++) x[i / 4][i % 4] -= y[i / 4][i % 4];
    stmatrix_swizzled<8>(u, x);
    #pragma unroll
    for (int i = 0; i < 4; i++) split_bf16<1>(x_[i], x + 2 * i);
    if (of_o) {
        output(s, at, S, x_, y);
        warpgroup_sync();
        copy_swizzled_rows<64>((bf16 *)a.v_new + row, ld, z.len, u);
        warpgroup_sync();
        stmatrix_swizzled<8>(u, y);
    }
    warpgroup_sync();
    if (a.KG == 1) {
        scale_columns<8>(x, s->ek[at]);
        #pragma unroll
        for (int i = 0; i < 4; i++) split_bf16<1>(x_[i], x + 2 * i);
    }
    scale_columns<16>(S, s->decay[at]);
    wgmma_fence();
    warpgroup_add_rows_async(S, x_, s->tile[at][KG]);
    wgmma_commit();
    copy_swizzled_rows<128>((bf16 *)a.h + ((int64_t)c * a.HV + n) * DIM * DIM + v, DIM,
                            DIM, out_);
    copy_swizzled_rows<64>((bf16 *)(of_o ? a.o : a.v_new) + row, ld, z.len, u);
    wgmma_wait<0>();
    keep_operand(x_);
    fence_operand<16>(S);
    //< kernel-rows
}

template <int of_o>
static __global__ __launch_bounds__(256, 1) void chunk(const struct kcp_chunk a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct tiles *s = (struct tiles *)shared;
    const int *cn = (const int *)a.cn;
    const int z = blockIdx.x, n = blockIdx.y, col = threadIdx.x / 32 * 16;
    const int c0 = cn[z], c1 = cn[z + 1];
    const int64_t state = ((int64_t)z * a.HV + n) * DIM * DIM + col;
    struct gate_share g = {};
    float S[16][4];

    load_state<DIM>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, DIM);
    if (c0 < c1) {
        load_chunk<of_o>(a, chunk_tokens(a, z, c0), n, s, 0);
        g = read_gate(a, chunk_tokens(a, z, c0), n, DIM);
    }
    for (int c = c0; c < c1; c++) {
        const int at = (c - c0) & 1;
        cp_async_wait<0>();
        write_gate(a, g, DIM, s->decay[at], s->eq[at], s->ek[at]);
        fence_proxy_async();
        __syncthreads();
        if (c + 1 < c1) {
            load_chunk<of_o>(a, chunk_tokens(a, z, c + 1), n, s, at ^ 1);
            g = read_gate(a, chunk_tokens(a, z, c + 1), n, DIM);
        }
        scan_step<of_o>(a, chunk_tokens(a, z, c), n, c, s, at, S);
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

template <int of_o>
static int chunk_v4_rows_launch(const struct kcp_chunk *a)
{
    const size_t bytes = sizeof(struct tiles);
    return launch_shared(chunk<of_o>, dim3(a->NS, a->HV), 256, bytes, a->stream, *a);
}

// Only calls that store h and v_new run this kernel. Backward omits o.
int v4_chunk(void *args)
{
    const struct kcp_chunk *a = (const struct kcp_chunk *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->u, a->w, a->Aqk, a->o, a->v_new,
                        a->h };
    if (a->C != CHUNK || a->V != DIM || a->K != DIM || !device_is_sm90()) return KCP_NA;
    if (!a->h || !a->v_new) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return a->o ? chunk_v4_rows_launch<1>(a) : chunk_v4_rows_launch<0>(a);
}

KCP_VARIANT(chunk_v4_rows) = {
    "04_chunk", "v4_rows_sm90", "stores whole rows through shared memory",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64; sm_90a", v4_chunk, NULL };
