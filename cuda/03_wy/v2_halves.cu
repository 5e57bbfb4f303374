// v2_halves.cu -- the WY form on tensor cores, by recursive halving of the triangle.
// Book: chapter T, "Chapter 03: scores and the inverse".
#include "v2_halves_pairs.cuh"
#include "cuda/host/stages_v2.cuh"

// Of a block's 16 warps, 14 (GDN: 10) compute one tile of pairs each. Two blocks fit in
// the registers of an SM, so one can compute while the other waits at a barrier.
enum { THREADS = 512 };

// Computes k~ = exp2(G) k in place. For KDA, also computes kg = exp2(G_last - G) k and
// qg = exp2(G) q.
template <int K>
static __device__ void gated_rows(const struct kcp_wy &a, struct token_range z, int n,
                                  struct wy_storage<K> &s, int first)
{
    const int kda = a.KG > 1;
    for (int at = threadIdx.x - first; at < CHUNK * K / 2; at += blockDim.x - first) {
        const int i = at / (K / 2), d = at % (K / 2) * 2;
        const float2 none = make_float2(0.0f, 0.0f);
        const float *G = &s.G[i][kda ? d : 0];
        const float g0 = G[0], g1 = G[kda ? 1 : 0];
        const float2 E = make_float2(ex2_approx(g0), ex2_approx(g1));
        uint32_t *k = (uint32_t *)&s.k[i][d];
        if (kda && i < z.len) {
            const float2 rest = decay_between(&s.G[z.len - 1][d], G);
            *(uint32_t *)(out<bf16>(a.qg, z.t + i, a.HV, n, K) + d) =
                scale_bf16x2(*(const uint32_t *)&s.q[i][d], E);
            *(uint32_t *)(out<bf16>(a.kg, z.t + i, a.HV, n, K) + d) =
                scale_bf16x2(*k, rest);
        }
        *k = scale_bf16x2(*k, i < z.len ? E : none);
    }
}

// Stores a [64,64] matrix to a tensor [T,HV,64], with 0 above the diagonal.
template <class Row>
static __device__ void store_block(const struct kcp_wy &a, struct token_range z, int n,
                                   void *to, const Row *x, int ld)
{
    for (int at = threadIdx.x; at < z.len * CHUNK / 2; at += blockDim.x) {
        const int i = at / (CHUNK / 2), j = at % (CHUNK / 2) * 2;
        const float low = j <= i ? (float)x[i * ld + j] : 0.0f;
        const float high = j < i ? (float)x[i * ld + j + 1] : 0.0f;
        *(uint32_t *)(out<bf16>(to, z.t + i, a.HV, n, CHUNK) + j) =
            pack_bf16x2(low, high);
    }
}

// Computes y = (A diag beta) x, with x [64,ld] in shared memory. Each warp computes 16
// rows and a quarter of the columns of y. A is lower triangular, so row i of y needs
// only the rows of x up to i.
static __device__ void multiply(const bf16 *Ab, const bf16 *x, int ld, int columns,
                                bf16 *y, int64_t stride, int len)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = warp / 4 * 16;
    for (int c = warp % 4 * 16; c < columns; c += 64) {
        float d[2][4] = {};
        for (int p = 0; p <= r; p += 16) {
            uint32_t a[4], b[4];
            ldmatrix_x4(a, Ab + r * (CHUNK + PAD) + p
                               + ldmatrix_offset_a(lane, CHUNK + PAD));
            ldmatrix_x4_trans(b, x + p * ld + c + ldmatrix_offset_a(lane, ld));
            mma_m16n16k16(d, a, b);
        }
        for (int h = 0; h < 4; h++) {
            const int i = r + lane / 4 + h % 2 * 8, at = c + h / 2 * 8 + lane % 4 * 2;
            const float *o = d[h / 2] + h % 2 * 2;
            if (i < len) *(uint32_t *)(y + i * stride + at) = pack_bf16x2(o[0], o[1]);
        }
    }
}

