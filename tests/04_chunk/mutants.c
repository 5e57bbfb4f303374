/* mutants.c -- computes states and outputs with one deliberate error per flag.
 * Book: chapter 04, appendix A.
 * The code is a copy of the reference, because mutants must not call it.
 */
#include "kcp.h"
#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(decay_first, DECAY_FIRST, "errata 7: decays S, then v_new = u - w S")      \
    MUTANT(no_gate_k, NO_GATE_K, "errata 9, 10: k omits exp2(G_last - G)")            \
    MUTANT(no_gate_q, NO_GATE_Q, "errata 10: GDN's q omits exp2(G)")                  \
    MUTANT(per_token, PER_TOKEN,                                                      \
           "errata 5: updates the state after each token, not after a chunk")         \
    MUTANT(no_scale, NO_SCALE, "errata 27: omits scale in qg S")                      \
    MUTANT(scale_twice, SCALE_TWICE, "scales Aqk twice")                              \
    MUTANT(no_h_in, NO_H_IN, "the state starts from 0")                               \
    MUTANT(no_reset, NO_RESET,                                                        \
           "a sequence starts from the previous sequence's state")                    \
    MUTANT(stale_gate, STALE_GATE,                                                    \
           "decays the state by G of the chunk's second-last row")                    \
    MUTANT(no_decay, NO_DECAY, "does not decay the state")                            \
    MUTANT(no_diagonal, NO_DIAGONAL, "Aqk v_new omits Aqk's diagonal")                \
    MUTANT(adds_w, ADDS_W, "v_new = u + w S")                                         \
    MUTANT(wrong_head, WRONG_HEAD, "GDN: value head n reads q and k of head n % H")   \
    MUTANT(h_after, H_AFTER, "stores in h the state after a chunk, not before it")    \
    MUTANT(short_tail, FULL_CHUNK, "drops the last row of a partial chunk")           \
    MUTANT(turned, TURNED, "v_new = u - w S^T")                                       \
    MUTANT(uncarried, UNCARRIED, "each chunk except the first starts from state 0")   \
    MUTANT(writes_nothing, NOTHING, "returns at once")                                \
    MUTANT(one_nan, ONE_NAN, "writes one NaN")
#include "tests/mutants.h"
enum { ROUNDED = 1 << 30 };         /* not in the list: its record names other shapes */

struct cut { int64_t t0; int rows, n, m; };

static double bf16(double x) { return bf16_value(bf16_of(x)); }

static double key(const struct kcp_chunk *a, struct cut x, int64_t t, int i, int flags)
{
    const double (*G)[a->HV][a->KG] = a->G;
    if (a->model == KCP_KDA && flags & NO_GATE_K && a->KG > 1) {     /* undo the gate */
        const double g = G[x.t0 + x.rows - 1][x.n][i] - G[t][x.n][i];
        return ((const double (*)[a->HV][a->K])a->kg)[t][x.n][i] / exp2(g);
    }
    if (a->model == KCP_KDA) return ((const double (*)[a->HV][a->K])a->kg)[t][x.n][i];
    const double g = G[x.t0 + x.rows - 1][x.n][0] - G[t][x.n][0];
    return ((const double (*)[a->H][a->K])a->k)[t][x.m][i] *
           (flags & NO_GATE_K ? 1 : exp2(g));
}

static double query(const struct kcp_chunk *a, struct cut x, int64_t t, int i,
                    int flags)
{
    const double (*G)[a->HV][a->KG] = a->G;
    if (a->model == KCP_KDA) return ((const double (*)[a->HV][a->K])a->qg)[t][x.n][i];
    return ((const double (*)[a->H][a->K])a->q)[t][x.m][i] *
           (flags & NO_GATE_Q ? 1 : exp2(G[t][x.n][0]));
}

static void decay(const struct kcp_chunk *a, struct cut x, int flags, double *S)
{
    const double (*G)[a->HV][a->KG] = a->G;
    const int64_t last = x.t0 + x.rows - (flags & STALE_GATE && x.rows > 1 ? 2 : 1);
    for (int i = 0; i < a->K && !(flags & NO_DECAY); i++)
        for (int v = 0; v < a->V; v++)
            S[i * a->V + v] *= exp2(G[last][x.n][a->KG > 1 ? i : 0]);
}

