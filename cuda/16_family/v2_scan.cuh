// v2_scan.cuh -- DPLR's scan and its reverse: a token's two writes in one link.
// Book: chapter 16, "Tensor cores".
// Checked by: tests/16_family.c, through v2_tiles.cu.
// Next: v2_tiles.cu.
#ifndef KCP_16_V2_SCAN_CUH
#define KCP_16_V2_SCAN_CUH

#include "v2_back_room.cuh"

// Half of the form's rows are zeros for w, qg and Aqk. Chapter 04's v2 reads them and
// multiplies by them; here a link takes 32 tokens, x and v apart. Bound: latency. A
// head is one chain of T / 32 links of 76 tensor instructions a warp, 10 KiB each from
// shared memory; two links are on their way meanwhile. One barrier a link: its tiles
// have arrived, and nobody reads those of the link before.
enum { TOKENS = CHUNK / 2, STAGES = 3 };

// u and v are 64 columns; the reverse scan has dO in u's place.
template <int K>
struct link {
    bf16 w[TOKENS][K + PAD], q[TOKENS][K + PAD], k[TOKENS][K + PAD], b[TOKENS][K + PAD];
    bf16 Aqb_Aqk[TOKENS][CHUNK + PAD], u[TOKENS][64 + PAD], v[TOKENS][64 + PAD];
    float G[K];
};

template <int K, int reverse>
static __device__ void fetch_link(const struct family &x, struct span z, int n, int v0,
                                  struct link<K> *s)
{
    const struct kcp_family &a = x.a;
    const int64_t ld = (int64_t)a.HV * a.V;
    fetch_form<K, TOKENS>(x, z, n, 0, s->w[0], x.w);
    fetch_form<K, TOKENS>(x, z, n, 1, s->q[0], x.qg);
    fetch_form<K, TOKENS>(x, z, n, 1, s->k[0], x.kg);
    fetch_form<K, TOKENS>(x, z, n, 0, s->b[0], x.kg);
    fetch_form<CHUNK, TOKENS>(x, z, n, 1, s->Aqb_Aqk[0], x.Aqk);
    if (reverse) {
        fetch_rows<64, TOKENS>(s->u[0], in<bf16>(a.do_, z.t, a.HV, n, a.V) + v0, ld,
                               z.len);
    } else {
        fetch_rows<64, TOKENS>(s->u[0], in<bf16>(x.u, 2 * z.t, a.HV, n, a.V) + v0,
                               2 * ld, z.len);
        fetch_rows<64, TOKENS>(s->v[0], in<bf16>(a.v, z.t, a.HV, n, a.V) + v0, ld,
                               z.len);
    }
    if (threadIdx.x < K / 4)
        copy_async(s->G + threadIdx.x * 4,
                   in<float>(x.G, 2 * (z.t + z.len) - 1, a.HV, n, K) + threadIdx.x * 4,
                   1);
}

// S^T <- S^T exp2(G_last): columns i of the tiles.
template <int K>
static __device__ __forceinline__ void fade(float (*S)[4], const float *G)
{
    #pragma unroll
    for (int i = 0; i < K / 8; i++) {
        const float2 g = *(const float2 *)(G + i * 8 + threadIdx.x % 4 * 2);
        const float low = exp2_fast(g.x), high = exp2_fast(g.y);
        S[i][0] *= low, S[i][1] *= high, S[i][2] *= low, S[i][3] *= high;
    }
}

static __device__ __forceinline__ void pack_rows(uint32_t *a, const float (*x)[4])
{
    a[0] = pack(x[0][0], x[0][1]), a[1] = pack(x[0][2], x[0][3]);
    a[2] = pack(x[1][0], x[1][1]), a[3] = pack(x[1][2], x[1][3]);
}

