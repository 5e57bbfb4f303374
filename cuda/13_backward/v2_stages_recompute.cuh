// v2_stages_recompute.cuh -- recomputes G, u, w, kg, qg from the saved A.
// Book: chapter 13, "Code: kernels".
#include "v2_stages_recompute_rows.cuh"

// Computes G, u, w, and for KDA kg and qg, as in chapters 02 and 03. The scores and the
// inverse are not needed, because forward saved A. One product gives [w | u] = A [beta
// k~ | beta v], with k~ = exp2(G) k.
//
// Bound: memory. Per token and head, the kernel reads q, k, v, g (8 K bytes), A (2 C)
// and beta (4), and writes G (4 K) and u, w, kg, qg (8 K). At K = V = 128, this is 2692
// bytes, or 0.49 ms at 4.3 TB/s for 8192 tokens of 96 heads. The kernels of 02 and 03
// take 1.8 ms. A block issues all reads at once: g to registers, other arrays to shared
// memory. The phases of an SM's three blocks overlap. For KDA, a thread processes K/16
// tokens of four channels. A block has four barriers: after copies and partial sums
// arrive, after X is stored, after X has been read, and after [w | u] is stored.

// Computes X <- A X, with A lower triangular. A warp computes 16 rows and half of the
// columns, in two passes.
template <int K, int V>
static __device__ void times_A(struct recompute_storage<K, V> &s)
{
    const int W = K + V, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int r = warp / 2 * 16, c0 = warp % 2 * (W / 2);
    uint32_t y[W / 16][2];
    #pragma unroll
    for (int h = 0; h < W / 16; h += W / 32) {
        float d[W / 32][4] = {};
        for (int p = 0; p <= r; p += 16) {
            uint32_t a[4], b[4];
            ldmatrix_x4(a, &s.A[r][p] + ldmatrix_offset_a(lane, CHUNK + PAD));
            #pragma unroll
            for (int c = 0; c < W / 64; c++) {
                ldmatrix_x4_trans(b, &s.X[p][c0 + h * 8 + c * 16]
                                         + ldmatrix_offset_a(lane, W + PAD));
                mma_m16n16k16(d + 2 * c, a, b);
            }
        }
        #pragma unroll
        for (int c = 0; c < W / 32; c++) {
            y[h + c][0] = pack_bf16x2(d[c][0], d[c][1]);
            y[h + c][1] = pack_bf16x2(d[c][2], d[c][3]);
        }
    }
    __syncthreads();
    #pragma unroll
    for (int c = 0; c < W / 16; c++) {
        uint32_t *to = (uint32_t *)&s.X[r + lane / 4][c0 + c * 8 + lane % 4 * 2];
        to[0] = y[c][0];
        to[8 * (W + PAD) / 2] = y[c][1];
    }
}

// Loads A, KDA's q, and [k | v] into X. Rows past the chunk's end become 0.
template <int K, int V>
static __device__ void load_rows(const struct kcp_wy &a, struct token_range z, int n,
                                 struct recompute_storage<K, V> &s)
{
    const int m = n / (a.HV / a.H);
    const int64_t H = a.H, HV = a.HV;
    const bf16 *k = in<bf16>(a.k, z.t, a.H, m, K), *v = in<bf16>(a.v, z.t, a.HV, n, V);
    cp_async_rows<CHUNK>(s.A[0], in<bf16>(a.A, z.t, a.HV, n, CHUNK), HV * CHUNK, z.len);
    if (a.model == KCP_KDA)
        cp_async_rows<K>(s.q[0], in<bf16>(a.q, z.t, a.H, m, K), H * K, z.len);
    for (int at = threadIdx.x; at < CHUNK * (K + V) / 8; at += 256) {
        const int t = at / ((K + V) / 8), d = at % ((K + V) / 8) * 8, here = t < z.len;
        const int64_t row = here ? t : 0;
        cp_async_16(&s.X[t][d], d < K ? k + row * H * K + d : v + row * HV * V + d - K,
                    here);
    }
    cp_async_commit();
    for (int t = threadIdx.x; t < CHUNK; t += 256)
        s.beta[t] = t < z.len ? in<float>(a.beta, z.t + t, 1, 0, a.HV)[n] : 0.0f;
}

template <int K, int V>
static __global__ __launch_bounds__(256, 3) void recompute_rows(const struct kcp_gate f,
                                                            const struct kcp_wy a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct recompute_storage<K, V> &s = *(struct recompute_storage<K, V> *)shared;
    const int n = blockIdx.x % a.HV, c = blockIdx.x / a.HV;
    const struct token_range z = chunk_tokens(a, ((const int *)a.sc)[c], c);

    load_rows<K, V>(a, z, n, s);
    if (a.model == KCP_GDN) gate_rows_gdn<K, V>(f, a, z, n, s);
    else gate_rows_kda<K, V>(f, a, z, n, s);
    for (int at = threadIdx.x; at < CHUNK * V / 4; at += 256) {
        const int t = at / (V / 4), d = at % (V / 4) * 4;
        uint2 *v = (uint2 *)&s.X[t][K + d];
        float y[4];
        unpack4(y, *v);
        for (int e = 0; e < 4; e++) y[e] *= s.beta[t];
        *v = pack4(y);
    }
    __syncthreads();
    times_A<K, V>(s);
    __syncthreads();
    for (int at = threadIdx.x; at < z.len * (K + V) / 8; at += 256) {
        const int t = at / ((K + V) / 8), d = at % ((K + V) / 8) * 8;
        bf16 *to = d < K ? out<bf16>(a.w, z.t + t, a.HV, n, K) + d
                         : out<bf16>(a.u, z.t + t, a.HV, n, V) + d - K;
        *(uint4 *)to = *(const uint4 *)&s.X[t][d];
    }
}

template <int K, int V>
static int launch_recompute(const struct kcp_gate *f, const struct kcp_wy *a)
{
    const size_t bytes = sizeof(struct recompute_storage<K, V>);
    return launch_shared(recompute_rows<K, V>, (unsigned)a->NC * a->HV, 256, bytes,
                         a->stream, *f, *a);
}

// Returns KCP_NA for unsupported shapes and for arrays not aligned to 16 bytes. The
// caller then runs the kernels of chapters 02 and 03 instead.
static int v2_recompute(const struct kcp_gate *f, const struct kcp_wy *a)
{
    const void *p[] = { f->g_raw, f->dt_bias, a->q, a->k, a->v, a->G, a->A, a->u, a->w,
                        a->kg, a->qg };
    const int K = a->K, V = a->V;
    if (a->C != CHUNK || (K != 64 && K != 128) || (V != 64 && V != 128)) return KCP_NA;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NC) return KCP_OK;
    if (K == 64 && V == 64) return launch_recompute<64, 64>(f, a);
    if (K == 64) return launch_recompute<64, 128>(f, a);
    return V == 64 ? launch_recompute<128, 64>(f, a) : launch_recompute<128, 128>(f, a);
}

static inline struct stages stages_v2_recompute(const void *args)
{
    struct stages t = stages_v2("13_backward", "v2_stages", args);
    char how[20] = "";
    if (t.path) kcp_path_word(t.path, "recompute", how, sizeof how);
    if (!strcmp(how, "one_kernel")) t.recompute = v2_recompute;
    return t;
}
