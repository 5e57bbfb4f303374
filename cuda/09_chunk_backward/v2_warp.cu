// v2_warp.cu -- backward of scan and output on tensor cores, by warps.
// Book: chapter T, "Chapter 09: the reverse scan".
#include "local_products.cuh"
#include "cuda/host/processors.cuh"
#include "cuda/host/stages_v2.cuh"

// Runs chapter 04's v2, with the same two barriers per chunk, from the last chunk to
// the first. The gradient dS^T stays in registers. Chunk c-1 is copied while chunk c is
// computed. Bound: 6 C K V sequential flops per chunk. The chunk-local part, 4 C^2 V
// flops, runs in a separate grid.
template <int K, int VB>
struct tiles {
    bf16 w[CHUNK][K + PAD], q[CHUNK][K + PAD], k[CHUNK][K + PAD];
    bf16 dO[CHUNK][VB + PAD], dv[CHUNK][VB + PAD];
    float decay[K], eq[CHUNK], ek[CHUNK];
};

template <int K, int VB>
static __device__ void load_chunk(const struct kcp_chunk_backward &a,
                                  struct token_range z, int n, int v0,
                                  struct tiles<K, VB> *s)
{
    const struct rows q = rows_of(a, z.t, n, a.qg, a.q);
    const struct rows k = rows_of(a, z.t, n, a.kg, a.k);
    const int64_t HV = a.HV, V = a.V;
    cp_async_rows<K>(s->w[0], in<bf16>(a.w, z.t, a.HV, n, K), HV * K, z.len);
    cp_async_rows<K>(s->q[0], q.x, q.ld, z.len);
    cp_async_rows<K>(s->k[0], k.x, k.ld, z.len);
    cp_async_rows<VB>(s->dO[0], in<bf16>(a.do_, z.t, a.HV, n, V) + v0, HV * V, z.len);
    cp_async_rows<VB>(s->dv[0], in<bf16>(a.dv_local, z.t, a.HV, n, V) + v0, HV * V,
                      z.len);
    cp_async_commit();
}

// One warp computes dU = kg dS + dv_local, then dS <- Lambda dS + scale qg^T dO - w^T
// dU, for columns v to v+15.
template <int K, int VB>
static __device__ void reverse_step(const struct kcp_chunk_backward &a,
                                    struct token_range z, int n, int v,
                                    const struct tiles<K, VB> *s, float (*dS)[4])
{
    const int64_t at = (z.t * a.HV + n) * a.V + v, ld = (int64_t)a.HV * a.V;
    float x[CHUNK / 8][4], y[CHUNK / 8][4] = {};

    //> kernel-mma
    times_rows<K, 1>(y, dS, s->k[0]);
    scale_columns<CHUNK / 8>(y, s->ek);
    from_rows(x, s->dv[0] + v % VB, VB + PAD);
    for (int c = 0; c < CHUNK / 8; c++)
        for (int j = 0; j < 4; j++) x[c][j] += y[c][j];
    store_rows<CHUNK / 8>((bf16 *)a.dU + at, ld, z.len, x);

    scale_columns<K / 8>(dS, s->decay);
    from_rows(y, s->dO[0] + v % VB, VB + PAD);
    scale_columns<CHUNK / 8>(y, s->eq);
    add_rows_to<K, 1>(dS, y, s->q[0]);
    for (int c = 0; c < CHUNK / 8; c++)
        for (int j = 0; j < 4; j++) x[c][j] = -x[c][j];
    add_rows_to<K, 1>(dS, x, s->w[0]);
    //< kernel-mma
}