// y^T [16,32] += x^T A^T, or x^T A when turned; A [32,32] lower triangular.
template <int turned>
static __device__ __forceinline__ void times_lower(float (*y)[4], const float (*x)[4],
                                                   const bf16 *A)
{
    const int lane = threadIdx.x % 32, ld = CHUNK + PAD;
    #pragma unroll
    for (int p = 0; p < 2; p++) {
        uint32_t a[4], b[4];
        pack_rows(a, x + 2 * p);
        #pragma unroll
        for (int c = turned ? 0 : p; c < (turned ? p + 1 : 2); c++) {
            if (turned)
                load_tiles_t(b, A + p * 16 * ld + c * 16 + tiles_down(lane, ld));
            else
                load_tiles(b, A + c * 16 * ld + p * 16 + tiles_across(lane, ld));
            mma(y[2 * c], a, b[0], b[1]), mma(y[2 * c + 1], a, b[2], b[3]);
        }
    }
}

// x = u - w S, o = scale qg S + Aqb x + Aqk v, S <- Lambda S + bg^T x + kg^T v.
template <int K>
static __device__ __forceinline__ void advance(const struct family &x, struct span z,
                                               int n, int v, const struct link<K> *s,
                                               float (*S)[4])
{
    const struct kcp_family &a = x.a;
    const int64_t ld = (int64_t)a.HV * a.V, at = n * (int64_t)a.V + v;
    const int back = a.pass == KCP_BACKWARD;
    float f[4][4], w[4][4], y[4][4] = {};

    //> kernel-link
    times_rows<K, 1, TOKENS>(y, S, s->w[0]);
    from_rows<TOKENS>(f, s->u[0] + v % 64, 64 + PAD);
    from_rows<TOKENS>(w, s->v[0] + v % 64, 64 + PAD);
    #pragma unroll
    for (int h = 0; h < 16; h++)
        f[h / 4][h % 4] -= y[h / 4][h % 4], y[h / 4][h % 4] = 0;
    if (back) {
        store_rows<4>((bf16 *)x.v_new + 2 * z.t * ld + at, 2 * ld, z.len, f);
    } else {
        times_rows<K, 1, TOKENS>(y, S, s->q[0]);
        #pragma unroll
        for (int h = 0; h < 16; h++) y[h / 4][h % 4] *= (float)a.scale;
        times_lower<0>(y, f, s->Aqb_Aqk[0]);
        times_lower<0>(y, w, s->Aqb_Aqk[0] + TOKENS);
        store_rows<4>((bf16 *)a.o + z.t * ld + at, ld, z.len, y);
    }
    fade<K>(S, s->G);
    add_rows_to<K, 1, TOKENS>(S, f, s->b[0]);
    add_rows_to<K, 1, TOKENS>(S, w, s->k[0]);
    //< kernel-link
}

// dx = bg dS + Aqb^T dO, dv = kg dS + Aqk^T dO; both rows of dU.
template <int K>
static __device__ __forceinline__ void two_writes(const struct family &x, struct span z,
                                                  int64_t at, const struct link<K> *s,
                                                  float (*f)[4], float (*w)[4],
                                                  const float (*d)[4], void *to)
{
    const int64_t ld = (int64_t)x.a.HV * x.a.V;
    bf16 *row = (bf16 *)to + 2 * z.t * ld + at;
    times_lower<1>(f, d, s->Aqb_Aqk[0]);
    times_lower<1>(w, d, s->Aqb_Aqk[0] + TOKENS);
    store_rows<4>(row, 2 * ld, z.len, f);
    store_rows<4>(row + ld, 2 * ld, z.len, w);
}

// dS <- Lambda dS + scale qg^T dO - w^T dx.
template <int K>
static __device__ __forceinline__ void retreat(const struct family &x, struct span z,
                                               int n, int v, const struct link<K> *s,
                                               float (*dS)[4])
{
    float f[4][4] = {}, w[4][4] = {}, d[4][4];
    times_rows<K, 1, TOKENS>(f, dS, s->b[0]);
    times_rows<K, 1, TOKENS>(w, dS, s->k[0]);
    from_rows<TOKENS>(d, s->u[0] + v % 64, 64 + PAD);
    two_writes(x, z, n * (int64_t)x.a.V + v, s, f, w, d, (void *)x.dU);
    #pragma unroll
    for (int h = 0; h < 16; h++)
        d[h / 4][h % 4] *= (float)x.a.scale, f[h / 4][h % 4] = -f[h / 4][h % 4];
    fade<K>(dS, s->G);
    add_rows_to<K, 1, TOKENS>(dS, d, s->q[0]);
    add_rows_to<K, 1, TOKENS>(dS, f, s->w[0]);
}

