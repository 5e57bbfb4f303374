/* mutants.c -- merges maps into a state with one deliberate error per flag.
 * Book: chapter 07.
 * The code is a copy of the reference, because mutants must not call it.
 */
#include "kcp.h"
#include "base/bf16.h"

#include <stdlib.h>
#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(no_M, NO_M, "the state is only h_ext of the nearest rank")                 \
    MUTANT(turned, TURNED, "errata 18: swaps M and M^T")                              \
    MUTANT(next_M, NEXT_M, "errata 18: M S + h takes M from the rank after h's rank") \
    MUTANT(outward, OUTWARD,                                                          \
           "errata 19: applies maps in reverse: nearest rank first")                  \
    MUTANT(forward_only, FORWARD_ONLY,                                                \
           "errata 17: backward applies maps in forward's order, not in reverse")     \
    MUTANT(one_less, ONE_LESS, "off by one: omits the map of the nearest rank")       \
    MUTANT(late_start, LATE_START, "off by one: omits the map of the farthest rank")  \
    MUTANT(wrong_head, WRONG_HEAD,                                                    \
           "HV > H: reads M of the query head, not of the value head")                \
    MUTANT(first_twice, FIRST_TWICE,                                                  \
           "starts from h of the first map instead of from 0")                        \
    MUTANT(not_zero, NOT_ZERO, "does not set S to 0 if there is no map to apply")     \
    MUTANT(M_before_h, M_BEFORE_H, "reads the map as [M | h_ext]")                    \
    MUTANT(h_once, H_ONCE, "adds h_ext of the first map, but not of later maps")      \
    MUTANT(no_last_row, NO_LAST_ROW, "off by one: M S omits the last row of S")       \
    MUTANT(writes_nothing, NOTHING, "returns at once")
#include "tests/mutants.h"
enum { BF16_M = 1 << 30 };         /* not in the list: its record names other shapes */

/* Returns M[i][p] (backward: M[p][i]) of map j, head n. Flags f select errors. */
static double M_of(const struct kcp_merge *a, int f, int j, int n, int i, int p)
{
    const int HV = a->HV, K = a->K, V = a->V, *range = a->range;
    const double (*map)[HV][K][V + K] = a->maps;
    const int turned = (a->pass == KCP_BACKWARD) != !!(f & TURNED);
    const int at = f & M_BEFORE_H ? 0 : V;
    if (f & NEXT_M) j += a->pass == KCP_BACKWARD ? -(j > range[0]) : j + 1 < range[1];
    if (f & WRONG_HEAD) n = n / (HV / a->H);
    const double M = turned ? map[j][n][p][at + i] : map[j][n][i][at + p];
    return f & BF16_M ? bf16_value(bf16_of(M)) : M;
}

static int mutate(void *args, int f)
{
    const struct kcp_merge *a = args;
    const int HV = a->HV, K = a->K, V = a->V, *range = a->range;
    const double (*map)[HV][K][V + K] = a->maps;
    double (*S)[K][V] = a->S, (*next)[V] = malloc(sizeof(double) * K * V);
    int back = a->pass == KCP_BACKWARD, j0 = range[0], j1 = range[1];

    if (!next) return KCP_NO_MEMORY;
    if (f & OUTWARD) back = !back;
    if (f & FORWARD_ONLY) back = 0;
    for (int n = 0; n < HV && j0 >= j1 && !(f & (NOT_ZERO | NOTHING)); n++)
        memset(S[n], 0, sizeof S[n]);
    if (f & ONE_LESS && j1 - j0 > 1) back ? j0++ : j1--;
    if (f & LATE_START && j1 - j0 > 1) back ? j1-- : j0++;
    for (int e = j0; e < j1 && !(f & NOTHING); e++) {
        const int j = back ? j0 + j1 - 1 - e : e, first = e == j0;
        const int last_row = f & NO_LAST_ROW ? K - 1 : K;
        for (int n = 0; n < HV; n++) {
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++) {
                    const double h = map[j][n][i][(f & M_BEFORE_H ? K : 0) + v];
                    next[i][v] = f & H_ONCE && !first ? 0 : h;
                    for (int p = 0; p < last_row && !first && !(f & NO_M); p++)
                        next[i][v] += M_of(a, f, j, n, i, p) * S[n][p][v];
                    for (int p = 0; p < K && first && f & FIRST_TWICE; p++)
                        next[i][v] += M_of(a, f, j, n, i, p) * map[j][n][p][v];
                }
            memcpy(S[n], next, sizeof S[n]);
        }
    }
    free(next);
    return KCP_OK;
}

#define MUTANT_STAGE m07, "07_merge", "any shape", mutate
MUTANTS(MUTANT)
MUTANT_TWIN
MUTANT_RECORD(m07, "07_merge", "any shape, double only", mutate, bf16_M,
              "mutant_bf16_M", BF16_M, "rounds M to bf16")
