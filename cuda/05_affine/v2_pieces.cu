// v2_pieces.cu -- (M, h_ext) on tensor cores, with M as a sum of three bf16 matrices.
// Book: chapter T, "Chapter 05: the map"; chapter 19.
#include "cuda/tile/warp_scan.cuh"
#include "cuda/host/stages_v2.cuh"

// Runs chapter 04's v2 on the augmented state [h_ext | M]. The operands w and kg are
// bf16 and therefore exact. An fp32 number is the sum of three bf16 numbers, so three
// bf16 products compute M exactly, apart from rounding in the accumulator. Bound: 4 C K
// (V + 3 K) flops per chunk, 16.8 MFLOP at K = V = 128. This is more than twice chapter
// 04's work. Each of (V+K)/64 blocks per head does a part of it. For products, h_ext is
// rounded to bf16. Barriers and copies are those of chapter 04's v2.
template <int K>
struct tiles {
    bf16 w[CHUNK][K + PAD], k[CHUNK][K + PAD], u[CHUNK][64 + PAD];
    float decay[K], eq[CHUNK], ek[CHUNK];
};

template <int K>
static __device__ void load_chunk(const struct kcp_affine &a, struct token_range z,
                                  int n, int v0, int of_h, struct tiles<K> *s)
{
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV;
    cp_async_rows<K>(s->w[0], in<bf16>(a.w, z.t, a.HV, n, K), HV * K, z.len);
    cp_async_rows<K>(s->k[0], k.x, k.ld, z.len);
    if (of_h)
        cp_async_rows<64>(s->u[0], in<bf16>(a.u, z.t, a.HV, n, a.V) + v0, HV * a.V,
                          z.len);
    cp_async_commit();
}

// A warp computes x = u - w S, then S <- Lambda S + kg^T x. Columns of M have u = 0.
template <int K, int pieces>
static __device__ void affine_step(const struct tiles<K> *s, int v, float (*S)[4])
{
    float x[CHUNK / 8][4] = {}, y[CHUNK / 8][4] = {};
    times_rows<K, pieces>(y, S, s->w[0]);
    if (pieces == 1) from_rows(x, s->u[0] + v, 64 + PAD);
    for (int c = 0; c < CHUNK / 8; c++)
        for (int j = 0; j < 4; j++) x[c][j] -= y[c][j];
    scale_columns<CHUNK / 8>(x, s->ek);
    scale_columns<K / 8>(S, s->decay);
    if (pieces == 1) add_rows_to<K, 1>(S, x, s->k[0]);
    else add_sum_of_rows_to<K, pieces>(S, x, s->k[0]);
}

template <int K, int pieces>
static __device__ void affine_stretch(const struct kcp_affine &a, int z, int n, int v0,
                                      struct tiles<K> *s, float (*S)[4])
{
    const int *cn = (const int *)a.cn, c0 = cn[z], c1 = cn[z + 1];
    if (c0 < c1) {
        const struct token_range first = chunk_tokens(a, z, c0);
        load_chunk<K>(a, first, n, v0, pieces == 1, s);
        write_gate(a, read_gate(a, first, n, K), K, s->decay, s->eq, s->ek);
    }
    for (int c = c0; c < c1; c++) {
        struct tiles<K> *now = s + (c - c0) % 2, *next = s + (c - c0 + 1) % 2;
        struct gate_share g = {};
        if (c + 1 < c1) {
            const struct token_range ahead = chunk_tokens(a, z, c + 1);
            load_chunk<K>(a, ahead, n, v0, pieces == 1, next);
            g = read_gate(a, ahead, n, K);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        affine_step<K, pieces>(now, threadIdx.x / 32 * 16, S);
        write_gate(a, g, K, next->decay, next->eq, next->ek);
        __syncthreads();
    }
}

// Each block processes 64 columns of [h_ext | M], in four warps of 16 columns.
template <int K>
static __global__ __launch_bounds__(128, 1) void affine(const struct kcp_affine a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct tiles<K> *s = (struct tiles<K> *)shared;
    const int z = blockIdx.x, n = blockIdx.y, v0 = blockIdx.z * 64, VK = a.V + K;
    const int col = v0 + threadIdx.x / 32 * 16, of_h = v0 < a.V;
    const int want = ((const int *)a.want)[z];
    const int64_t state = ((int64_t)z * a.HV + n) * K;
    float S[K / 8][4];

    if (!(want & (of_h ? KCP_WANT_H : KCP_WANT_M))) return;
    if (of_h) {
        const float *h = (const float *)a.h_start;
        load_state<K>(S, h ? h + state * a.V + col : NULL, 1, a.V);
        affine_stretch<K, 1>(a, z, n, v0, s, S);
    } else {
        set_identity<K>(S, col - a.V);
        affine_stretch<K, 3>(a, z, n, v0, s, S);
    }
    store_state<K>((float *)a.map + state * VK + col, 1, VK, S);
}

template <int K>
static int affine_v2_pieces_launch(const struct kcp_affine *a)
{
    const size_t bytes = 2 * sizeof(struct tiles<K>);
    return launch_shared(affine<K>, dim3(a->NS, a->HV, (a->V + K) / 64), 128, bytes,
                         a->stream, *a);
}

int v2_affine(void *args)
{
    const struct kcp_affine *a = (const struct kcp_affine *)args;
    const void *p[] = { a->k, a->kg, a->u, a->w };
    if (a->C != CHUNK || a->V % 64 || (a->K != 64 && a->K != 128)) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return a->K == 64 ? affine_v2_pieces_launch<64>(a)
                      : affine_v2_pieces_launch<128>(a);
}

KCP_VARIANT(affine_v2_pieces) = {
    "05_affine", "v2_pieces", "tensor cores, M split exactly into three bf16 pieces",
    KCP_BF16, KCP_DEVICE, "K 64 or 128, V a multiple of 64, C 64", v2_affine, NULL };
