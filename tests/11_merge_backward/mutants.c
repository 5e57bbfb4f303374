/* mutants.c -- computes the maps of chapter 11 with one deliberate error per flag.
 * Book: chapter 11.
 * The code is a copy of the reference, because mutants must not call it.
 */
#include "kcp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(in_order, IN_ORDER,                                                        \
           "errata 17: scans chunks from first to last, not reversed")                \
    MUTANT(decay_first, DECAY_FIRST,                                                  \
           "errata 8: computes dU = kg dS from the decayed dS")                       \
    MUTANT(turned, TURNED, "errata 18: uses M^T instead of M")                        \
    MUTANT(no_end, NO_END, "ignores dht")                                             \
    MUTANT(wrong_stretch, WRONG_STRETCH,                                              \
           "off by one: reads dh_end of the previous segment, not its own")           \
    MUTANT(not_wanted, ALL_M, "writes dh_ext and M even if only one is requested")    \
    MUTANT(no_scale, NO_SCALE, "errata 27: omits scale in qg^T dO")                   \
    MUTANT(no_w, NO_W, "omits - w^T dU, so M is only the decay")                      \
    MUTANT(wrong_head, WRONG_HEAD, "GDN, HV > H: reads q and k of head n % H")        \
    MUTANT(M_no_decay, M_NO_DECAY,                                                    \
           "M is a product of I - kg^T w, without the decays")                        \
    MUTANT(no_local, NO_LOCAL, "dU = kg dS omits dv_local")                           \
    MUTANT(ungated, UNGATED, "errata 9, 10: k of GDN omits exp2(G_last - G)")         \
    MUTANT(stale_gate, STALE_GATE,                                                    \
           "off by one: decays by G of the chunk's last row but one")                 \
    MUTANT(head_0, HEAD_0, "dh_ext of all heads decays by the gates of head 0")       \
    MUTANT(last_chunk, LAST_CHUNK, "computes the map of the last chunk, not of all")  \
    MUTANT(writes_nothing, NOTHING, "returns at once")
#include "tests/mutants.h"

struct cut { int n, m, rows, flags; int64_t t0; };

static double decay(const struct kcp_merge_backward *a, const struct cut *x, int i)
{
    const double (*G)[a->HV][a->KG] = a->G;
    const int back = x->flags & STALE_GATE && x->rows > 1 ? 2 : 1;
    return exp2(G[x->t0 + x->rows - back][x->n][a->model == KCP_KDA ? i : 0]);
}

static double key(const struct kcp_merge_backward *a, const struct cut *x, int64_t t,
                  int i)
{
    const double (*kg)[a->HV][a->K] = a->kg, (*k)[a->H][a->K] = a->k;
    const double (*G)[a->HV][a->KG] = a->G;
    if (a->model == KCP_KDA) return kg[t][x->n][i];
    return k[t][x->m][i] * (x->flags & UNGATED ? 1
        : exp2(G[x->t0 + x->rows - 1][x->n][0] - G[t][x->n][0]));
}

static double query(const struct kcp_merge_backward *a, const struct cut *x, int64_t t,
                    int i)
{
    const double (*qg)[a->HV][a->K] = a->qg, (*q)[a->H][a->K] = a->q;
    const double (*G)[a->HV][a->KG] = a->G, s = x->flags & NO_SCALE ? 1 : a->scale;
    return s * (a->model == KCP_KDA ? qg[t][x->n][i]
                                    : exp2(G[t][x->n][0]) * q[t][x->m][i]);
}

/* Applies one chunk to X [K,cols]. If `linear` is 1, X contains M^T, whose columns
 * need no dO or dv_local. */
