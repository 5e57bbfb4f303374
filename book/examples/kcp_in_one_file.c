/* kcp_in_one_file.c -- KDA cut across ranks: the whole idea in one program.
 *     cc -O2 kcp_in_one_file.c -lm -lpthread && ./a.out
 * Computes one head of Kimi Delta Attention in double: by the token recurrence and its
 * adjoint, then by chunks (WY form) on ranks, which are threads. Each rank computes its
 * affine map (M, h); ranks exchange maps by all-gather, or states by a chain.
 * Prints each result's largest error, at most 1e-12 of the recurrence's largest value.
 * Book: "The idea". */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { T = 70, K = 6, V = 5, C = 8, R = 4 }; /* T tokens, R ranks, chunks of C */
static const int cuts[R + 1] = { 0, 13, 30, 57, T };  /* rank r: from token cuts[r] */
static const double scale = 0.4;
typedef double state[K][V];
static struct { double q[T][K], k[T][K], v[T][V], g[T][K], beta[T], dO[T][V]; } x;
struct outputs { double o[T][V], dq[T][K], dk[T][K], dv[T][V], dg[T][K], dbeta[T]; };

/* ---- 1. The definition, token by token, and its adjoint */
static state S[T + 1];                          /* S[t]: the state before token t */

/* S <- diag(e^g) S;  S <- S + k beta (v - S^T k)^T;  o = scale S^T q */
static void recurrence(struct outputs *y)
{
    for (int t = 0; t < T; t++)
        for (int j = 0; j < V; j++) {
            double kS = 0;
            for (int i = 0; i < K; i++) {
                S[t + 1][i][j] = exp(x.g[t][i]) * S[t][i][j];
                kS += x.k[t][i] * S[t + 1][i][j];
            }
            for (int i = 0; i < K; i++) {
                S[t + 1][i][j] += x.k[t][i] * x.beta[t] * (x.v[t][j] - kS);
                y->o[t][j] += scale * S[t + 1][i][j] * x.q[t][i];
            }
        }
}

/* Runs from the last token to the first; dS is the gradient of S after token t. */
static void recurrence_backward(struct outputs *y)
{
    state dS = { { 0 } };
    for (int t = T - 1; t >= 0; t--)
        for (int j = 0; j < V; j++) {
            double kS = 0, dr = 0;
            for (int i = 0; i < K; i++) {
                y->dq[t][i] += scale * S[t + 1][i][j] * x.dO[t][j];
                dS[i][j] += scale * x.q[t][i] * x.dO[t][j];
                kS += x.k[t][i] * exp(x.g[t][i]) * S[t][i][j];
                dr += x.k[t][i] * dS[i][j];
            }
            const double error = x.v[t][j] - kS, dv = x.beta[t] * dr;
            y->dbeta[t] += dr * error;
            y->dv[t][j] = dv;
            for (int i = 0; i < K; i++) {
                const double decayed = exp(x.g[t][i]) * S[t][i][j];
                y->dk[t][i] += dS[i][j] * x.beta[t] * error - dv * decayed;
                dS[i][j] -= dv * x.k[t][i];
                y->dg[t][i] += dS[i][j] * decayed;
                dS[i][j] *= exp(x.g[t][i]);
            }
        }
}

/* ---- 2. All n tokens of a chunk at once: G is the running sum of g, in base two */
struct chunk {
    int t0, n;
    double G[C][K], kk[C][C], Aqk[C][C], A[C][C], u[C][V], w[C][K], kg[C][K];
    double qg[C][K], h[K][V], v_new[C][V];      /* h: the state at the chunk's start */
};

static double decay(const struct chunk *c, int i, int j, int p)
{
    return exp2(c->G[i][p] - c->G[j][p]);                    /* at most 1 for i >= j */
}

/* kk_ij = k_i . k_j and Aqk_ij = scale q_i . k_j, each decayed from token j to i;
 * L_ij = beta_i kk_ij for j < i; A = (I + L)^-1; u = A (beta v); w = A (beta 2^G k);
 * kg = 2^(G_last - G) k; qg = 2^G q. */