// Chunk i of a stretch of tokens first .. end-1.
static __device__ __forceinline__ struct span link_at(int64_t first, int64_t end, int i)
{
    const int64_t t = first + (int64_t)i * TOKENS, left = end - t;
    return { t, left < TOKENS ? (int)left : TOKENS };
}

// 64 columns of a head's S or dS through all chunks of a stretch; keep [NC,HV,K,V] gets
// what each chunk begins (ends) with.
template <int K, int reverse>
static __global__ __launch_bounds__(128) void scan(const struct family x,
                                                   const float *from, float *to,
                                                   bf16 *keep)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct link<K> *s = (struct link<K> *)shared;
    const int z = blockIdx.x, n = blockIdx.y, v0 = blockIdx.z * 64;
    const int V = x.a.V, v = v0 + threadIdx.x / 32 * 16, c0 = x.cn[z];
    const int64_t first = x.cu[z] / 2, end = x.cu[z + 1] / 2;
    const int count = x.cn[z + 1] - c0;
    const int64_t state = ((int64_t)z * x.a.HV + n) * K * V + v;
    float S[K / 8][4];

    load_state<K>(S, from + state, 1, V);
    for (int i = 1 - STAGES; i < count; i++) {
        const int next = i + STAGES - 1, at = reverse ? count - 1 - i : i;
        if (i >= 0) {
            copies_wait<STAGES - 2>();
            __syncthreads();
        }
        if (next < count)
            fetch_link<K, reverse>(
                x, link_at(first, end, reverse ? count - 1 - next : next), n, v0,
                s + next % STAGES);
        copies_commit();
        if (i < 0) continue;
        const int64_t chunk = (int64_t)(c0 + at) * x.a.HV + n;
        if (keep) store_rows<K / 8>(keep + chunk * K * V + v, V, K, S);
        const struct span now = link_at(first, end, at);
        if (reverse) retreat<K>(x, now, n, v, s + i % STAGES, S);
        else advance<K>(x, now, n, v, s + i % STAGES, S);
    }
    store_state<K>(to + state, 1, V, S);
}

// dv_local of both rows, which chapter 11 reads where a sequence crosses a cut.
static __global__ __launch_bounds__(128) void local(const struct family x, void *to)
{
    __shared__ __align__(128) struct link<64> s;
    const struct span z = tokens(x, blockIdx.x);
    const int n = blockIdx.y, v0 = blockIdx.z * 64, v = v0 + threadIdx.x / 32 * 16;
    float f[4][4] = {}, w[4][4] = {}, d[4][4];
    fetch_form<CHUNK, TOKENS>(x, z, n, 1, s.Aqb_Aqk[0], x.Aqk);
    fetch_rows<64, TOKENS>(s.u[0], in<bf16>(x.a.do_, z.t, x.a.HV, n, x.a.V) + v0,
                           (int64_t)x.a.HV * x.a.V, z.len);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    from_rows<TOKENS>(d, s.u[0] + v % 64, 64 + PAD);
    two_writes(x, z, n * (int64_t)x.a.V + v, &s, f, w, d, to);
}

template <int K, int reverse>
static int scan_of(const struct family *x, const void *from, void *to, void *keep)
{
    const size_t bytes = STAGES * sizeof(struct link<K>);
    cudaFuncSetAttribute(scan<K, reverse>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    scan<K, reverse><<<dim3(x->a.NS, x->a.HV, x->a.V / 64), 128, bytes, x->a.stream>>>(
        *x, (const float *)from, (float *)to, (bf16 *)keep);
    return launched();
}

#endif
