/* mutant.c -- the frame of the lab in which the student writes a fold that is wrong.
 *
 * Book: chapter 07, exercises.  Used by: make lab LAB=07m.  Next: survivor_main.c. */
#include "kcp.h"

#include <stdlib.h>
#include <string.h>

/* The fold of chapter 07, in double. maps [R,HV,K,V+K] are [h_ext | M]; of range[0] ..
 * range[1] - 1, in this order forward, in the other one (and with M^T) when a->pass is
 * KCP_BACKWARD: S = h of the first, then S <- M S + h of each other. The first M is not
 * read; an empty range gives S = 0. S [HV,K,V]. 0, or KCP_NO_MEMORY. */
int lab_fold(struct kcp_merge *a)
{
    //> mutant
    /* case: live kda H=1 K=224 V=4 C=16 L=8 lengths=40 */
    enum { ROWS = 160 };                       /* "no key is ever wider than that" */
    const int HV = a->HV, K = a->K, V = a->V, *range = a->range;
    const int backward = a->pass == KCP_BACKWARD, rows = K < ROWS ? K : ROWS;
    const double (*map)[HV][K][V + K] = a->maps;
    double (*S)[K][V] = a->S, (*next)[V] = malloc(sizeof(double) * (size_t)(K * V));

    if (!next)
        return KCP_NO_MEMORY;
    memset(a->S, 0, sizeof(double) * (size_t)(HV * K * V));
    for (int e = range[0]; e < range[1]; e++) {
        const int j = backward ? range[0] + range[1] - 1 - e : e, first = e == range[0];
        for (int n = 0; n < HV; n++) {
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++) {
                    next[i][v] = map[j][n][i][v];
                    for (int p = 0; p < rows && !first; p++)
                        next[i][v] += (backward ? map[j][n][p][V + i]
                                                : map[j][n][i][V + p]) * S[n][p][v];
                }
            memcpy(S[n], next, sizeof S[n]);
        }
    }
    free(next);
    return KCP_OK;
    //< mutant
}
