/* liar.c -- variants that lie about themselves, one a word: -DLIE=name.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh, which
 * wants a failure of each.  Next: tests/judge/isolation.c.
 * The honest one beneath computes what chapter 07 says, forward and backward. */
#define _GNU_SOURCE
#include "kcp.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HONEST, EXITS, EXITS_AT_ONCE, HANGS, CRASHES, KILLS_ITSELF, SPEAKS, REFUSES,
       NAMED, NO_GPU, EXITS_LOADED, HANGS_LOADED, EXITS_LATE, NO_BACKWARD, ONCE,
       EMPTY, ONCE_WIDE };

/* S <- M S + h, map after map; the first gives its h alone. */
static int honest(struct kcp_merge *a)
{
    const int K = a->K, V = a->V, W = V + K, *range = a->range;
    const double *maps = a->maps;
    double *S = a->S, *next = malloc(sizeof *next * (size_t)(K * V));
    const int back = a->pass == KCP_BACKWARD, count = range[1] - range[0];
    for (int n = 0; n < a->HV && next; n++, S += K * V) {
        memset(S, 0, sizeof *S * (size_t)(K * V));
        for (int step = 0; step < count; step++) {
            const int j = back ? range[1] - 1 - step : range[0] + step;
            const double *map = maps + ((int64_t)j * a->HV + n) * K * W;
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++) {
                    double x = map[i * W + v];
                    for (int p = 0; p < K && step; p++)
                        x += map[back ? p * W + V + i : i * W + V + p] * S[p * V + v];
                    next[i * V + v] = x;
                }
            memcpy(S, next, sizeof *S * (size_t)(K * V));
        }
    }
    free(next);
    return KCP_OK;
}

/* Whatever is open takes a verdict of ours: PASS is all zeros. */
static void speak(void)
{
    static char words[4096];
    for (int fd = 3; fd < 40; fd++)
        if (write(fd, words, sizeof words) < 0) continue;
    printf("1 passed, 0 failed, 0 skipped\n");
    fflush(stdout);
    _exit(0);
}

/* The fiftieth call in a row of one size? Of the larger ones, which alone are taken. */
static int is_fiftieth(const struct kcp_merge *a)
{
    static int K, V, HV, calls;
    const int same = K == a->K && V == a->V && HV == a->HV;
    calls = same ? calls + 1 : 1;
    K = a->K;
    V = a->V;
    HV = a->HV;
    return calls == 50;
}

static int run(void *args)
{
    static int runs;
    struct kcp_merge *a = args;
    if (LIE == ONCE_WIDE && (a->K < 64 || a->V < 64)) return KCP_NA;
    const int status = honest(a);
    runs++;
    if (LIE == EXITS) exit(0);
    if (LIE == EXITS_AT_ONCE) _exit(0);
    if (LIE == EXITS_LATE && runs == 5) _exit(0);
    if (LIE == HANGS && runs > 1) for (;;) sleep(1);
    if (LIE == CRASHES) *(volatile int *)8 = 1;
    if (LIE == KILLS_ITSELF) kill(getpid(), SIGKILL);
    if (LIE == SPEAKS) speak();
    if (LIE == REFUSES) return KCP_NA;
    if (LIE == NO_BACKWARD && a->pass == KCP_BACKWARD) return KCP_NA;
    if (LIE == ONCE && runs % 50 == 7) *(double *)a->S += 1;
    if (LIE == ONCE_WIDE && is_fiftieth(a)) *(double *)a->S += 1;
    if (LIE == EMPTY && ((int *)a->range)[0] == ((int *)a->range)[1])
        *(double *)a->S += 1;
    if (LIE == NAMED) *(double *)a->S += 1;
    return status;
}

static const struct kcp_variant liar = {
    "07_merge", LIE == NAMED ? "mutant_liar" : "liar", "not what it says", KCP_F64,
    LIE == NO_GPU ? KCP_DEVICE : KCP_HOST, "any shape", run, NULL };
const struct kcp_variant *const kcp_variant = &liar;

__attribute__((constructor)) static void loaded(void)
{
    if (LIE == EXITS_LOADED) _exit(0);
    if (LIE == HANGS_LOADED) for (;;) sleep(1);
}

