/* kcp_in_one_file.cu -- kcp_in_one_file.c with naive kernels, NCCL and a rank per GPU.
 *     nvcc -O2 -arch=native kcp_in_one_file.cu -lnccl && ./a.out
 * Computes H heads of Kimi Delta Attention in float on all GPUs of the machine: chunks
 * (WY form), each rank's map (M, h), the exchange of maps by all-gather or of states by
 * a chain, then each rank's forward and backward. Prints each result's largest error,
 * at most 1e-4 of the largest value of the token recurrence in double.
 * Book: "The idea". */
#include <math.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { T = 1001, H = 3, K = 32, V = 24, C = 16, MOST = 16 };        /* MOST: ranks */
enum { W = V + K + V };                          /* columns of a map: [h | M | dh] */
#define SCALE 0.18f
#define CHECK(call) check((call) != 0, #call)     /* CUDA and NCCL: 0 is success */
static void check(int failed, const char *call)
{
    if (failed) fprintf(stderr, "failed: %s\n", call);
    if (failed) exit(2);
}

/* ---- 1. The definition, per head, in double on the host, and its adjoint */
typedef double keys[T][H][K], values[T][H][V], scalars[T][H][1];
static struct { keys q, k, g; values v, dO; scalars beta; } x;
static struct { keys dq, dk, dg; values o, dv; scalars dbeta; } want, got;
static double S[T + 1][K][V];                   /* S[t]: the state before token t */
static double dS[K][V];            /* the gradient of the state after a token, S[t+1] */

/* S <- diag(e^g) S;  S <- S + k beta (v - S^T k)^T;  o = scale S^T q. Then the adjoint,
 * from the last token to the first. */
static void recurrence(int n)
{
    for (int t = 0; t < T; t++)
        for (int j = 0; j < V; j++) {
            double kS = 0;
            for (int i = 0; i < K; i++) {
                S[t + 1][i][j] = exp(x.g[t][n][i]) * S[t][i][j];
                kS += x.k[t][n][i] * S[t + 1][i][j];
            }
            for (int i = 0; i < K; i++) {
                S[t + 1][i][j] += x.k[t][n][i] * x.beta[t][n][0] * (x.v[t][n][j] - kS);
                want.o[t][n][j] += SCALE * S[t + 1][i][j] * x.q[t][n][i];
            }
        }
    memset(dS, 0, sizeof dS);
    for (int t = T - 1; t >= 0; t--)
        for (int j = 0; j < V; j++) {
            double kS = 0, dr = 0;
            for (int i = 0; i < K; i++) {
                want.dq[t][n][i] += SCALE * S[t + 1][i][j] * x.dO[t][n][j];
                dS[i][j] += SCALE * x.q[t][n][i] * x.dO[t][n][j];
                kS += x.k[t][n][i] * exp(x.g[t][n][i]) * S[t][i][j];
                dr += x.k[t][n][i] * dS[i][j];
            }
            const double beta = x.beta[t][n][0], error = x.v[t][n][j] - kS;
            want.dbeta[t][n][0] += dr * error;
            want.dv[t][n][j] = beta * dr;
            for (int i = 0; i < K; i++) {
                const double decayed = exp(x.g[t][n][i]) * S[t][i][j];
                want.dk[t][n][i] += beta * (dS[i][j] * error - dr * decayed);
                dS[i][j] -= beta * dr * x.k[t][n][i];
                want.dg[t][n][i] += dS[i][j] * decayed;
                dS[i][j] *= exp(x.g[t][n][i]);
            }
        }
}

/* ---- 2. A rank's tokens in chunks. Thread block (c, n) computes chunk c of head n; in
 * a scan, block (0, n) computes all chunks. Latency bounds all kernels. */
typedef float key[H][K], value[H][V], scalar[H][1], row[H][C];      /* per token */
typedef float state[H][K][V], map[H][K][W];                   /* per chunk, per rank */
struct rank {
    int r, t0, tokens, chunks;
    ncclComm_t comm;
    key *q, *k, *g, *G, *w, *dq, *dk, *dg;
    value *v, *dO, *o, *u, *v_new, *y, *dv;
    scalar *beta, *dbeta;
    row *kk, *qk, *A;
    state *h, *dS;           /* state at chunk's start; gradient of state at its end */
    map *mine, *all;                /* all: [R] */
    state *in, *back, *message;     /* received state, received gradient, send buffer */
};

static __device__ int chunk_end(const rank &me, int c)
{
    return (c + 1) * C < me.tokens ? (c + 1) * C : me.tokens;
}

