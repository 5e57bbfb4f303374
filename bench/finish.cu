// finish.cu -- backward's last kernel alone: its error against double, and its time.
// Book: chapter 18, "Backward".
// Checked by: itself: status 1 where an error is above its limit.
// Next: ../cuda/18_hopper/backward/finish_kda_sm90.cu.
//
// Usage: kcp-finish [--times] [WORD]; WORD picks trials by a part of their name, =WORD
// the one of that name. The inputs of the kernel are drawn at random, h, dS, v_new and
// dv among them; the reference is the equations of the kernel's head on the same
// numbers, in double, pair by pair.
#include "cuda/18_hopper/backward/storage.cuh"
#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(cudaError_t e, int line)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "kcp-finish: line %d: %s\n", line, cudaGetErrorString(e));
    exit(2);
}

#define MUST(call) must(call, __LINE__)

enum { MOST_SEQUENCES = 8, SUMS = 12 };

enum regime { LIVE, SATURATED, BY_TURNS, DEEP, RESET };

struct trial {
    const char *name;
    enum kcp_model model;
    int K, H, HV;
    enum kcp_gate_form gate;
    enum kcp_beta_form beta;
    enum regime regime;
    int l2norm, lens[MOST_SEQUENCES];
    int poisoned; // the sequence that is NaN, or 0
};

static __device__ uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

// Uniform, of standard deviation 1.
static __device__ float draw(uint32_t seed, uint64_t i)
{
    const uint32_t x = mix(seed * 0x9e3779b9u ^ mix((uint32_t)i ^ (uint32_t)(i >> 32)));
    return ((int)x >> 8) * (1.7320508f / 8388608.0f);
}

template <class X>
static __global__ void fill(X *x, int64_t n, uint32_t seed, float times, float plus)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        x[i] = (X)(plus + times * draw(seed, i));
}

// The raw gate, a regime each.
static __global__ void fill_gate(bf16 *g, int64_t T, int W, int form, int regime,
                                 uint32_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < T * W;
         i += (int64_t)gridDim.x * blockDim.x) {
        const float x = draw(seed, i);
        const int turn = mix(seed + 1 + (uint32_t)(i / W)) & 1;
        const int raw = form == KCP_GATE_RAW;
        float y = raw ? -0.02f * fabsf(x) : -3.0f + x;
        if (regime == SATURATED || (regime == BY_TURNS && turn)) y = raw ? -5.0f : 9.0f;
        if (regime == BY_TURNS && !turn) y = raw ? -0.003f : -9.0f;
        if (regime == BY_TURNS && turn && form == KCP_GATE_SOFTPLUS) y = 3.5f;
        if (regime == DEEP) y = raw ? -14.0f + x : 14.0f + x;
        if (regime == RESET && mix(seed + 2 + (uint32_t)(i / W)) % 23 == 0) y = -1e30f;
        g[i] = (bf16)y;
    }
}

// |x| of rows: 1 / sqrt(sum x^2 + 1e-6), by chunks, 0 past the end.
template <class Args>
static __device__ struct token_range range_of(const Args &a, int c)
{
    return chunk_tokens(a, ((const int *)a.sc)[c], c);
}

static __global__ void norms(struct kcp_backward a, const bf16 *x, float *rstd)
{
    const int c = blockIdx.x, m = blockIdx.y, i = threadIdx.x;
    const struct token_range z = range_of(a, c);
    double sum = 0;
    for (int d = 0; d < a.K && i < z.len; d++) {
        const double y = (float)x[((z.t + i) * a.H + m) * a.K + d];
        sum += y * y;
    }
    const float r = a.l2norm ? (float)(1 / sqrt(sum + 1e-6)) : 1.0f;
    rstd[((int64_t)c * a.H + m) * CHUNK + i] = i < z.len ? r : 0.0f;
}

static __device__ double beta_at(const struct kcp_backward &a, int64_t t, int n)
{
    const double x = (float)((const bf16 *)a.beta_raw)[t * a.HV + n];
    if (a.beta_form == KCP_BETA_RAW) return x;
    return (a.beta_form == KCP_BETA_SIGMOID2 ? 2 : 1) / (1 + exp(-x));
}