static void prepare(struct chunk *c, int t0, int n)
{
    *c = (struct chunk){ .t0 = t0, .n = n };
    for (int i = 0; i < n; i++) {
        for (int p = 0; p < K; p++)
            c->G[i][p] = x.g[t0 + i][p] / log(2) + (i ? c->G[i - 1][p] : 0);
        for (int j = 0; j <= i; j++)
            for (int p = 0; p < K; p++) {
                const double kD = x.k[t0 + j][p] * decay(c, i, j, p);
                c->Aqk[i][j] += scale * x.q[t0 + i][p] * kD;
                c->kk[i][j] += x.k[t0 + i][p] * kD;
            }
        for (int j = 0; j <= i; j++) {
            c->A[i][j] = i == j;
            for (int m = j; m < i; m++)
                c->A[i][j] -= x.beta[t0 + i] * c->kk[i][m] * c->A[m][j];
            const double a = c->A[i][j] * x.beta[t0 + j];
            for (int m = 0; m < V; m++) c->u[i][m] += a * x.v[t0 + j][m];
            for (int p = 0; p < K; p++)
                c->w[i][p] += a * exp2(c->G[j][p]) * x.k[t0 + j][p];
        }
    }
    for (int i = 0; i < n; i++)
        for (int p = 0; p < K; p++) {
            c->kg[i][p] = decay(c, n - 1, i, p) * x.k[t0 + i][p];
            c->qg[i][p] = exp2(c->G[i][p]) * x.q[t0 + i][p];
        }
}

/* Advances S [K,W], a state or [h | M], by a chunk: v_new = [u | 0] - w S, then
 * S <- 2^G_last S + kg^T v_new; u has V columns. Columns are independent. */
static void advance(const struct chunk *c, int W, double S[K][W], double v_new[C][W])
{
    for (int j = 0; j < W; j++) {
        for (int i = 0; i < c->n; i++) {
            v_new[i][j] = j < V ? c->u[i][j] : 0;
            for (int p = 0; p < K; p++) v_new[i][j] -= c->w[i][p] * S[p][j];
        }
        for (int p = 0; p < K; p++) {
            S[p][j] *= exp2(c->G[c->n - 1][p]);
            for (int i = 0; i < c->n; i++) S[p][j] += c->kg[i][p] * v_new[i][j];
        }
    }
}

/* Adjoint of advance: dU = kg dS + Aqk^T dO; y = A^T dU, so dv = beta y;
 * dS <- 2^G_last dS + scale qg^T dO - w^T dU. */
static void retreat(const struct chunk *c, state dS, double y[C][V])
{
    const int n = c->n, last = n - 1, t0 = c->t0;
    for (int j = 0; j < V; j++) {
        double dU[C] = { 0 };
        for (int i = 0; i < n; i++) {
            for (int p = 0; p < K; p++) dU[i] += c->kg[i][p] * dS[p][j];
            for (int m = i; m < n; m++) dU[i] += c->Aqk[m][i] * x.dO[t0 + m][j];
        }
        for (int i = 0; i < n; i++) {
            y[i][j] = 0;
            for (int m = i; m < n; m++) y[i][j] += c->A[m][i] * dU[m];
        }
        for (int p = 0; p < K; p++) {
            dS[p][j] *= exp2(c->G[last][p]);
            for (int i = 0; i < n; i++)
                dS[p][j] += scale * c->qg[i][p] * x.dO[t0 + i][j] - c->w[i][p] * dU[i];
        }
    }
}

/* Sets token i's dv. Adds its gradients through the chunk's first and last states. */
static void through_states(const struct chunk *c, int i, state dS, double y[C][V],
                           double dG[C][K], struct outputs *d)
{
    const int t = c->t0 + i, last = c->n - 1;
    for (int j = 0; j < V; j++) {
        double error = x.v[t][j];
        for (int p = 0; p < K; p++) error -= exp2(c->G[i][p]) * x.k[t][p] * c->h[p][j];
        d->dv[t][j] = x.beta[t] * y[i][j];
        d->dbeta[t] += y[i][j] * error;
    }
    for (int p = 0; p < K; p++) {
        double q = 0, k_out = 0, k_in = 0;
        for (int j = 0; j < V; j++) {
            q += scale * exp2(c->G[i][p]) * x.dO[t][j] * c->h[p][j];
            k_out -= x.beta[t] * exp2(c->G[i][p]) * y[i][j] * c->h[p][j];
            k_in += decay(c, last, i, p) * c->v_new[i][j] * dS[p][j];
        }
        d->dq[t][p] += q;
        d->dk[t][p] += k_out + k_in;
        dG[i][p] += x.q[t][p] * q + x.k[t][p] * (k_out - k_in);
        dG[last][p] += x.k[t][p] * k_in;
    }
}

