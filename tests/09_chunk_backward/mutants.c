/* mutants.c -- computes the gradients of chapter 09 with one deliberate error per flag.
 * Book: chapter 09.
 * The code is a copy of the reference, because mutants must not call it. */
#include "kcp.h"

#include <math.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(decay_first, DECAY_FIRST, "errata 8: decays dS, then computes dU = kg dS") \
    MUTANT(next_gate, NEXT_GATE, "errata 28: decays by the previous chunk's gate")    \
    MUTANT(in_order, IN_ORDER,                                                        \
           "errata 17: scans chunks from first to last, not reversed")                \
    MUTANT(no_w, NO_W, "dS omits the term - w^T dU")                                  \
    MUTANT(no_scale, NO_SCALE, "errata 27: omits scale")                              \
    MUTANT(scale_twice, AQK_SCALE, "scales dv_local, although Aqk includes scale")    \
    MUTANT(no_dh_out, NO_DHT, "dS starts from 0 instead of dh_out")                   \
    MUTANT(at_start, AT_START,                                                        \
           "off by one: dh holds dS at the chunk's start, not its end")               \
    MUTANT(transposed, TRANSPOSED, "dAqk = scale v_new dO^T")                         \
    MUTANT(no_diagonal, NO_DIAGONAL, "Aqk and dAqk omit their diagonal")              \
    MUTANT(wrong_head, WRONG_HEAD, "GDN, HV > H: reads q and k of head n % H")        \
    MUTANT(stale_gate, STALE_GATE,                                                    \
           "off by one: decays by G of the chunk's second-last row")                  \
    MUTANT(ignores_cu, NO_RESET,                                                      \
           "passes dS from a sequence to the previous sequence")                      \
    MUTANT(no_local, NO_LOCAL, "dU omits dv_local")                                   \
    MUTANT(uncarried, UNCARRIED, "each chunk except the last starts from dS = 0")     \
    MUTANT(writes_nothing, NOTHING, "returns at once")
#include "tests/mutants.h"

/* `before` is the last token of the previous chunk or, in a sequence's first chunk,
 * of this chunk. */
struct cut { int n, m, rows; int64_t t0, before; };

static void local(const struct kcp_chunk_backward *a, struct cut x, int flags)
{
    const int HV = a->HV, V = a->V, C = a->C, n = x.n, no = flags & NO_DIAGONAL ? 1 : 0;
    const double (*Aqk)[HV][C] = a->Aqk, (*v_new)[HV][V] = a->v_new;
    const double (*dO)[HV][V] = a->do_, scale = flags & NO_SCALE ? 1 : a->scale;
    double (*dAqk)[HV][C] = a->dAqk, (*dv_local)[HV][V] = a->dv_local;

    for (int i = 0; i < x.rows; i++) {
        memset(dv_local[x.t0 + i][n], 0, sizeof(double) * V);
        memset(dAqk[x.t0 + i][n], 0, sizeof(double) * C);
    }
    for (int64_t i = 0; i < x.rows; i++)
        for (int64_t j = 0; j <= i - no; j++)
            for (int v = 0; v < V; v++) {
                const int64_t ti = x.t0 + i, tj = x.t0 + j;
                const double e = flags & AQK_SCALE ? a->scale : 1;
                dAqk[ti][n][j] += flags & TRANSPOSED
                                      ? scale * dO[tj][n][v] * v_new[ti][n][v]
                                      : scale * dO[ti][n][v] * v_new[tj][n][v];
                dv_local[tj][n][v] += e * Aqk[ti][n][j] * dO[ti][n][v];
            }
}

static void decay(const struct kcp_chunk_backward *a, const double *G_last, double *dS)
{
    for (int i = 0; i < a->K; i++)
        for (int v = 0; v < a->V; v++)
            dS[i * a->V + v] *= exp2(G_last[a->model == KCP_KDA ? i : 0]);
}