static __global__ void betas(struct kcp_backward a, float *beta)
{
    const int c = blockIdx.x, n = blockIdx.y, i = threadIdx.x;
    const struct token_range z = range_of(a, c);
    beta[((int64_t)c * a.HV + n) * CHUNK + i] =
        i < z.len ? (float)beta_at(a, z.t + i, n) : 0.0f;
}

// v_new past a chunk's end is 0.
static __global__ void clear_past_end(struct kcp_backward a, unsigned char *v_new)
{
    const int c = blockIdx.x, n = blockIdx.y, tiles = a.V / 64;
    const struct token_range z = range_of(a, c);
    for (int j = 0; j < tiles; j++)
        for (int at = z.len * 128 + threadIdx.x; at < TILE_BYTES; at += blockDim.x)
            v_new[(((int64_t)c * a.HV + n) * tiles + j) * TILE_BYTES + at] = 0;
}

// ---- the reference

static __device__ double packed(const void *x, int64_t tile, int row, int column)
{
    const char *at = (const char *)x + tile * TILE_BYTES
                     + swizzle128_offset(row, column / 8) + column % 8 * 2;
    return (float)*(const bf16 *)at;
}

static __device__ double gate_at(const struct kcp_backward &a, int64_t t, int n, int i,
                                 double dg, double *dx, double *dA)
{
    const double x = (float)((const bf16 *)a.g_raw)[(t * a.HV + n) * a.KG + i];
    const double e = a.A_log ? exp((double)((const float *)a.A_log)[n]) : 1;
    const double y =
        x + (a.dt_bias ? (double)((const float *)a.dt_bias)[n * a.KG + i] : 0);
    if (a.gate == KCP_GATE_BOUNDED) {
        const double s = 1 / (1 + exp(-e * y)), s1 = 1 / (1 + exp(e * y));
        *dx = dg * a.lower_bound * s * s1 * e;
        *dA = *dx * y;
        return a.lower_bound * s;
    }
    if (a.gate == KCP_GATE_SOFTPLUS) {
        const double g = -e * (fmax(y, 0.0) + log1p(exp(-fabs(y))));
        *dx = -e / (1 + exp(-y)) * dg;
        *dA = dg * g;
        return g;
    }
    *dx = dg;
    *dA = 0;
    return x;
}