/* e^(G_i - G_j) of channel p: at most 1 for i >= j. */
static __device__ float decay(const rank &me, int i, int j, int p)
{
    return expf(me.G[i][blockIdx.y][p] - me.G[j][blockIdx.y][p]);
}

/* G sums g. kk_ij = k_i . k_j, qk_ij = scale q_i . k_j, each decayed from j to i.
 * A = (I + L)^-1 with L_ij = beta_i kk_ij; u = A (beta v), w = A (beta e^G k).
 * Thread j computes column j of each matrix; rows are tokens. */
static __global__ void prepare(rank me)
{
    const int n = blockIdx.y, j = threadIdx.x, t0 = blockIdx.x * C;
    const int t1 = chunk_end(me, blockIdx.x), s = t0 + j;
    float sum = 0;
    for (int t = t0; t < t1; t++) me.G[t][n][j] = sum += me.g[t][n][j];
    __syncthreads();
    for (int t = s; t < t1 && j < C; t++) {
        float kk = 0, qk = 0;
        for (int p = 0; p < K; p++) {
            const float kD = me.k[s][n][p] * decay(me, t, s, p);
            kk += me.k[t][n][p] * kD;
            qk += SCALE * me.q[t][n][p] * kD;
        }
        me.kk[t][n][j] = kk;
        me.qk[t][n][j] = qk;
    }
    __syncthreads();
    for (int t = s; t < t1 && j < C; t++) {
        float a = t == s;
        for (int m = s; m < t; m++)
            a -= me.beta[t][n][0] * me.kk[t][n][m - t0] * me.A[m][n][j];
        me.A[t][n][j] = a;
    }
    __syncthreads();
    for (int t = t0; t < t1; t++) {
        float u = 0, w = 0;
        for (int m = t0; m <= t; m++) {
            const float a = me.A[t][n][m - t0] * me.beta[m][n][0];
            if (j < V) u += a * me.v[m][n][j];
            w += a * expf(me.G[m][n][j]) * me.k[m][n][j];
        }
        if (j < V) me.u[t][n][j] = u;
        me.w[t][n][j] = w;
    }
}

/* Advances column X [K] over all chunks: y = (fed ? u : 0) - w X, then X <-
 * e^G_last X + (e^(G_last - G) k)^T y. If `keep`, stores column j of h and v_new. */
static __device__ void scan_column(const rank &me, int j, int fed, int keep, float *X)
{
    const int n = blockIdx.y;
    for (int c = 0; c < me.chunks; c++) {
        const int t0 = c * C, t1 = chunk_end(me, c);
        float y[C];
        for (int p = 0; p < K && keep; p++) me.h[c][n][p][j] = X[p];
        for (int t = t0; t < t1; t++) {
            float sum = fed ? me.u[t][n][j] : 0;
            for (int p = 0; p < K; p++) sum -= me.w[t][n][p] * X[p];
            if (keep) me.v_new[t][n][j] = sum;
            y[t - t0] = sum;
        }
        for (int p = 0; p < K; p++) {
            X[p] *= expf(me.G[t1 - 1][n][p]);
            for (int t = t0; t < t1; t++)
                X[p] += decay(me, t1 - 1, t, p) * me.k[t][n][p] * y[t - t0];
        }
    }
}

/* Moves column dS back over chunks: dU = (e^(G_last - G) k) dS + qk^T dO, then dS <-
 * e^G_last dS + scale (e^G q)^T dO - w^T dU. If `keep`, stores dS and y = A^T dU. */
static __device__ void retreat_column(const rank &me, int j, int keep, float *dS)
{
    const int n = blockIdx.y;
    for (int c = me.chunks - 1; c >= 0; c--) {
        const int t0 = c * C, t1 = chunk_end(me, c);
        float dU[C];
        for (int p = 0; p < K && keep; p++) me.dS[c][n][p][j] = dS[p];
        for (int t = t0; t < t1; t++) {
            float sum = 0;
            for (int p = 0; p < K; p++)
                sum += decay(me, t1 - 1, t, p) * me.k[t][n][p] * dS[p];
            for (int m = t; m < t1; m++) sum += me.qk[m][n][t - t0] * me.dO[m][n][j];
            dU[t - t0] = sum;
        }
        for (int t = t0; t < t1 && keep; t++) {
            float y = 0;
            for (int m = t; m < t1; m++) y += me.A[m][n][t - t0] * dU[m - t0];
            me.y[t][n][j] = y;
        }
        for (int p = 0; p < K; p++) {
            dS[p] *= expf(me.G[t1 - 1][n][p]);
            for (int t = t0; t < t1; t++)
                dS[p] += SCALE * expf(me.G[t][n][p]) * me.q[t][n][p] * me.dO[t][n][j] -
                         me.w[t][n][p] * dU[t - t0];
        }
    }
}

