// v2_warp.cu -- state scan and output on tensor cores: 16 columns of S per warp.
// Book: chapter T, "Chapter 04: the scan".
#include "cuda/tile/warp_scan.cuh"
#include "cuda/host/processors.cuh"
#include "cuda/host/stages_v2.cuh"

// Bound: 6 C K V + 2 C^2 V flops per chunk on the tensor core, 7.3 MFLOP at K = V =
// 128, about 2 us of one SM. Shared memory is also close to its bound, because each
// warp reads all of w, qg, kg and Aqk (56 KiB). Chunk c+1 is copied while chunk c is
// computed. Each chunk has two barriers: one after the tiles have arrived, one after
// all warps have read the tiles. K/2 + 64 accumulators per thread stay in registers.
template <int K, int VB>
struct tiles {
    bf16 w[CHUNK][K + PAD], q[CHUNK][K + PAD], k[CHUNK][K + PAD];
    bf16 Aqk[CHUNK][CHUNK + PAD], u[CHUNK][VB + PAD];
    float decay[K], eq[CHUNK], ek[CHUNK];    // exp2(G_last); factors of rows of q, k
};

template <int K, int VB>
static __device__ void load_chunk(const struct kcp_chunk &a, struct token_range z,
                                  int n, int v0, struct tiles<K, VB> *s)
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV;
    cp_async_rows<K>(s->w[0], in<bf16>(a.w, z.t, a.HV, n, K), HV * K, z.len);
    cp_async_rows<K>(s->k[0], k.x, k.ld, z.len);
    if (a.o) {                           // o is NULL if only h and v_new are needed
        cp_async_rows<K>(s->q[0], q.x, q.ld, z.len);
        cp_async_rows<CHUNK>(s->Aqk[0], in<bf16>(a.Aqk, z.t, a.HV, n, CHUNK),
                             HV * CHUNK, z.len);
    }
    cp_async_rows<VB>(s->u[0], in<bf16>(a.u, z.t, a.HV, n, a.V) + v0, HV * a.V, z.len);
    cp_async_commit();
}

// Computes o^T [16,64] += v_new^T Aqk^T. Aqk is lower triangular, so token j
// contributes only to rows i >= j of o.
static __device__ __forceinline__ void add_inner(float (*o)[4], const float (*x)[4],
                                                 const bf16 *Aqk)
{
    const bf16 *row = Aqk + ldmatrix_offset_b(threadIdx.x % 32, CHUNK + PAD);
    #pragma unroll
    for (int p = 0; p < CHUNK / 16; p++) {
        const uint32_t a[4] = { pack_bf16x2(x[2 * p][0], x[2 * p][1]),
                                pack_bf16x2(x[2 * p][2], x[2 * p][3]),
                                pack_bf16x2(x[2 * p + 1][0], x[2 * p + 1][1]),
                                pack_bf16x2(x[2 * p + 1][2], x[2 * p + 1][3]) };
        #pragma unroll
        for (int c = p; c < CHUNK / 16; c++) {
            uint32_t b[4];
            ldmatrix_x4(b, row + c * 16 * (CHUNK + PAD) + p * 16);
            mma_m16n16k16(o + 2 * c, a, b);
        }
    }
}

// One warp processes one chunk for 16 columns of a head's state.
template <int K, int VB>
static __device__ void scan_step(const struct kcp_chunk &a, struct token_range z, int n,
                                 int v, const struct tiles<K, VB> *s, float (*S)[4])
{
    const int64_t at = (z.t * a.HV + n) * a.V + v, ld = (int64_t)a.HV * a.V;
    float x[CHUNK / 8][4], y[CHUNK / 8][4] = {};

    //> kernel-mma
    times_rows<K, 1>(y, S, s->w[0]);
    from_rows(x, s->u[0] + v % VB, VB + PAD);
    for (int c = 0; c < CHUNK / 8; c++)
        for (int j = 0; j < 4; j++) {
            x[c][j] -= y[c][j];
            y[c][j] = 0.0f;
        }
    if (a.v_new) store_rows<CHUNK / 8>((bf16 *)a.v_new + at, ld, z.len, x);

    if (a.o) {
        times_rows<K, 1>(y, S, s->q[0]);
        scale_columns<CHUNK / 8>(y, s->eq);
        add_inner(y, x, s->Aqk[0]);
        store_rows<CHUNK / 8>((bf16 *)a.o + at, ld, z.len, y);
    }

    scale_columns<K / 8>(S, s->decay);
    scale_columns<CHUNK / 8>(x, s->ek);
    add_rows_to<K, 1>(S, x, s->k[0]);
    //< kernel-mma
}