static void one(const struct kcp_chunk *a, struct cut x, int flags, double *S)
{
    const int K = a->K, V = a->V;
    const double (*u)[a->HV][V] = a->u, (*w)[a->HV][K] = a->w;
    const double (*Aqk)[a->HV][a->C] = a->Aqk;
    double (*o)[a->HV][V] = a->o, (*v_new)[a->HV][V] = a->v_new;
    const double scale = flags & NO_SCALE ? 1 : a->scale;
    if (flags & DECAY_FIRST) decay(a, x, flags, S);
    for (int r = 0; r < x.rows; r++) {
        const int64_t t = x.t0 + r;
        for (int v = 0; v < V; v++) {
            double s = u[t][x.n][v], y = 0, wS = 0;
            for (int i = 0; i < K; i++) {
                const int at = i * V + v;
                const double Siv = S[flags & TURNED ? at * K % (K * V) : at];
                wS += (flags & ADDS_W ? -1 : 1) * w[t][x.n][i] * Siv;
                y += scale * query(a, x, t, i, flags) * S[i * V + v];
            }
            s -= flags & ROUNDED ? bf16(wS) : wS;
            v_new[t][x.n][v] = s;
            for (int j = 0; j <= r - !!(flags & NO_DIAGONAL); j++)
                y += Aqk[t][x.n][j] * (flags & SCALE_TWICE ? a->scale : 1) *
                     v_new[x.t0 + j][x.n][v];
            o[t][x.n][v] = y;
        }
        for (int i = 0; i < K && flags & PER_TOKEN; i++)         /* errata 5 */
            for (int v = 0; v < V; v++)
                S[i * V + v] += key(a, x, t, i, flags) * v_new[t][x.n][v];
    }
    if (!(flags & DECAY_FIRST)) decay(a, x, flags, S);
    for (int r = 0; r < x.rows && !(flags & PER_TOKEN); r++)
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++)
                S[i * V + v] += key(a, x, x.t0 + r, i, flags) * v_new[x.t0 + r][x.n][v];
}

static int wrong(void *args, int flags)
{
    const struct kcp_chunk *a = args;
    const int *cu = a->cu, *cn = a->cn, kv = a->K * a->V;
    const double *h_in = flags & NO_H_IN ? NULL : a->h_in;
    double *S = calloc(kv, sizeof *S), *h = a->h, *h_out = a->h_out;
    if (!S) return KCP_NO_MEMORY;
    for (int n = 0; n < a->HV && !(flags & NOTHING); n++)
        for (int s = 0; s < a->NS; s++) {
            const size_t at = ((size_t)s * a->HV + n) * kv;
            const int m = flags & WRONG_HEAD ? n % a->H : n / (a->HV / a->H);
            if (!(flags & NO_RESET && s))
                for (int i = 0; i < kv; i++) S[i] = h_in ? h_in[at + i] : 0;
            for (int c = cn[s]; c < cn[s + 1]; c++) {
                const int64_t t0 = cu[s] + (int64_t)(c - cn[s]) * a->C;
                const int64_t left = cu[s + 1] - t0;
                int rows = left < a->C ? (int)left : a->C;
                if (flags & FULL_CHUNK && rows < a->C && rows > 1) rows--;
                double *to = h + ((size_t)c * a->HV + n) * kv;
                if (flags & UNCARRIED && c > cn[s]) memset(S, 0, sizeof *S * kv);
                if (!(flags & H_AFTER)) memcpy(to, S, sizeof *S * kv);
                one(a, (struct cut){ t0, rows, n, m }, flags, S);
                if (flags & H_AFTER) memcpy(to, S, sizeof *S * kv);
            }
            memcpy(h_out + at, S, sizeof *S * kv);
        }
    free(S);
    if (flags & ONE_NAN) ((double *)a->o)[0] = NAN;
    return KCP_OK;
}

#define MUTANT_STAGE m04, "04_chunk", "any", wrong
MUTANTS(MUTANT)
MUTANT_TWIN
/* Mutant `rounded` is not judged in bf16, because a correct bf16 kernel rounds S before
 * it computes w S, and this rounding causes an error of equal size. */
MUTANT_RECORD(m04, "04_chunk", "any, float only", wrong, rounded,
              "mutant_rounded", ROUNDED, "rounds w S to bf16 before u - w S")