/* ---- 3. given = 0: computes the rank's map by a scan of [h | M] from [0 | I] and an
 * adjoint scan of dh from 0. given = 1: scans S from `in`, and dS from `back`. */
static __global__ void scans(rank me, int given)
{
    const int n = blockIdx.y, j = threadIdx.x, b = j - V - K;      /* b: column of dS */
    float X[K];
    for (int p = 0; p < K; p++) {
        X[p] = j - V == p;
        if (given && j < V) X[p] = me.in[0][n][p][j];
        if (given && b >= 0) X[p] = me.back[0][n][p][b];
    }
    if (b >= 0) retreat_column(me, b, given, X);
    else if (j < V || !given) scan_column(me, j, j < V, given, X);
    for (int p = 0; p < K && !given; p++) me.mine[0][n][p][j] = X[p];
}

/* Column j of `out` = M `in` + h, or M^T `in` + dh if `back`; `out` may be `in`. */
static __global__ void apply(const map *of, int back, const state *in, state *out)
{
    const int n = blockIdx.y, j = threadIdx.x;
    const float (*m)[W] = of[0][n];
    float X[K];
    for (int i = 0; i < K; i++) {
        X[i] = m[i][back ? V + K + j : j];
        for (int p = 0; p < K; p++)
            X[i] += (back ? m[p][V + i] : m[i][V + p]) * in[0][n][p][j];
    }
    for (int i = 0; i < K; i++) out[0][n][i][j] = X[i];
}

/* ---- 4. The rank's outputs and gradients, from the states that `scans` wrote */
/* o_i = scale (e^G q_i)^T h + sum_{m<=i} qk_im v_new_m; dv = beta y; column j. */
static __global__ void outputs(rank me)
{
    const int c = blockIdx.x, n = blockIdx.y, j = threadIdx.x, t0 = c * C;
    for (int t = t0; t < chunk_end(me, c); t++) {
        float o = 0;
        for (int p = 0; p < K; p++)
            o += SCALE * expf(me.G[t][n][p]) * me.q[t][n][p] * me.h[c][n][p][j];
        for (int m = t0; m <= t; m++) o += me.qk[t][n][m - t0] * me.v_new[m][n][j];
        me.o[t][n][j] = o;
        me.dv[t][n][j] = me.beta[t][n][0] * me.y[t][n][j];
    }
}

/* Thread p computes channel p of dq, dk and dg; if p < C, also dbeta of token p. */
static __global__ void gradients(rank me)
{
    const int c = blockIdx.x, n = blockIdx.y, p = threadIdx.x, t0 = c * C;
    const int N = chunk_end(me, c) - t0, last = t0 + N - 1;
    const float (*h)[V] = me.h[c][n], (*dS)[V] = me.dS[c][n];
    __shared__ float dqk[C][C], dL[C][C];
    float dG[C], dq[C], dk[C], sum = 0;
    for (int at = p; at < N * N; at += K) {
        const int i = at / N, m = at % N;
        dqk[i][m] = dL[i][m] = 0;
        for (int j = 0; j < V; j++) {
            dqk[i][m] += SCALE * me.dO[t0 + i][n][j] * me.v_new[t0 + m][n][j];
            dL[i][m] -= m < i ? me.y[t0 + i][n][j] * me.v_new[t0 + m][n][j] : 0;
        }
    }
    __syncthreads();
    for (int i = 0; i < N; i++) {                              /* through h and dS */
        const int t = t0 + i;
        const float E = expf(me.G[t][n][p]), beta = me.beta[t][n][0];
        float from_q = 0, out = 0, in = 0;
        for (int j = 0; j < V; j++) {
            from_q += SCALE * E * me.dO[t][n][j] * h[p][j];
            out -= beta * E * me.y[t][n][j] * h[p][j];
            in += decay(me, last, t, p) * me.v_new[t][n][j] * dS[p][j];
        }
        dq[i] = from_q;
        dk[i] = out + in;
        dG[i] = me.q[t][n][p] * from_q + me.k[t][n][p] * (out - in);
        sum += me.k[t][n][p] * in;
    }
    for (int j = 0; j < V; j++) sum += expf(me.G[last][n][p]) * h[p][j] * dS[p][j];
    for (int i = 0; i < N; i++)                               /* through pairs m <= i */
        for (int m = 0; m <= i; m++) {
            const float D = decay(me, t0 + i, t0 + m, p), km = me.k[t0 + m][n][p] * D;
            const float L = dL[i][m] * me.beta[t0 + i][n][0], dq_im = dqk[i][m];
            const float row = dq_im * me.q[t0 + i][n][p] + L * me.k[t0 + i][n][p];
            dq[i] += dq_im * km;
            dk[i] += L * km;
            dk[m] += row * D;
            dG[i] += m < i ? row * km : 0;                     /* i = m cancels */
            dG[m] -= m < i ? row * km : 0;
        }
    for (int i = N - 1; i >= 0; i--) {                         /* dg sums dG back */
        me.dq[t0 + i][n][p] = dq[i];
        me.dk[t0 + i][n][p] = dk[i];
        me.dg[t0 + i][n][p] = sum += dG[i];
    }
    const int t = t0 + p;                                      /* p as a token */
    if (p >= N) return;
    float dbeta = 0;
    for (int m = 0; m < p; m++) dbeta += dL[p][m] * me.kk[t][n][m];
    for (int j = 0; j < V; j++) {
        float error = me.v[t][n][j];
        for (int i = 0; i < K; i++)
            error -= expf(me.G[t][n][i]) * me.k[t][n][i] * h[i][j];
        dbeta += me.y[t][n][j] * error;
    }
    me.dbeta[t][n][0] = dbeta;
}