// Loads q, k and G of a chunk. Past the chunk's end, rows of q and k become 0, and rows
// of G repeat the last row.
template <int K>
static __device__ void load_chunk(const struct kcp_wy &a, struct token_range z, int n,
                                  struct wy_storage<K> &s)
{
    const int m = n / (a.HV / a.H);
    cp_async_rows<K>(s.q[0], in<bf16>(a.q, z.t, a.H, m, K), (int64_t)a.H * K, z.len);
    cp_async_rows<K>(s.k[0], in<bf16>(a.k, z.t, a.H, m, K), (int64_t)a.H * K, z.len);
    for (int at = threadIdx.x; at < CHUNK * K / 4 && a.KG > 1; at += blockDim.x) {
        const int i = at / (K / 4), t = i < z.len ? i : z.len - 1, d = at % (K / 4) * 4;
        cp_async_16(&s.G[i][d], in<float>(a.G, z.t + t, a.HV, n, K) + d, 1);
    }
    cp_async_commit();
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
        const int t = i < z.len ? i : z.len - 1;
        s.beta[i] = i < z.len ? in<float>(a.beta, z.t + t, 1, 0, a.HV)[n] : 0.0f;
        if (a.KG == 1) s.G[i][0] = gate(a, z.t + t, n, 0);
    }
    for (int at = threadIdx.x; at < CHUNK * LD; at += blockDim.x)
        s.L[0][at] = s.A[0][at] = 0.0f;
}

template <int K>
static __global__ __launch_bounds__(THREADS, K > 128 ? 1 : 2)
void wy(const struct kcp_wy a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct wy_storage<K> &s = *(struct wy_storage<K> *)shared;
    const int c = blockIdx.x, n = blockIdx.y, ld = a.V + PAD;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);

    load_chunk<K>(a, z, n, s);
    cp_async_wait<0>();
    __syncthreads();
    if (a.KG > 1) pairs_kda<K>(a, s);
    else pairs_gdn<K>(a, s);
    __syncthreads();
    if (threadIdx.x < CHUNK) invert_diagonal_blocks<LD>(s.L, s.A);
    else gated_rows<K>(a, z, n, s, CHUNK);
    store_block(a, z, n, a.Aqk, s.Aqk[0], CHUNK + PAD);
    __syncthreads();

    for (int at = threadIdx.x; at < CHUNK * a.V / 8; at += blockDim.x) {
        const int i = at / (a.V / 8), v = at % (a.V / 8) * 8;
        const int64_t t = z.t + (i < z.len ? i : 0);
        cp_async_16(s.v[0] + i * ld + v, in<bf16>(a.v, t, a.HV, n, a.V) + v, i < z.len);
    }
    cp_async_commit();
    join_blocks<16, LD>(s.L, s.A);
    join_blocks<32, LD>(s.L, s.A);
    store_block(a, z, n, a.A, s.A[0], LD);
    for (int at = threadIdx.x; at < CHUNK * CHUNK; at += blockDim.x) {
        const int i = at / CHUNK, j = at % CHUNK;
        s.Aqk[i][j] = j <= i ? s.A[i][j] * s.beta[j] : 0.0f;
    }
    cp_async_wait<0>();
    __syncthreads();
    multiply(s.Aqk[0], s.v[0], ld, a.V, out<bf16>(a.u, z.t, a.HV, n, a.V),
             (int64_t)a.HV * a.V, z.len);
    multiply(s.Aqk[0], s.k[0], K + PAD, K, out<bf16>(a.w, z.t, a.HV, n, K),
             (int64_t)a.HV * K, z.len);
}

template <int K>
static int wy_v2_halves_launch(const struct kcp_wy *a)
{
    const size_t bytes = sizeof(struct wy_storage<K>);
    return launch_shared(wy<K>, dim3(a->NC, a->HV), THREADS, bytes, a->stream, *a);
}

int v2_wy(void *args)
{
    const struct kcp_wy *a = (const struct kcp_wy *)args;
    const void *p[] = { a->q, a->k, a->v, a->G };
    const int K = a->K;
    if (a->C != CHUNK || (K != 64 && K != 128 && K != 256)) return KCP_NA;
    if (a->V % 32 || a->V > 2 * K) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NC) return KCP_OK;
    if (K == 256) return wy_v2_halves_launch<256>(a);
    return K == 64 ? wy_v2_halves_launch<64>(a) : wy_v2_halves_launch<128>(a);
}

KCP_VARIANT(wy_v2_halves) = {
    "03_wy", "v2_halves", "tensor cores: recursive halving of the triangle",
    KCP_BF16, KCP_DEVICE, "K 64, 128, 256, V a multiple of 32 up to 2 K, C 64", v2_wy,
    NULL };