// A block a chunk and query/key head. mine [SUMS] are sums of squares: of the error and
// of the reference, for dq dk dg dbeta dA ddt. scratch: 4 CHUNK^2 + 4 CHUNK K doubles.
static __global__ void compare(struct backward_params x, double *scratch, double *sums)
{
    const struct kcp_backward &a = x.a;
    const int c = blockIdx.x, m = blockIdx.y, K = a.K, V = a.V, tiles = V / 64;
    const int64_t pair = (int64_t)c * a.H + m;
    const struct token_range z = range_of(a, c);
    double *A = scratch
                + (blockIdx.x * (int64_t)gridDim.y + m)
                      * (2 * CHUNK * CHUNK + 5 * CHUNK * K + CHUNK);
    double *B = A + CHUNK * CHUNK, *G = B + CHUNK * CHUNK, *yq = G + CHUNK * K;
    double *yk = yq + CHUNK * K, *dG = yk + CHUNK * K, *of_gate = dG + CHUNK * K;
    double mine[SUMS] = {};
    const bf16 *q = (const bf16 *)a.q_raw, *k = (const bf16 *)a.k_raw;
    const bf16 *dO = (const bf16 *)a.do_, *dv = (const bf16 *)a.dv;
    const float *nq = x.rstd_q + pair * CHUNK, *nk = x.rstd_k + pair * CHUNK;
    const int group = a.HV / a.H;
    for (int e = threadIdx.x; e < CHUNK * K; e += blockDim.x) yq[e] = yk[e] = 0;
    __syncthreads();
    for (int n = m * group; n < (m + 1) * group; n++) {
        const int64_t head = (int64_t)c * a.HV + n;
        for (int e = threadIdx.x; e < CHUNK * CHUNK; e += blockDim.x) {
            const int i = e / CHUNK, j = e % CHUNK;
            double X = 0, Y = 0;
            if (i < z.len && j <= i)
                for (int v = 0; v < V; v++) {
                    const double w = packed(x.v_new, head * tiles + v / 64, j, v % 64);
                    const int64_t at = ((z.t + i) * a.HV + n) * V + v;
                    X += (double)(float)dO[at] * w;
                    Y += (double)(float)dv[at] * w;
                }
            A[e] = i < z.len ? a.scale * nq[i] * nk[j] * X : 0;
            B[e] = i < z.len ? -(double)nk[i] * nk[j] * Y : 0;
            if (i != j || i >= z.len) continue;
            const double b = beta_at(a, z.t + i, n);
            double want = Y / (b * b);
            if (a.beta_form == KCP_BETA_SIGMOID) want *= b * (1 - b);
            if (a.beta_form == KCP_BETA_SIGMOID2) want *= b * (1 - b / 2);
            const double got = ((const float *)a.dbeta_raw)[(z.t + i) * a.HV + n];
            mine[6] += (got - want) * (got - want);
            mine[7] += want * want;
        }
        __syncthreads();
        for (int d = threadIdx.x; d < K; d += blockDim.x) {
            double sum = 0, dx, dA, tail = 0;
            for (int i = 0; i < CHUNK; i++) {
                const int of = a.KG == 1 ? 0 : d;
                const double g =
                    i < z.len ? gate_at(a, z.t + i, n, of, 0, &dx, &dA) : 0;
                G[i * K + d] = sum += fmax(g, -750.0) * 1.4426950408889634;
            }
            const double last = sum;
            for (int v = 0; v < V; v++)
                tail += packed(x.h, (head * (K / 64) + d / 64) * tiles + v / 64, d % 64,
                               v % 64)
                        * packed(x.dS, (head * (K / 64) + d / 64) * tiles + v / 64,
                                 d % 64, v % 64);
            tail *= exp2(last);
            for (int i = 0; i < z.len; i++) {
                double P = 0, Q = 0, W = 0, col = 0;
                for (int v = 0; v < V; v++) {
                    const int64_t tile = (head * (K / 64) + d / 64) * tiles + v / 64;
                    const int64_t at = ((z.t + i) * a.HV + n) * V + v;
                    const double h = packed(x.h, tile, d % 64, v % 64);
                    P += h * (double)(float)dO[at];
                    Q += h * (double)(float)dv[at];
                    W += packed(x.dS, tile, d % 64, v % 64)
                         * packed(x.v_new, head * tiles + v / 64, i, v % 64);
                }
                const double Gi = G[i * K + d];
                double rq = exp2(Gi) * a.scale * nq[i] * P;
                double rk = -exp2(Gi) * nk[i] * Q;
                const double star = exp2(last - Gi) * nk[i] * W;
                const int64_t row = (z.t * a.H + m) * K + d, step = (int64_t)a.H * K;
                for (int j = 0; j < i; j++) {
                    const double y =
                        exp2(Gi - G[j * K + d]) * (double)(float)k[row + j * step];
                    rq += A[i * CHUNK + j] * y;
                    rk += B[i * CHUNK + j] * y;
                }
                for (int j = i + 1; j < z.len; j++)
                    col += exp2(G[j * K + d] - Gi)
                           * (A[j * CHUNK + i] * (double)(float)q[row + j * step]
                              + B[j * CHUNK + i] * (double)(float)k[row + j * step]);
                const double qi = (float)q[row + i * step];
                const double ki = (float)k[row + i * step];
                const double D = A[i * CHUNK + i];
                yq[i * K + d] += rq + D * ki;
                yk[i * K + d] += rk + col + star + D * qi;
                dG[i * K + d] = qi * rq + ki * rk - ki * col;
                if (i == z.len - 1) continue;
                dG[i * K + d] -= ki * star;
                tail += ki * star;
            }
            dG[(z.len - 1) * K + d] += tail;
            for (int i = z.len - 2; i >= 0; i--) dG[i * K + d] += dG[(i + 1) * K + d];
        }
        __syncthreads();
        if (a.KG == 1) {
            for (int i = threadIdx.x; i < z.len; i += blockDim.x) {
                of_gate[i] = 0;
                for (int d = 0; d < K; d++) of_gate[i] += dG[i * K + d];
            }
            __syncthreads();
        }
        for (int d = threadIdx.x; d < a.KG; d += blockDim.x) {
            double sum_A = 0, sum_dt = 0;
            for (int i = 0; i < z.len; i++) {
                double dx, dA;
                gate_at(a, z.t + i, n, d, a.KG == 1 ? of_gate[i] : dG[i * K + d], &dx,
                        &dA);
                const double got =
                    ((const float *)a.dg_raw)[((z.t + i) * a.HV + n) * a.KG + d];
                mine[4] += (got - dx) * (got - dx);
                mine[5] += dx * dx;
                sum_A += dA;
                sum_dt += dx;
            }
            if (a.gate == KCP_GATE_RAW) continue;
            const double got_A = x.dA_part[head * a.KG + d];
            const double got_dt = x.ddt_part[head * a.KG + d];
            mine[8] += (got_A - sum_A) * (got_A - sum_A);
            mine[9] += sum_A * sum_A;
            mine[10] += (got_dt - sum_dt) * (got_dt - sum_dt);
            mine[11] += sum_dt * sum_dt;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < z.len; i += blockDim.x) {
        const int64_t row = ((z.t + i) * a.H + m) * K;
        double dot_q = 0, dot_k = 0;
        for (int d = 0; d < K && a.l2norm; d++) {
            dot_q += (double)(float)q[row + d] * yq[i * K + d];
            dot_k += (double)(float)k[row + d] * yk[i * K + d];
        }
        dot_q *= (double)nq[i] * nq[i];
        dot_k *= (double)nk[i] * nk[i];
        for (int d = 0; d < K; d++) {
            const double want_q = yq[i * K + d] - dot_q * (double)(float)q[row + d];
            const double want_k = yk[i * K + d] - dot_k * (double)(float)k[row + d];
            const double got_q = (float)((const bf16 *)a.dq_raw)[row + d];
            const double got_k = (float)((const bf16 *)a.dk_raw)[row + d];
            mine[0] += (got_q - want_q) * (got_q - want_q);
            mine[1] += want_q * want_q;
            mine[2] += (got_k - want_k) * (got_k - want_k);
            mine[3] += want_k * want_k;
        }
    }
    __shared__ double all[128][SUMS];
    for (int e = 0; e < SUMS; e++) all[threadIdx.x][e] = mine[e];
    __syncthreads();
    if (threadIdx.x < SUMS) {
        double sum = 0;
        for (int i = 0; i < (int)blockDim.x; i++) sum += all[i][threadIdx.x];
        sums[pair * SUMS + threadIdx.x] = sum;
    }
}

// ---- a trial

static void *device_bytes(size_t bytes)
{
    void *p;
    MUST(cudaMalloc(&p, bytes ? bytes : 256));
    MUST(cudaMemset(p, 0xff, bytes ? bytes : 256));
    return p;
}

template <class X>
static X *drawn(int64_t n, uint32_t seed, float times, float plus)
{
    X *x = (X *)device_bytes(n * sizeof(X));
    fill<<<2048, 256>>>(x, n, seed, times, plus);
    return x;
}

static int *on_device(const int *x, int n)
{
    int *y = (int *)device_bytes(n * sizeof(int));
    MUST(cudaMemcpy(y, x, n * sizeof(int), cudaMemcpyHostToDevice));
    return y;
}

struct inputs {
    struct backward_params x;
    void *out[6];
    size_t bytes[6];
    int chunks_of[MOST_SEQUENCES + 1];
};

static void make_grid(struct kcp_backward *a, const struct trial *w, int *cn)
{
    int cu[MOST_SEQUENCES + 1] = {}, n = 0;
    for (; n < MOST_SEQUENCES && w->lens[n]; n++) {
        cu[n + 1] = cu[n] + w->lens[n];
        cn[n + 1] = cn[n] + (w->lens[n] + CHUNK - 1) / CHUNK;
    }
    int *sc = (int *)malloc(cn[n] * sizeof(int));
    for (int s = 0; s < n; s++)
        for (int c = cn[s]; c < cn[s + 1]; c++) sc[c] = s;
    a->T = cu[n];
    a->NS = a->N = n;
    a->NC = cn[n];
    a->cu = on_device(cu, n + 1);
    a->cn = on_device(cn, n + 1);
    a->sc = on_device(sc, cn[n]);
    free(sc);
}

static struct inputs make_inputs(const struct trial *w)
{
    struct inputs y = {};
    struct kcp_backward *a = &y.x.a;
    make_grid(a, w, y.chunks_of);
    a->H = w->H;
    a->HV = w->HV;
    a->K = a->V = w->K;
    a->C = CHUNK;
    a->KG = w->model == KCP_GDN ? 1 : w->K;
    a->model = w->model;
    a->gate = w->gate;
    a->beta_form = w->beta;
    a->l2norm = w->l2norm;
    a->scale = 1 / sqrt((double)w->K);
    a->lower_bound = -5;
    const int64_t qk = a->T * a->H * a->K, vo = a->T * a->HV * a->V;
    const int64_t g = a->T * a->HV * a->KG, heads = (int64_t)a->NC * a->HV;
    const float size = w->l2norm ? 0.7f : 1 / sqrtf(w->K);
    a->q_raw = drawn<bf16>(qk, 1, size, 0);
    a->k_raw = drawn<bf16>(qk, 2, size, 0);
    bf16 *gate = (bf16 *)device_bytes(g * 2);
    fill_gate<<<2048, 256>>>(gate, a->T, a->HV * a->KG, w->gate, w->regime, 3);
    a->g_raw = gate;
    a->beta_raw = w->beta == KCP_BETA_RAW ? drawn<bf16>(a->T * a->HV, 4, 0.2f, 0.5f)
                                          : drawn<bf16>(a->T * a->HV, 4, 1.0f, 0);
    a->A_log = drawn<float>(a->HV, 5, 0.3f, 0.2f);
    a->dt_bias = drawn<float>(a->HV * a->KG, 6, 0.2f, 0);
    a->do_ = drawn<bf16>(vo, 7, 0.5f, 0);
    a->dv = drawn<bf16>(vo, 8, 0.1f, 0);
    y.x.v_new = drawn<bf16>(heads * CHUNK * a->V, 9, 0.5f, 0);
    y.x.h = drawn<bf16>(heads * a->K * a->V, 10, 0.2f, 0);
    y.x.dS = drawn<bf16>(heads * a->K * a->V, 11, 0.2f, 0);
    float *rstd_q = (float *)device_bytes((size_t)a->NC * a->H * CHUNK * 4);
    float *rstd_k = (float *)device_bytes((size_t)a->NC * a->H * CHUNK * 4);
    float *beta = (float *)device_bytes(heads * CHUNK * 4);
    clear_past_end<<<dim3(a->NC, a->HV), 128>>>(*a, (unsigned char *)y.x.v_new);
    norms<<<dim3(a->NC, a->H), CHUNK>>>(*a, (const bf16 *)a->q_raw, rstd_q);
    norms<<<dim3(a->NC, a->H), CHUNK>>>(*a, (const bf16 *)a->k_raw, rstd_k);
    betas<<<dim3(a->NC, a->HV), CHUNK>>>(*a, beta);
    y.x.rstd_q = rstd_q;
    y.x.rstd_k = rstd_k;
    y.x.beta = beta;
    const size_t bytes[6] = { (size_t)qk * 2,
                              (size_t)qk * 2,
                              (size_t)g * 4,
                              (size_t)a->T * a->HV * 4,
                              (size_t)heads * a->KG * 4,
                              (size_t)heads * a->KG * 4 };
    memcpy(y.bytes, bytes, sizeof bytes);
    for (int i = 0; i < 6; i++) y.out[i] = device_bytes(bytes[i]);
    a->dq_raw = y.out[0];
    a->dk_raw = y.out[1];
    a->dg_raw = y.out[2];
    a->dbeta_raw = y.out[3];
    y.x.dA_part = (float *)y.out[4];
    y.x.ddt_part = (float *)y.out[5];
    y.x.scratch = device_bytes(backward_finish_scratch(a));
    if (w->poisoned > 0) { // one sequence's rows are NaN everywhere
        int cu[MOST_SEQUENCES + 1];
        MUST(cudaMemcpy(cu, a->cu, (a->NS + 1) * sizeof(int), cudaMemcpyDeviceToHost));
        const int64_t t = cu[w->poisoned], n = cu[w->poisoned + 1] - t;
        const int64_t rows[5] = { (int64_t)a->H * a->K, (int64_t)a->H * a->K,
                                  (int64_t)a->HV * a->KG, (int64_t)a->HV * a->V,
                                  (int64_t)a->HV * a->V };
        const void *of[5] = { a->q_raw, a->k_raw, a->g_raw, a->do_, a->dv };
        for (int i = 0; i < 5; i++)
            MUST(cudaMemset((bf16 *)of[i] + t * rows[i], 0xff, n * rows[i] * 2));
    }
    MUST(cudaDeviceSynchronize());
    return y;
}

static void free_inputs(struct inputs *y)
{
    struct kcp_backward *a = &y->x.a;
    const void *p[] = { a->q_raw,   a->k_raw,    a->g_raw,    a->beta_raw, a->A_log,
                        a->dt_bias, a->do_,      a->dv,       y->x.v_new,  y->x.h,
                        y->x.dS,    y->x.rstd_q, y->x.rstd_k, y->x.beta,   y->x.scratch,
                        a->cu,      a->cn,       a->sc };
    for (const void *x : p) cudaFree((void *)x);
    for (void *x : y->out) cudaFree(x);
}

static int processors_here(void)
{
    int n = 0;
    MUST(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    return n;
}

// The largest error of any head, tensor by tensor; 1 if one is above its limit.
static int judge(const struct trial *w)
{
    static const char *name[6] = { "dq", "dk", "dg", "dbeta", "dA", "ddt" };
    static const double limit[6] = { 8e-3, 8e-3, 2e-2, 2e-2, 2e-2, 2e-2 };
    printf("%-34s", w->name);
    fflush(stdout);
    struct inputs y = make_inputs(w);
    const struct kcp_backward *a = &y.x.a;
    const int64_t pairs = (int64_t)a->NC * a->H;
    double *scratch = (double *)device_bytes(
        pairs * (2 * CHUNK * CHUNK + 5 * CHUNK * a->K + CHUNK) * sizeof(double));
    double *sums = (double *)device_bytes(pairs * SUMS * sizeof(double));
    double *got = (double *)malloc(pairs * SUMS * sizeof(double));
    const int status = backward_finish(&y.x, processors_here());
    MUST(cudaDeviceSynchronize());
    void *first[6];
    int same = 1, bad = status != KCP_OK;
    for (int i = 0; i < 6; i++) {
        first[i] = malloc(y.bytes[i]);
        MUST(cudaMemcpy(first[i], y.out[i], y.bytes[i], cudaMemcpyDeviceToHost));
        MUST(cudaMemset(y.out[i], 0xff, y.bytes[i]));
    }
    backward_finish(&y.x, processors_here());
    MUST(cudaDeviceSynchronize());
    compare<<<dim3(a->NC, a->H), 128>>>(y.x, scratch, sums);
    MUST(cudaDeviceSynchronize());
    for (int i = 0; i < 6; i++) {
        void *again = malloc(y.bytes[i]);
        MUST(cudaMemcpy(again, y.out[i], y.bytes[i], cudaMemcpyDeviceToHost));
        same &= !memcmp(first[i], again, y.bytes[i]);
        free(again);
        free(first[i]);
    }
    MUST(cudaMemcpy(got, sums, pairs * SUMS * sizeof(double), cudaMemcpyDeviceToHost));
    double worst[6] = {};
    for (int m = 0; m < a->H; m++)
        for (int e = 0; e < 6; e++) {
            double error = 0, ref = 0;
            for (int c = 0; c < a->NC; c++) {
                if (w->poisoned > 0 && c >= y.chunks_of[w->poisoned]
                    && c < y.chunks_of[w->poisoned + 1])
                    continue;
                error += got[((int64_t)c * a->H + m) * SUMS + 2 * e];
                ref += got[((int64_t)c * a->H + m) * SUMS + 2 * e + 1];
            }
            const double rel = ref > 0 ? sqrt(error / ref) : sqrt(error);
            if (!(rel <= worst[e])) worst[e] = rel;
        }
    for (int e = 0; e < 6; e++) {
        if (e >= 4 && w->gate == KCP_GATE_RAW) continue;
        printf(" %s %.1e", name[e], worst[e]);
        bad |= !(worst[e] <= limit[e]);
    }
    printf(" | %s%s\n", same ? "same bits twice" : "OTHER BITS THE SECOND TIME",
           bad ? " FAIL" : " PASS");
    fflush(stdout);
    cudaFree(scratch);
    cudaFree(sums);
    free(got);
    free_inputs(&y);
    return bad || !same;
}

static void time_it(const struct trial *w)
{
    enum { REPEATS = 21 };
    struct inputs y = make_inputs(w);
    float ms[REPEATS];
    cudaEvent_t begin, end;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    for (int i = -3; i < REPEATS; i++) {
        MUST(cudaEventRecord(begin));
        backward_finish(&y.x, processors_here());
        MUST(cudaEventRecord(end));
        MUST(cudaEventSynchronize(end));
        if (i >= 0) MUST(cudaEventElapsedTime(&ms[i], begin, end));
    }
    std::sort(ms, ms + REPEATS);
    printf("time %-29s %.3f ms (%.3f .. %.3f)\n", w->name, ms[REPEATS / 2], ms[0],
           ms[REPEATS - 1]);
    fflush(stdout);
    free_inputs(&y);
}

#define KDA KCP_KDA
#define GDN KCP_GDN
#define BOUNDED KCP_GATE_BOUNDED
#define SOFTPLUS KCP_GATE_SOFTPLUS
#define RAW KCP_GATE_RAW
#define SIGMOID KCP_BETA_SIGMOID
#define SIGMOID2 KCP_BETA_SIGMOID2
#define GIVEN KCP_BETA_RAW
#define PACKED { 100, 64, 77, 1, 15, 129, 63 }
enum { PLAIN, NORMED }; // are q and k normalised?
static const struct trial trials[] = {
    { "full chunks", KDA, 128, 3, 3, BOUNDED, SIGMOID, LIVE, NORMED, { 512 } },
    { "saturated", KDA, 128, 3, 3, BOUNDED, SIGMOID, SATURATED, NORMED, { 512 } },
    { "tokens by turns", KDA, 128, 3, 3, BOUNDED, SIGMOID, BY_TURNS, NORMED, { 512 } },
    { "one token more", KDA, 128, 3, 3, BOUNDED, SIGMOID2, LIVE, NORMED, { 513 } },
    { "one token less, beta given",
      KDA, 128, 3, 3, BOUNDED, GIVEN, LIVE, NORMED, { 511 } },
    { "packed, a neighbour is NaN",
      KDA, 128, 3, 3, BOUNDED, SIGMOID, BY_TURNS, NORMED, PACKED, 2 },
    { "no norm", KDA, 128, 2, 2, BOUNDED, SIGMOID, LIVE, PLAIN, { 300 } },
    { "two value heads", KDA, 128, 2, 4, BOUNDED, SIGMOID, LIVE, NORMED, { 300, 129 } },
    { "four value heads, many chunks",
      KDA, 128, 3, 12, BOUNDED, SIGMOID, LIVE, NORMED, { 8192 } },
    { "softplus", KDA, 128, 3, 3, SOFTPLUS, SIGMOID, LIVE, NORMED, { 300 } },
    { "softplus, deep", KDA, 128, 3, 3, SOFTPLUS, SIGMOID, DEEP, NORMED, { 300 } },
    { "softplus by turns, two heads",
      KDA, 128, 2, 4, SOFTPLUS, SIGMOID, BY_TURNS, NORMED, { 300 } },
    { "raw", KDA, 128, 3, 3, RAW, SIGMOID, LIVE, NORMED, { 300 } },
    { "raw at -5", KDA, 128, 3, 3, RAW, SIGMOID, SATURATED, NORMED, { 300 } },
    { "raw, deep", KDA, 128, 3, 3, RAW, SIGMOID, DEEP, NORMED, { 300, 65 } },
    { "raw, resets", KDA, 128, 2, 4, RAW, SIGMOID, RESET, NORMED, { 300, 65 } },
    { "64 wide", KDA, 64, 3, 3, BOUNDED, SIGMOID, LIVE, NORMED, { 512 } },
    { "64 wide, packed, two heads",
      KDA, 64, 2, 4, BOUNDED, SIGMOID, BY_TURNS, NORMED, PACKED, 2 },
    { "64 wide, softplus, deep",
      KDA, 64, 3, 3, SOFTPLUS, SIGMOID, DEEP, NORMED, { 300 } },
    { "64 wide, raw, resets", KDA, 64, 2, 4, RAW, SIGMOID, RESET, NORMED, { 8192 } },
    { "8192 x 96", KDA, 128, 96, 96, BOUNDED, SIGMOID, LIVE, NORMED, { 8192 } },
    // GDN: a gate a head
    { "GDN", GDN, 128, 3, 3, BOUNDED, SIGMOID, LIVE, NORMED, { 512 } },
    { "GDN, tokens by turns, two heads",
      GDN, 128, 2, 4, BOUNDED, SIGMOID2, BY_TURNS, NORMED, { 513 } },
    { "GDN, packed, a neighbour is NaN",
      GDN, 128, 2, 8, SOFTPLUS, SIGMOID, LIVE, NORMED, PACKED, 2 },
    { "GDN, softplus, deep", GDN, 128, 3, 3, SOFTPLUS, SIGMOID, DEEP, NORMED, { 300 } },
    { "GDN, raw, resets, no norm",
      GDN, 128, 2, 4, RAW, GIVEN, RESET, PLAIN, { 300, 65 } },
    { "GDN, 64 wide, two heads",
      GDN, 64, 2, 4, BOUNDED, SIGMOID, LIVE, NORMED, { 511 } },
    { "GDN, 64 wide, packed",
      GDN, 64, 2, 2, BOUNDED, SIGMOID, BY_TURNS, NORMED, PACKED, 2 },
    { "GDN, 32768, 2 and 8",
      GDN, 128, 2, 8, SOFTPLUS, SIGMOID, LIVE, NORMED, { 32768 } },
};

static const struct trial timed[] = {
    { "8192 x 96", KDA, 128, 96, 96, BOUNDED, SIGMOID, LIVE, NORMED, { 8192 } },
    { "8192 x 96, one token less",
      KDA, 128, 96, 96, BOUNDED, SIGMOID, LIVE, NORMED, { 8191 } },
    { "8192 x 96, saturated",
      KDA, 128, 96, 96, BOUNDED, SIGMOID, SATURATED, NORMED, { 8192 } },
    { "8192 x 96, softplus",
      KDA, 128, 96, 96, SOFTPLUS, SIGMOID, LIVE, NORMED, { 8192 } },
    { "8192 x 96, raw, deep", KDA, 128, 96, 96, RAW, SIGMOID, DEEP, NORMED, { 8192 } },
    { "8192 x 48 and 96", KDA, 128, 48, 96, BOUNDED, SIGMOID, LIVE, NORMED, { 8192 } },
    { "8192 x 96, 64 wide", KDA, 64, 96, 96, BOUNDED, SIGMOID, LIVE, NORMED, { 8192 } },
    { "GDN 32768, 16 and 32",
      GDN, 128, 16, 32, SOFTPLUS, SIGMOID, LIVE, NORMED, { 32768 } },
    { "GDN 8192, 16 and 32",
      GDN, 128, 16, 32, SOFTPLUS, SIGMOID, LIVE, NORMED, { 8192 } },
    { "GDN 8192 x 96", GDN, 128, 96, 96, SOFTPLUS, SIGMOID, LIVE, NORMED, { 8192 } },
};

// Trials whose name holds `word`, or is what stands behind its '='; all without one.
static int wanted(const struct trial *w, const char *word)
{
    if (word && word[0] == '=') return !strcmp(w->name, word + 1);
    return !word || strstr(w->name, word);
}

// Status 2: the words name no trial, one that is timed with --times.
static int refuse_words(int argc, char **argv, int only_times)
{
    const int first = 1 + only_times;
    const char *word = argc > first ? argv[first] : NULL;
    int n = 0;
    for (const struct trial &w : timed)
        if (wanted(&w, word)) n++;
    for (const struct trial &w : trials)
        if (!only_times && wanted(&w, word)) n++;
    if (argc <= first + 1 && n > 0) return 0;
    fprintf(stderr, "kcp-finish: found '%s', expected [--times] [=NAME, or a word of "
            "it]\n", argc > first + 1 ? argv[first + 1] : word);
    return 2;
}

int main(int argc, char **argv)
{
    int failed = 0, passed = 0;
    const int only_times = argc > 1 && !strcmp(argv[1], "--times");
    const char *word = argc > 1 + only_times ? argv[1 + only_times] : NULL;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-finish %s\n", kcp_version());
        return 0;
    }
    if (refuse_words(argc, argv, only_times)) return 2;
    for (const struct trial &w : trials) {
        if (only_times || !wanted(&w, word)) continue;
        if (judge(&w)) failed++;
        else passed++;
    }
    for (const struct trial &w : timed)
        if (wanted(&w, word)) time_it(&w);
    if (!only_times) printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