/* ---- 5. The exchange: one host thread drives all GPUs; rank r is GPU r */
static rank ranks[MOST];
static int R;                                                       /* ranks, GPUs */

/* Each rank sends its map to all ranks, folds the maps of all earlier ranks, and folds
 * those of all later ranks in reverse order. */
static void all_gather(void)
{
    CHECK(ncclGroupStart());
    for (rank *me = ranks; me < ranks + R; me++)
        CHECK(ncclAllGather(me->mine, me->all, H * K * W, ncclFloat, me->comm, 0));
    CHECK(ncclGroupEnd());
    for (rank *me = ranks; me < ranks + R; me++) {
        CHECK(cudaSetDevice(me->r));
        for (int r = 0; r < me->r; r++)
            apply<<<dim3(1, H), V>>>(&me->all[r], 0, me->in, me->in);
        for (int r = R - 1; r > me->r; r--)
            apply<<<dim3(1, H), V>>>(&me->all[r], 1, me->back, me->back);
    }
}

/* Each rank applies its own map to the received state and sends the result on. */
static void chain(int back)
{
    const size_t n = sizeof(state) / sizeof(float);
    for (int hop = 0; hop + 1 < R; hop++) {
        rank *from = &ranks[back ? R - 1 - hop : hop];
        rank *to = back ? from - 1 : from + 1;
        const state *in = back ? from->back : from->in;
        CHECK(cudaSetDevice(from->r));
        apply<<<dim3(1, H), V>>>(from->mine, back, in, from->message);
        CHECK(ncclGroupStart());
        CHECK(ncclSend(from->message, n, ncclFloat, to->r, from->comm, 0));
        CHECK(ncclRecv(back ? to->back : to->in, n, ncclFloat, from->r, to->comm, 0));
        CHECK(ncclGroupEnd());
    }
}

/* ---- 6. Memory; comparison of all results with the recurrence */
static float host[T * H * K * V];                     /* fits every array */

/* Allocates n elements on the GPU: a copy of `from`, or NaN if `from` is NULL. */
template <class A> static void array(A **to, const void *from, int n)
{
    for (size_t i = 0; i < n * sizeof(A) / 4; i++)
        host[i] = from ? ((const double *)from)[i] : NAN;
    CHECK(cudaMalloc(to, n * sizeof(A)));
    CHECK(cudaMemcpy(*to, host, n * sizeof(A), cudaMemcpyHostToDevice));
}

