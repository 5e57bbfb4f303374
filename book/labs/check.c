/* check.c -- the file of lab 07b: a student's check of a fold, S <- M_j S + h_j.
 * Book: chapter 07, exercises.  Used by: make lab LAB=07b. */
#include "kcp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns 1 if `merge`, a function of stage 07, is right. `args` is a struct kcp_merge
 * (ref/stages.h); choose all sizes yourself. The arrays are double: maps
 * [R,HV,K,V+K], S [HV,K,V]. */
int lab_check(int (*merge)(void *args))
{
    //> check
    enum { R = 4, K = 3, V = 2 };
    double maps[R][K][V + K], S[K][V], want[K][V], next[K][V];
    unsigned z = 12345;
    for (int j = 0; j < R; j++)
        for (int i = 0; i < K; i++)
            for (int p = 0; p < V + K; p++)
                maps[j][i][p] = (z = z * 1664525u + 1013904223u) / 4294967296.0 - .4;
    for (int backward = 0; backward < 2; backward++) {
        const int range[2] = { 0, R };
        struct kcp_merge a = { .R = R, .H = 1, .HV = 1, .K = K, .V = V, .N = 1,
                               .pass = backward ? KCP_BACKWARD : KCP_FORWARD,
                               .range = range, .maps = maps, .S = S };
        memset(want, 0, sizeof want);
        memset(S, 0, sizeof S);
        for (int s = 0; s < R; s++) {
            const int j = backward ? R - 1 - s : s;
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++) {
                    next[i][v] = maps[j][i][v];
                    for (int p = 0; p < K; p++)
                        next[i][v] += want[p][v] * (backward ? maps[j][p][V + i]
                                                             : maps[j][i][V + p]);
                }
            memcpy(want, next, sizeof want);
        }
        if (merge(&a)) return 0;
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++)
                if (!(fabs(S[i][v] - want[i][v]) <= 1e-12)) return 0;
    }
    return 1;
    //< check
}
