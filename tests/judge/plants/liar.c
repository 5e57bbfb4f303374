/* liar.c -- variants of stage 07 that crash, hang or misbehave; -DLIE=name selects one.
 * Book: CONTRIBUTING.md, "How the judge works". */
#define _GNU_SOURCE
#include "kcp.h"
#include "ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HONEST, EXITS, HANGS, CRASHES, TAKES_MEMORY, REFUSES, NAMED, NO_GPU,
       EXITS_LOADED, HANGS_LOADED, EXITS_LATE, NO_BACKWARD, ONCE, EMPTY, ONCE_WIDE,
       NO_FORWARD, SOME, SOME_SAID, MARKS, TWICE, NOTHING };

/* Marks the workspace as prepared for this size. Returns 1 if the workspace had the
 * mark of another size. */
static int is_marked(const struct kcp_merge *a)
{
    int64_t *work = a->work, numbers = (int64_t)a->HV * a->K * a->V;
    const int was = work[0] == 0x4d41524b && work[1] != numbers;
    work[0] = 0x4d41524b;
    work[1] = numbers;
    return was;
}

static size_t work_of(const void *args)
{
    const struct kcp_merge *a = args;
    return sizeof(int64_t) * (size_t)(2 + a->HV * a->K * a->V);
}

/* Tries to allocate 16 GiB. Returns KCP_NO_MEMORY if a limit prevents it. */
static int take_memory(void)
{
    size_t taken = 0;
    for (char *p; taken < (size_t)16 << 30 && (p = malloc(1 << 28)); taken += 1 << 28)
        p[0] = 1;
    if (taken >> 30 < 16) return KCP_NO_MEMORY;
    fprintf(stderr, "16 GiB allocated, no limit\n");
    return KCP_OK;
}

/* Returns 1 in the fiftieth consecutive call with equal sizes. */
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
    if (LIE == NOTHING) return KCP_OK;
    if (LIE == ONCE_WIDE && (a->K < 64 || a->V < 64)) return KCP_NA;
    const int status = ref_merge(a);
    runs++;
    if (LIE == EXITS) exit(0);
    if (LIE == EXITS_LATE && runs == 5) _exit(0);
    if (LIE == HANGS && runs > 1) for (;;) sleep(1);
    if (LIE == CRASHES) *(volatile int *)8 = 1;
    if (LIE == TAKES_MEMORY) return take_memory();
    if (LIE == REFUSES) return KCP_NA;
    if (LIE == NO_BACKWARD && a->pass == KCP_BACKWARD) return KCP_NA;
    if (LIE == NO_FORWARD && a->pass == KCP_FORWARD) return KCP_NA;
    if ((LIE == SOME || LIE == SOME_SAID) && a->V > 8) return KCP_NA;
    if (LIE == MARKS && is_marked(a)) *(double *)a->S += 1;
    if (LIE == TWICE && runs % 3 == 2) *(double *)a->S += 1;
    if (LIE == ONCE && runs % 50 == 7) *(double *)a->S += 1;
    if (LIE == ONCE_WIDE && is_fiftieth(a)) *(double *)a->S += 1;
    if (LIE == EMPTY && ((int *)a->range)[0] == ((int *)a->range)[1])
        *(double *)a->S += 1;
    if (LIE == NAMED) *(double *)a->S += 1;
    return status;
}

#define IS_FEW (LIE == REFUSES || LIE == SOME_SAID || LIE == ONCE_WIDE)
#define SHAPES (IS_FEW ? "V up to 8, or from 64 on" : "any shape")
static const struct kcp_variant liar = {
    "07_merge", LIE == NAMED ? "mutant_liar" : "liar", "misbehaves", KCP_F64,
    LIE == NO_GPU ? KCP_DEVICE : KCP_HOST, SHAPES, run, LIE == MARKS ? work_of : NULL };
const struct kcp_variant *const kcp_variant = &liar;

__attribute__((constructor)) static void loaded(void)
{
    if (LIE == EXITS_LOADED) _exit(0);
    if (LIE == HANGS_LOADED) for (;;) sleep(1);
}