template <int K, int VB>
static __global__ __launch_bounds__(2 * VB, 1) void chunk(const struct kcp_chunk a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct tiles<K, VB> *s = (struct tiles<K, VB> *)shared;
    const int *cn = (const int *)a.cn;
    const int z = blockIdx.x, n = blockIdx.y, v0 = blockIdx.z * VB;
    const int v = v0 + threadIdx.x / 32 * 16, c0 = cn[z], c1 = cn[z + 1];
    const int64_t state = ((int64_t)z * a.HV + n) * K * a.V + v;
    float S[K / 8][4];

    load_state<K>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, a.V);
    if (c0 < c1) {
        const struct token_range first = chunk_tokens(a, z, c0);
        load_chunk<K, VB>(a, first, n, v0, s);
        write_gate(a, read_gate(a, first, n, K), K, s->decay, s->eq, s->ek);
    }
    for (int c = c0; c < c1; c++) {
        struct tiles<K, VB> *now = s + (c - c0) % 2, *next = s + (c - c0 + 1) % 2;
        struct gate_share g = {};
        if (c + 1 < c1) {
            const struct token_range ahead = chunk_tokens(a, z, c + 1);
            load_chunk<K, VB>(a, ahead, n, v0, next);
            g = read_gate(a, ahead, n, K);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        if (a.h)
            store_rows<K / 8>((bf16 *)a.h + ((int64_t)c * a.HV + n) * K * a.V + v, a.V,
                              K, S);
        scan_step<K, VB>(a, chunk_tokens(a, z, c), n, v, now, S);
        write_gate(a, g, K, next->decay, next->eq, next->ek);
        __syncthreads();
    }
    store_state<K>((float *)a.h_out + state, 1, a.V, S);
}

template <int K, int VB>
static int chunk_v2_warp_launch(const struct kcp_chunk *a)
{
    const size_t bytes = 2 * sizeof(struct tiles<K, VB>);
    return launch_shared(chunk<K, VB>, dim3(a->NS, a->HV, a->V / VB), 2 * VB, bytes,
                         a->stream, *a);
}

// Selects the block width. With few stretches (token ranges of sequences) and heads, a
// block has 64 columns instead of 128, so that more SMs have work. Blocks of either
// width give the same bits.
template <int K>
static int widths(const struct kcp_chunk *a)
{
    const int64_t chains = (int64_t)a->NS * a->HV * (a->V / 64);
    if (a->V % 128 || chains <= processors()) return chunk_v2_warp_launch<K, 64>(a);
    return chunk_v2_warp_launch<K, 128>(a);
}

int v2_chunk(void *args)
{
    const struct kcp_chunk *a = (const struct kcp_chunk *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->u, a->w, a->Aqk, a->o, a->v_new,
                        a->h };
    if (a->C != CHUNK || a->V % 64 || (a->K != 64 && a->K != 128)) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return a->K == 64 ? widths<64>(a) : widths<128>(a);
}

KCP_VARIANT(chunk_v2_warp) = {
    "04_chunk", "v2_warp", "tensor cores: a warp holds 16 state columns in registers",
    KCP_BF16, KCP_DEVICE, "K 64 or 128, V a multiple of 64, C 64", v2_chunk, NULL };
