// v2_pieces.cu -- the map for gradients on tensor cores, N = M^T in three bf16 pieces.
// Book: chapter T, "Chapter 11: the map in reverse".
#include "cuda/tile/warp_scan.cuh"
#include "cuda/host/stages_v2.cuh"

// Runs chapter 05's v2 from the last chunk to the first, on [dh_ext | N], N = M^T. In
// each product, the fp32 columns of N are split into three exact bf16 pieces, and
// columns of dh_ext are rounded to bf16. A block's four warps process 64 columns.
// Bound: C K (6 V + 12 K) flops per chunk. Copies and barriers are as in chapter 05.
template <int K>
struct tiles {
    bf16 w[CHUNK][K + PAD], k[CHUNK][K + PAD], q[CHUNK][K + PAD];
    bf16 dO[CHUNK][64 + PAD], dv[CHUNK][64 + PAD];
    float decay[K], eq[CHUNK], ek[CHUNK];
};

template <int K>
static __device__ void load_chunk(const struct kcp_merge_backward &a,
                                  struct token_range z, int n, int v0, int of_h,
                                  struct tiles<K> *s)
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV, V = a.V;
    cp_async_rows<K>(s->w[0], in<bf16>(a.w, z.t, a.HV, n, K), HV * K, z.len);
    cp_async_rows<K>(s->k[0], k.x, k.ld, z.len);
    if (of_h) {
        cp_async_rows<K>(s->q[0], q.x, q.ld, z.len);
        cp_async_rows<64>(s->dO[0], in<bf16>(a.do_, z.t, a.HV, n, V) + v0, HV * V,
                          z.len);
        cp_async_rows<64>(s->dv[0], in<bf16>(a.dv_local, z.t, a.HV, n, V) + v0, HV * V,
                          z.len);
    }
    cp_async_commit();
}

// Computes x = kg y + dv_local, then y <- Lambda y + scale qg^T dO - w^T x. Columns of
// N have no dv_local and no dO.
template <int K, int pieces>
static __device__ void reverse_step(const struct tiles<K> *s, int v, float (*y)[4])
{
    float x[CHUNK / 8][4] = {}, d[CHUNK / 8][4] = {};
    times_rows<K, pieces>(x, y, s->k[0]);
    scale_columns<CHUNK / 8>(x, s->ek);
    scale_columns<K / 8>(y, s->decay);
    if (pieces == 1) {
        from_rows(d, s->dO[0] + v, 64 + PAD);
        scale_columns<CHUNK / 8>(d, s->eq);
        add_rows_to<K, 1>(y, d, s->q[0]);
        from_rows(d, s->dv[0] + v, 64 + PAD);
    }
    for (int c = 0; c < CHUNK / 8; c++)
        for (int j = 0; j < 4; j++) x[c][j] = -x[c][j] - d[c][j];
    if (pieces == 1) add_rows_to<K, 1>(y, x, s->w[0]);
    else add_sum_of_rows_to<K, pieces>(y, x, s->w[0]);
}

template <int K, int pieces>
static __device__ void reverse_stretch(const struct kcp_merge_backward &a, int z, int n,
                                       int v0, struct tiles<K> *s, float (*y)[4])
{
    const int *cn = (const int *)a.cn, c0 = cn[z], c1 = cn[z + 1];
    if (c0 < c1) {
        const struct token_range first = chunk_tokens(a, z, c1 - 1);
        load_chunk<K>(a, first, n, v0, pieces == 1, s);
        write_gate(a, read_gate(a, first, n, K), K, s->decay, s->eq, s->ek);
    }
    for (int c = c1 - 1; c >= c0; c--) {
        struct tiles<K> *now = s + (c1 - 1 - c) % 2, *next = s + (c1 - c) % 2;
        struct gate_share g = {};
        if (c > c0) {
            const struct token_range ahead = chunk_tokens(a, z, c - 1);
            load_chunk<K>(a, ahead, n, v0, pieces == 1, next);
            g = read_gate(a, ahead, n, K);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        reverse_step<K, pieces>(now, threadIdx.x / 32 * 16, y);
        write_gate(a, g, K, next->decay, next->eq, next->ek);
        __syncthreads();
    }
}

template <int K>
static __global__ __launch_bounds__(128, 1)
void merge_backward(const struct kcp_merge_backward a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct tiles<K> *s = (struct tiles<K> *)shared;
    const int z = blockIdx.x, n = blockIdx.y, v0 = blockIdx.z * 64, VK = a.V + K;
    const int col = v0 + threadIdx.x / 32 * 16, of_h = v0 < a.V;
    const int want = ((const int *)a.want)[z];
    const int64_t state = ((int64_t)z * a.HV + n) * K;
    const float *dh_end = (const float *)a.dh_end;
    float *dmap = (float *)a.dmap + state * VK, y[K / 8][4];

    if (of_h ? !(want & KCP_WANT_H) : !(want & KCP_WANT_M) || a.reuse_M) return;
    if (of_h) {
        load_state<K>(y, dh_end ? dh_end + state * a.V + col : NULL, 1, a.V);
        reverse_stretch<K, 1>(a, z, n, v0, s, y);
        store_state<K>(dmap + col, 1, VK, y);
    } else {
        set_identity<K>(y, col - a.V);
        reverse_stretch<K, 3>(a, z, n, v0, s, y);
        store_state<K>(dmap + (int64_t)(col - a.V) * VK + a.V, VK, 1, y);
    }
}

template <int K>
static int merge_backward_v2_pieces_launch(const struct kcp_merge_backward *a)
{
    const size_t bytes = 2 * sizeof(struct tiles<K>);
    return launch_shared(merge_backward<K>, dim3(a->NS, a->HV, (a->V + K) / 64), 128,
                         bytes, a->stream, *a);
}

int v2_merge_backward(void *args)
{
    const struct kcp_merge_backward *a = (const struct kcp_merge_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->do_, a->dv_local };
    if (a->C != CHUNK || a->V % 64 || (a->K != 64 && a->K != 128)) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    return a->K == 64 ? merge_backward_v2_pieces_launch<64>(a)
                      : merge_backward_v2_pieces_launch<128>(a);
}

KCP_VARIANT(merge_backward_v2_pieces) = {
    "11_merge_backward", "v2_pieces",
    "tensor cores, N split exactly into three bf16 pieces",
    KCP_BF16, KCP_DEVICE, "K 64 or 128, V a multiple of 64, C 64",
    v2_merge_backward, NULL };
