/* mutants.c -- computes v_new and the state with one deliberate error per flag.
 * Book: chapter 17.
 * The code is a copy of the reference with errors that a GPU kernel could also have.
 */
#include "kcp.h"

#include <math.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(decay_first, DECAY_FIRST, "errata 7: decays S, then v_new = u - w S")      \
    MUTANT(no_decay, NO_DECAY, "does not decay the state")                            \
    MUTANT(stale_decay, STALE_DECAY, "decays by the gate of the previous chunk")      \
    MUTANT(adds_w, ADDS_W, "v_new = u + w S")                                         \
    MUTANT(last_token, LAST_TOKEN, "the state omits the last token of a chunk")       \
    MUTANT(tail_of_next, TAIL_OF_NEXT,                                                \
           "adds rows after the segment's end to the state")                          \
    MUTANT(swapped_keys, SWAPPED_KEYS,                                                \
           "swaps the two columns in each mma register of w")                         \
    MUTANT(other_half, OTHER_HALF, "reads u of column (v + V/2) % V, not v")          \
    MUTANT(one_behind, ONE_BEHIND, "reads w of the previous chunk")                   \
    MUTANT(no_h_in, NO_H_IN, "the state starts from 0")                               \
    MUTANT(writes_nothing, NOTHING, "returns at once")                                \
    MUTANT(one_nan, ONE_NAN, "writes one NaN")
#include "tests/mutants.h"

struct cut { int64_t t0; int len, n, behind; };

static void decay_by(const double *decay, int K, int V, int flags, double *S)
{
    for (int i = 0; i < K && !(flags & NO_DECAY); i++)
        for (int v = 0; v < V; v++) S[i * V + v] *= decay[i];
}

/* Computes one chunk. SWAPPED_KEYS swaps columns 2i and 2i + 1 of w. OTHER_HALF reads u
 * of column (v + V/2) % V. z.behind selects earlier rows of w. */
static void one(const struct kcp_ladder *a, struct cut z, const double *decay,
                int flags, double *S)
{
    const int HV = a->HV, K = a->K, V = a->V, last = z.len - 1;
    const double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg;
    double (*v_new)[HV][V] = a->v_new;
    if (flags & DECAY_FIRST) decay_by(decay, K, V, flags, S);
    for (int64_t t = z.t0; t < z.t0 + z.len; t++)
        for (int v = 0; v < V; v++) {
            double x = u[t][z.n][flags & OTHER_HALF ? (v + V / 2) % V : v];
            for (int p = 0; p < K; p++) {
                const int q = flags & SWAPPED_KEYS && (p ^ 1) < K ? p ^ 1 : p;
                x += (flags & ADDS_W ? 1 : -1) * w[t - z.behind][z.n][q] * S[p * V + v];
            }
            v_new[t][z.n][v] = x;
        }
    if (!(flags & DECAY_FIRST)) decay_by(decay, K, V, flags, S);
    for (int j = 0; j < z.len; j++) {
        const int64_t t = z.t0 + j;
        if (flags & LAST_TOKEN && j == last && z.len > 1) continue;
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++)
                S[i * V + v] += kg[t][z.n][i] * v_new[t][z.n][v];
    }
    for (int64_t t = z.t0 + z.len; flags & TAIL_OF_NEXT && t < z.t0 + a->C && t < a->T;
         t++)                                  /* rows after the segment's end */
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) S[i * V + v] += kg[t][z.n][i] * u[t][z.n][v];
}

static int wrong(void *args, int flags)
{
    const struct kcp_ladder *a = args;
    const int HV = a->HV, KV = a->K * a->V, *cu = a->cu, *cn = a->cn;
    const double (*decay)[HV][a->K] = a->decay;
    const double *h_in = flags & NO_H_IN ? NULL : a->h_in;
    for (int s = 0; s < a->NS && !(flags & NOTHING); s++)
        for (int n = 0; n < HV; n++) {
            double *S = (double *)a->h_out + ((size_t)s * HV + n) * KV;
            const double *from = h_in ? h_in + ((size_t)s * HV + n) * KV : NULL;
            for (int i = 0; i < KV; i++) S[i] = from ? from[i] : 0;
            for (int c = cn[s]; c < cn[s + 1]; c++) {
                const int behind = flags & ONE_BEHIND && c > cn[s] ? a->C : 0;
                const int64_t t0 = cu[s] + (int64_t)(c - cn[s]) * a->C;
                const int64_t left = cu[s + 1] - t0;
                const int len = left < a->C ? (int)left : a->C;
                const int of = flags & STALE_DECAY && c > cn[s] ? c - 1 : c;
                one(a, (struct cut){ t0, len, n, behind }, decay[of][n], flags, S);
            }
        }
    if (flags & ONE_NAN) ((double *)a->v_new)[0] = NAN;
    return KCP_OK;
}

#define MUTANT_STAGE m17, "17_ladder", "any", wrong
MUTANTS(MUTANT)
MUTANT_TWIN