static void chunk_back(const struct kcp_merge_backward *a, const struct cut *x,
                       int cols, int linear, double *X_, double *d_, double *dU)
{
    const int K = a->K, V = a->V, f = x->flags, n = x->n;
    const struct cut first = { .rows = x->rows, .t0 = x->t0, .flags = f };
    const double (*w)[a->HV][K] = a->w, (*dO)[a->HV][V] = a->do_;
    const double (*dv_local)[a->HV][V] = a->dv_local;
    double (*X)[cols] = (double (*)[cols])X_, (*d)[cols] = (double (*)[cols])d_;

    for (int i = 0; i < K; i++)
        for (int v = 0; v < cols; v++) {
            d[i][v] = 0;
            X[i][v] *= f & DECAY_FIRST ? decay(a, x, i) : 1;
        }
    for (int64_t t = x->t0; t < x->t0 + x->rows; t++) {
        for (int v = 0; v < cols; v++)
            dU[v] = linear || f & NO_LOCAL ? 0 : dv_local[t][n][v];
        for (int i = 0; i < K; i++)
            for (int v = 0; v < cols; v++) dU[v] += key(a, x, t, i) * X[i][v];
        for (int i = 0; i < K; i++)
            for (int v = 0; v < cols; v++) {
                if (!linear) d[i][v] += query(a, x, t, i) * dO[t][n][v];
                if (!(f & NO_W)) d[i][v] -= w[t][n][i] * dU[v];
            }
    }
    for (int i = 0; i < K; i++)
        for (int v = 0; v < cols; v++) {
            const int kept = f & DECAY_FIRST || (linear && f & M_NO_DECAY);
            const double left = !linear && f & HEAD_0 ? decay(a, &first, i)
                                                      : decay(a, x, i);
            X[i][v] = (kept ? 1 : left) * X[i][v] + d[i][v];
        }
}

static void stretch(const struct kcp_merge_backward *a, struct cut *x, int s, int want,
                    double *p)
{
    const int K = a->K, V = a->V, *cu = a->cu, *cn = a->cn, f = x->flags;
    const int NC = cn[s + 1] - cn[s];
    const double (*dh_end)[a->HV][K][V] = a->dh_end;
    double (*dmap)[a->HV][K][V + K] = a->dmap;
    double (*dh)[V] = (double (*)[V])p, (*N)[K] = (double (*)[K])(p + K * V);
    double *d = p + K * V + K * K, *dU = d + K * (V + K);
    const int from = f & WRONG_STRETCH && s > 0 ? s - 1 : s;

    for (int i = 0; i < K; i++) {
        for (int v = 0; v < V; v++)
            dh[i][v] = dh_end && !(f & NO_END) ? dh_end[from][x->n][i][v] : 0;
        for (int j = 0; j < K; j++) N[i][j] = i == j;
    }
    for (int j = 0; j < (f & LAST_CHUNK && NC > 1 ? 1 : NC); j++) {
        const int c = f & IN_ORDER ? j : NC - 1 - j;
        x->t0 = cu[s] + (int64_t)c * a->C;
        x->rows = cu[s + 1] - x->t0 < a->C ? (int)(cu[s + 1] - x->t0) : a->C;
        chunk_back(a, x, V, 0, &dh[0][0], d, dU);
        chunk_back(a, x, K, 1, &N[0][0], d, dU);
    }
    for (int i = 0; i < K; i++) {
        for (int v = 0; v < V && want & KCP_WANT_H; v++)
            dmap[s][x->n][i][v] = dh[i][v];
        for (int j = 0; j < K && want & KCP_WANT_M; j++)
            dmap[s][x->n][i][V + j] = f & TURNED ? N[i][j] : N[j][i];
    }
}

static int mutate(struct kcp_merge_backward *a, int flags)
{
    const int K = a->K, V = a->V, *want = a->want;
    double *p = malloc(sizeof(double) * ((size_t)2 * K * (V + K) + V + K));
    if (!p) return KCP_NO_MEMORY;
    for (int s = 0; s < a->NS && !(flags & NOTHING); s++)
        for (int n = 0; n < a->HV; n++) {
            struct cut x = { .n = n, .m = n / (a->HV / a->H), .flags = flags };
            if (flags & WRONG_HEAD) x.m = n % a->H;
            int parts = want[s] & (a->reuse_M ? KCP_WANT_H : KCP_WANT_H | KCP_WANT_M);
            if (flags & ALL_M) parts |= KCP_WANT_H | KCP_WANT_M;
            stretch(a, &x, s, parts, p);
        }
    free(p);
    return KCP_OK;
}

#define MUTANT_STAGE m11, "11_merge_backward", "any shape", mutate
MUTANTS(MUTANT)
MUTANT_TWIN