/* Adds the gradients that pass through Aqk_im and L_im, for a pair of tokens m <= i. */
static void through_pair(const struct chunk *c, int i, int m, double y[C][V],
                         double dG[C][K], struct outputs *d)
{
    const int t = c->t0 + i, s = c->t0 + m;
    double dAqk = 0, dL = 0;
    for (int j = 0; j < V; j++) {
        dAqk += scale * x.dO[t][j] * c->v_new[m][j];
        dL -= m < i ? y[i][j] * c->v_new[m][j] : 0;
    }
    d->dbeta[t] += dL * c->kk[i][m];
    for (int p = 0; p < K; p++) {
        const double D = decay(c, i, m, p);
        const double row = dAqk * x.q[t][p] + dL * x.beta[t] * x.k[t][p];
        d->dq[t][p] += dAqk * x.k[s][p] * D;
        d->dk[t][p] += dL * x.beta[t] * x.k[s][p] * D;
        d->dk[s][p] += row * D;
        dG[i][p] += row * x.k[s][p] * D;
        dG[m][p] -= row * x.k[s][p] * D;
    }
}

static void chunk_gradients(const struct chunk *c, state dS, double y[C][V],
                            struct outputs *d)
{
    double dG[C][K] = { { 0 } };                /* the gradient of ln(2) G */
    const int last = c->n - 1;
    for (int i = 0; i <= last; i++) through_states(c, i, dS, y, dG, d);
    for (int i = 0; i <= last; i++)
        for (int m = 0; m <= i; m++) through_pair(c, i, m, y, dG, d);
    for (int p = 0; p < K; p++) {
        double sum = 0;                         /* dg_i = sum of dG_j, j >= i */
        for (int j = 0; j < V; j++) sum += exp2(c->G[last][p]) * c->h[p][j] * dS[p][j];
        for (int i = last; i >= 0; i--) d->dg[c->t0 + i][p] = sum += dG[i][p];
    }
}

/* ---- 3. A rank: its chunks, its map, and the states that its neighbours send */
/* S_out = M S + h and dS_in = M^T dS + dh. */
struct map { double hM[K][V + K], dh[K][V]; };                          /* [h | M] */
struct rank { int r, n; struct chunk c[T / C + 1]; struct map map; state S, dS; };

/* Computes [h | M] by a scan from [0 | I], and dh by the adjoint scan from 0. */
static void rank_map(struct rank *me)
{
    double v_new[C][V + K], y[C][V];
    for (int i = 0; i < K; i++) me->map.hM[i][V + i] = 1;
    for (int n = 0; n < me->n; n++) advance(&me->c[n], V + K, me->map.hM, v_new);
    for (int n = me->n - 1; n >= 0; n--) retreat(&me->c[n], me->map.dh, y);
}

/* Computes the rank's outputs and gradients from the received S and dS.
 * o_i = scale qg_i^T h + sum_{m<=i} Aqk_im v_new_m; h is the first state. */
static void rank_tokens(struct rank *me, struct outputs *y)
{
    double z[C][V];
    for (struct chunk *c = me->c; c < me->c + me->n; c++) {
        memcpy(c->h, me->S, sizeof(state));
        advance(c, V, me->S, c->v_new);
        for (int i = 0; i < c->n; i++)
            for (int j = 0; j < V; j++) {
                double o = 0;
                for (int p = 0; p < K; p++)
                    o += scale * c->qg[i][p] * c->h[p][j];
                for (int m = 0; m <= i; m++) o += c->Aqk[i][m] * c->v_new[m][j];
                y->o[c->t0 + i][j] = o;
            }
    }
    for (int n = me->n - 1; n >= 0; n--) {
        state at_end;
        memcpy(at_end, me->dS, sizeof(state));
        retreat(&me->c[n], me->dS, z);
        chunk_gradients(&me->c[n], at_end, z, y);
    }
}