template <int K, int VB>
static __global__ __launch_bounds__(2 * VB, 1)
void reverse(const struct kcp_chunk_backward a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct tiles<K, VB> *s = (struct tiles<K, VB> *)shared;
    const int *cn = (const int *)a.cn;
    const int z = blockIdx.x, n = blockIdx.y, v0 = blockIdx.z * VB;
    const int v = v0 + threadIdx.x / 32 * 16, c0 = cn[z], c1 = cn[z + 1];
    const int64_t state = ((int64_t)z * a.HV + n) * K * a.V + v;
    float dS[K / 8][4];

    load_state<K>(dS, a.dh_out ? (const float *)a.dh_out + state : NULL, 1, a.V);
    if (c0 < c1) {
        const struct token_range first = chunk_tokens(a, z, c1 - 1);
        load_chunk<K, VB>(a, first, n, v0, s);
        write_gate(a, read_gate(a, first, n, K), K, s->decay, s->eq, s->ek);
    }
    for (int c = c1 - 1; c >= c0; c--) {
        struct tiles<K, VB> *now = s + (c1 - 1 - c) % 2, *next = s + (c1 - c) % 2;
        struct gate_share g = {};
        if (c > c0) {
            const struct token_range ahead = chunk_tokens(a, z, c - 1);
            load_chunk<K, VB>(a, ahead, n, v0, next);
            g = read_gate(a, ahead, n, K);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        store_rows<K / 8>((bf16 *)a.dh + ((int64_t)c * a.HV + n) * K * a.V + v, a.V, K,
                          dS);
        reverse_step<K, VB>(a, chunk_tokens(a, z, c), n, v, now, dS);
        write_gate(a, g, K, next->decay, next->eq, next->ek);
        __syncthreads();
    }
    store_state<K>((float *)a.dh_in + state, 1, a.V, dS);
}

// Stores dv_local [64 rows j, 64] = tril(Aqk)^T dO. A warp computes 16 rows j.
static __device__ void store_inner(const struct locals<64> &s, bf16 *to, int64_t ld,
                                   int len)
{
    const int lane = threadIdx.x % 32, j0 = threadIdx.x / 32 * 16;
    float d[8][4] = {};
    inner<64, 4>(s, j0, 0, d);
    for (int h = 0; h < 16; h++) {
        const int j = j0 + lane / 4 + h % 2 * 8;
        const float *x = d[h / 2] + h % 2 * 2;
        if (j < len)
            *(uint32_t *)(to + j * ld + h / 2 * 8 + lane % 4 * 2) =
                pack_bf16x2(x[0], x[1]);
    }
}

// Processes 64 columns of V at a time with 128 threads.
static __global__ __launch_bounds__(128)
void local_gradients(const struct kcp_chunk_backward a)
{
    __shared__ __align__(128) struct locals<64> s;
    const int c = blockIdx.x, n = blockIdx.y, lane = threadIdx.x % 32;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);
    const int64_t ld = (int64_t)a.HV * a.V, at = (z.t * a.HV + n) * a.V;
    float d[8][4] = {};

    cp_async_rows<CHUNK>(s.Aqk[0], in<bf16>(a.Aqk, z.t, a.HV, n, CHUNK),
                         (int64_t)a.HV * CHUNK, z.len);
    for (int v = 0; v < a.V; v += 64) {
        cp_async_rows<64>(s.dO[0], (const bf16 *)a.do_ + at + v, ld, z.len);
        cp_async_rows<64>(s.v_new[0], (const bf16 *)a.v_new + at + v, ld, z.len);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        store_inner(s, (bf16 *)a.dv_local + at + v, ld, z.len);
        outer<64, 4>(s, threadIdx.x / 32 * 16, 0, d);
        __syncthreads();
    }
    for (int h = 0; h < 16; h++) {
        const int i = threadIdx.x / 32 * 16 + lane / 4 + h % 2 * 8;
        const int j = h / 2 * 8 + lane % 4 * 2;
        const float *x = d[h / 2] + h % 2 * 2, scale = a.scale;
        if (i < z.len)
            *(uint32_t *)(out<bf16>(a.dAqk, z.t + i, a.HV, n, CHUNK) + j) =
                pack_bf16x2(j <= i ? scale * x[0] : 0.0f, j < i ? scale * x[1] : 0.0f);
    }
}

template <int K, int VB>
static int chunk_backward_v2_warp_launch(const struct kcp_chunk_backward *a)
{
    const size_t bytes = 2 * sizeof(struct tiles<K, VB>);
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (cudaFuncSetAttribute(reverse<K, VB>, most, bytes) != cudaSuccess) {
        cudaGetLastError();              // shared memory is too small
        return KCP_NA;
    }
    reverse<K, VB><<<dim3(a->NS, a->HV, a->V / VB), 2 * VB, bytes, a->stream>>>(*a);
    return launched();
}

// Selects the block width. With few stretches (token ranges of sequences) and heads, a
// block has 64 columns instead of 128, so that more SMs have work. Blocks of either
// width give the same bits.
template <int K>
static int widths(const struct kcp_chunk_backward *a)
{
    const int64_t chains = (int64_t)a->NS * a->HV * (a->V / 64);
    int status = KCP_NA;
    if (a->V % 128 == 0 && chains > processors())
        status = chunk_backward_v2_warp_launch<K, 128>(a);
    return status == KCP_NA ? chunk_backward_v2_warp_launch<K, 64>(a) : status;
}

int v2_chunk_backward(void *args)
{
    const struct kcp_chunk_backward *a = (const struct kcp_chunk_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->Aqk, a->v_new, a->do_,
                        a->dv_local, a->dU, a->dh, a->dAqk };
    const int scans = a->part & KCP_REVERSE;   // the other part does not depend on K
    if (a->C != CHUNK || a->V % 64) return KCP_NA;
    if (scans && a->K != 64 && a->K != 128) return KCP_NA;
    if (!(a->part & (KCP_LOCAL | KCP_REVERSE))) return KCP_BAD;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    if (a->part & KCP_LOCAL)
        local_gradients<<<dim3(a->NC, a->HV), 128, 0, a->stream>>>(*a);
    if (!scans) return launched();
    return a->K == 64 ? widths<64>(a) : widths<128>(a);
}

KCP_VARIANT(chunk_backward_v2_warp) = {
    "09_chunk_backward", "v2_warp", "tensor cores: 16 columns of dS per warp",
    KCP_BF16, KCP_DEVICE, "K 64 or 128, V a multiple of 64, C 64",
    v2_chunk_backward, NULL };