static void reverse(const struct kcp_chunk_backward *a, struct cut x, int flags,
                    double *dS_)
{
    const int HV = a->HV, K = a->K, V = a->V, kda = a->model == KCP_KDA, n = x.n;
    const double (*qg)[HV][K] = a->qg, (*kg)[HV][K] = a->kg, (*w)[HV][K] = a->w;
    const double (*q)[a->H][K] = a->q, (*k)[a->H][K] = a->k;
    const double (*G)[HV][a->KG] = a->G, (*dO)[HV][V] = a->do_;
    const double (*dv_local)[HV][V] = a->dv_local;
    const double scale = flags & NO_SCALE ? 1 : a->scale;
    const int64_t end = x.t0 + x.rows;
    const double *G_last = G[flags & STALE_GATE && x.rows > 1 ? end - 2 : end - 1][n];
    double (*dU)[HV][V] = a->dU, (*dS)[V] = (double (*)[V])dS_;

    if (flags & DECAY_FIRST) decay(a, G_last, dS_);
    for (int64_t t = x.t0; t < end; t++)
        for (int v = 0; v < V; v++) {
            double s = 0;
            for (int i = 0; i < K; i++)
                s += (kda ? kg[t][n][i] : exp2(G_last[0] - G[t][n][0]) * k[t][x.m][i])
                   * dS[i][v];
            dU[t][n][v] = s + (flags & NO_LOCAL ? 0 : dv_local[t][n][v]);
        }
    if (!(flags & DECAY_FIRST))
        decay(a, flags & NEXT_GATE ? G[x.before][n] : G_last, dS_);
    for (int64_t t = x.t0; t < end; t++)
        for (int i = 0; i < K; i++) {
            const double qt = kda ? qg[t][n][i] : exp2(G[t][n][0]) * q[t][x.m][i];
            for (int v = 0; v < V; v++)
                dS[i][v] += scale * qt * dO[t][n][v]
                          - (flags & NO_W ? 0 : w[t][n][i] * dU[t][n][v]);
        }
}

static int mutate(struct kcp_chunk_backward *a, int flags)
{
    const int HV = a->HV, K = a->K, V = a->V, *cu = a->cu, *cn = a->cn;
    const size_t state = sizeof(double) * K * V;
    const double (*dh_out)[HV][K][V] = a->dh_out;
    double (*dh)[HV][K][V] = a->dh, (*dh_in)[HV][K][V] = a->dh_in;

    if (flags & NOTHING) return KCP_OK;
    for (int n = 0; n < HV; n++)
        for (int s = a->NS - 1; s >= 0; s--) {
            struct cut x = { .n = n, .m = n / (HV / a->H) };
            const int NC = cn[s + 1] - cn[s], go = a->part & KCP_REVERSE;
            double *dS = go ? &dh_in[s][n][0][0] : NULL;
            if (flags & WRONG_HEAD) x.m = n % a->H;
            if (go && flags & NO_RESET && s + 1 < a->NS)
                memcpy(dS, dh_in[s + 1][n], state);
            else if (go && dh_out && !(flags & NO_DHT)) memcpy(dS, dh_out[s][n], state);
            else if (go) memset(dS, 0, state);
            for (int j = 0; j < NC; j++) {
                const int c = flags & IN_ORDER ? j : NC - 1 - j;
                x.t0 = cu[s] + (int64_t)c * a->C;
                x.rows = cu[s + 1] - x.t0 < a->C ? (int)(cu[s + 1] - x.t0) : a->C;
                x.before = c > 0 ? x.t0 - 1 : x.t0 + x.rows - 1;
                if (go && j && flags & UNCARRIED) memset(dS, 0, state);
                if (a->part & KCP_LOCAL) local(a, x, flags);
                if (go && !(flags & AT_START)) memcpy(dh[cn[s] + c][n], dS, state);
                if (go) reverse(a, x, flags, dS);
                if (go && flags & AT_START) memcpy(dh[cn[s] + c][n], dS, state);
            }
        }
    return KCP_OK;
}

#define MUTANT_STAGE m09, "09_chunk_backward", "any shape", mutate
MUTANTS(MUTANT)
MUTANT_TWIN