/* ---- 4. The exchange, by two algorithms */
static pthread_barrier_t meet;
static struct map gathered[R];                      /* rank r writes gathered[r] */
static state message;                               /* state sent to the next rank */
static struct outputs got;
static int by_chain;

static void apply(const struct map *m, int back, state in, state out)
{
    state S;
    for (int i = 0; i < K; i++)
        for (int j = 0; j < V; j++) {
            S[i][j] = back ? m->dh[i][j] : m->hM[i][j];
            for (int p = 0; p < K; p++)
                S[i][j] += (back ? m->hM[p][V + i] : m->hM[i][V + p]) * in[p][j];
        }
    memcpy(out, S, sizeof S);
}

/* Each rank sends its map to all ranks. S is the fold of the maps of all earlier ranks.
 * dS is the fold of the maps of all later ranks, in reverse order. */
static void all_gather(struct rank *me)
{
    gathered[me->r] = me->map;
    pthread_barrier_wait(&meet);
    for (int r = 0; r < me->r; r++) apply(&gathered[r], 0, me->S, me->S);
    for (int r = R - 1; r > me->r; r--) apply(&gathered[r], 1, me->dS, me->dS);
}

/* Each rank applies its map to the received state and sends the result to the next. */
static void chain(struct rank *me)
{
    for (int hop = 0; hop < 2 * R; hop++) {
        const int back = hop >= R;
        double (*S)[V] = back ? me->dS : me->S;
        if (me->r == (back ? 2 * R - 1 - hop : hop)) {
            if (hop % R) memcpy(S, message, sizeof message);
            apply(&me->map, back, S, message);
        }
        pthread_barrier_wait(&meet);
    }
}

static void *rank_main(void *arg)
{
    struct rank *me = arg;
    const int t1 = cuts[me->r + 1];
    for (int t = cuts[me->r]; t < t1; t += C)
        prepare(&me->c[me->n++], t, t + C < t1 ? C : t1 - t);
    rank_map(me);
    if (by_chain) chain(me);
    else all_gather(me);
    rank_tokens(me, &got);
    return NULL;
}

/* ---- 5. Comparison of all results with the recurrence */
static void compare(const char *name, const void *got_, const void *want_, int n)
{
    const double *a = got_, *b = want_;
    double worst = 0, size = 0;
    for (int i = 0; i < n; i++) {
        if (!(fabs(a[i] - b[i]) <= worst)) worst = fabs(a[i] - b[i]); /* NaN too */
        size = fmax(size, fabs(b[i]));
    }
    printf("  %-6s largest error %.1e\n", name, worst / size);
    if (!(worst <= 1e-12 * size)) exit(1);
}

int main(void)
{
    static struct outputs want;
    struct rank ranks[R];
    pthread_t thread[R];
    unsigned long long seed = 1;
    for (size_t i = 0; i < sizeof x / sizeof(double); i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        ((double *)&x)[i] = (double)(seed >> 11) * 0x1p-53 - 0.5;
    }
    for (int t = 0; t < T; t++) {
        x.beta[t] += 0.5;
        for (int p = 0; p < K; p++) x.g[t][p] = 0.1 * x.g[t][p] - 0.05;
    }               /* slow decay, so that the first state still matters at the end */
    pthread_barrier_init(&meet, NULL, R);
    recurrence(&want);
    recurrence_backward(&want);
    for (by_chain = 0; by_chain < 2; by_chain++) {
        printf("%d tokens on %d ranks, %s\n", T, R, by_chain ? "chain" : "all-gather");
        memset(&got, 0, sizeof got);
        memset(got.o, 0xff, sizeof got.o);        /* NaN where no rank writes */
        for (int r = 0; r < R; r++) {
            ranks[r] = (struct rank){ .r = r };
            if (pthread_create(&thread[r], NULL, rank_main, &ranks[r])) return 2;
        }
        for (int r = 0; r < R; r++) pthread_join(thread[r], NULL);
        compare("o", got.o, want.o, T * V);
        compare("dq", got.dq, want.dq, T * K);
        compare("dk", got.dk, want.dk, T * K);
        compare("dv", got.dv, want.dv, T * V);
        compare("dg", got.dg, want.dg, T * K);
        compare("dbeta", got.dbeta, want.dbeta, T);
    }
    return 0;
}