static void rank_open(rank *me)
{
    const int n = me->tokens, t = me->t0;
    CHECK(cudaSetDevice(me->r));
    array(&me->q, x.q[t], n);
    array(&me->k, x.k[t], n);
    array(&me->v, x.v[t], n);
    array(&me->g, x.g[t], n);
    array(&me->dO, x.dO[t], n);
    array(&me->beta, x.beta[t], n);
    for (key **to : { &me->G, &me->w, &me->dq, &me->dk, &me->dg }) array(to, NULL, n);
    for (value **to : { &me->o, &me->u, &me->y, &me->dv }) array(to, NULL, n);
    array(&me->v_new, NULL, n);
    for (row **to : { &me->kk, &me->qk, &me->A }) array(to, NULL, n);
    for (state **to : { &me->h, &me->dS }) array(to, NULL, me->chunks);
    for (state **to : { &me->in, &me->back, &me->message }) array(to, NULL, 1);
    array(&me->dbeta, NULL, n);
    array(&me->mine, NULL, 1);
    array(&me->all, NULL, R);
}

template <class A> static void read_back(void *to, const A *from, int n)
{
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, from, n * sizeof(A), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n * sizeof(A) / 4; i++) ((double *)to)[i] = host[i];
}

static void run(int by_chain)
{
    for (rank *me = ranks; me < ranks + R; me++) {
        CHECK(cudaSetDevice(me->r));
        CHECK(cudaMemset(me->in, 0, sizeof(state)));
        CHECK(cudaMemset(me->back, 0, sizeof(state)));
        prepare<<<dim3(me->chunks, H), K>>>(*me);
        scans<<<dim3(1, H), W>>>(*me, 0);
    }
    if (!by_chain) all_gather();
    for (int back = 0; back < 2 && by_chain; back++) chain(back);
    for (rank *me = ranks; me < ranks + R; me++) {
        CHECK(cudaSetDevice(me->r));
        scans<<<dim3(1, H), W>>>(*me, 1);
        outputs<<<dim3(me->chunks, H), V>>>(*me);
        gradients<<<dim3(me->chunks, H), K>>>(*me);
    }
    for (rank *me = ranks; me < ranks + R; me++) {
        const int n = me->tokens, t = me->t0;
        CHECK(cudaSetDevice(me->r));
        read_back(got.o[t], me->o, n);
        read_back(got.dq[t], me->dq, n);
        read_back(got.dk[t], me->dk, n);
        read_back(got.dv[t], me->dv, n);
        read_back(got.dg[t], me->dg, n);
        read_back(got.dbeta[t], me->dbeta, n);
    }
}

static void compare(const char *name, const void *got_, const void *want_, int n)
{
    const double *a = (const double *)got_, *b = (const double *)want_;
    double worst = 0, size = 0;
    for (int i = 0; i < n; i++) {
        if (!(fabs(a[i] - b[i]) <= worst)) worst = fabs(a[i] - b[i]); /* NaN too */
        size = fmax(size, fabs(b[i]));
    }
    printf("  %-6s largest error %.1e\n", name, worst / size);
    if (!(worst <= 1e-4 * size)) exit(1);
}

int main(void)
{
    ncclComm_t comm[MOST];
    unsigned long long seed = 1;
    double *const all = (double *)&x, *const g = x.g[0][0], *const beta = x.beta[0][0];
    CHECK(cudaGetDeviceCount(&R));
    if (R > MOST) R = MOST;
    for (size_t i = 0; i < sizeof x / sizeof *all; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        all[i] = 0.5f * (float)((double)(seed >> 11) * 0x1p-53 - 0.5);
    }
    for (int i = 0; i < T * H; i++) beta[i] = (float)(0.3 * beta[i] + 0.1);
    for (int i = 0; i < T * H * K; i++) g[i] = (float)(0.004 * g[i] - 0.001);
    for (int n = 0; n < H; n++) recurrence(n);
    CHECK(ncclCommInitAll(comm, R, NULL));
    for (int r = 0; r < R; r++) {
        const int t0 = T * r / R, tokens = T * (r + 1) / R - t0;
        ranks[r] = (rank){ r, t0, tokens, (tokens + C - 1) / C, comm[r] };
        rank_open(&ranks[r]);
    }
    for (int by_chain = 0; by_chain < 2; by_chain++) {
        printf("%d tokens on %d GPUs, %s\n", T, R, by_chain ? "chain" : "all-gather");
        memset(&got, 0xff, sizeof got);
        run(by_chain);
        compare("o", got.o, want.o, T * H * V);
        compare("dq", got.dq, want.dq, T * H * K);
        compare("dk", got.dk, want.dk, T * H * K);
        compare("dv", got.dv, want.dv, T * H * V);
        compare("dg", got.dg, want.dg, T * H * K);
        compare("dbeta", got.dbeta, want.dbeta, T * H);
    }
    return 0;
}
