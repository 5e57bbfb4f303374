/* mutants.h -- repeats the functions of 16_form.c, with errors selected by flags.
 * Book: chapter 16.
 *
 * Ranks are threads, so `flags` is thread-local.
 */
#pragma once

#include "tests/judge/judge.h"
#include "ref/16_family.h"
#include <math.h>
#include <string.h>

enum {
    WRITE_UNDECAYED = 1, WRITE_EARLY = 2, READ_STRICT = 4, READ_EARLY = 8,
    NO_SCALE = 16,
    NO_STATE_IN_DK = 32, DECAYED_TWICE = 64, SHARED = 128
};
static _Thread_local int flags;

static inline int query_row(const struct family_chunk *x, int i)
{
    return (i + 1) * x->rows - 1;
}

static inline void write_(const struct family_chunk *x, struct family_rows k, int r)
{
    const double *G_last = row(x->G, x->c - 1);
    for (int j = 0; j < x->c; j++) {
        const int e = j * x->rows + r, early = flags & WRITE_EARLY && j;
        for (int p = 0; p < x->K; p++) {
            const double G = row(x->G, j - early)[p];
            const int times = flags & DECAYED_TWICE ? 2 : 1;
            const double decay = exp2(times * (G_last[p] - G));
            drow(x->kg, e)[p] = row(k, j)[p] * (flags & WRITE_UNDECAYED ? 1 : decay);
        }
        for (int i = j + !!(flags & READ_STRICT); i < x->c; i++)
            drow(x->Aqk, query_row(x, i))[e] = (flags & NO_SCALE ? 1 : x->scale) *
                                              family_score(x, x->q, i, i, k, j);
    }
}

static inline void read_(const struct family_chunk *x)
{
    for (int i = 0; i < x->c; i++)
        family_gated(x, x->q, i, flags & READ_EARLY ? i - 1 : i,
                     drow(x->qg, query_row(x, i)));
}

static inline void write_back(const struct family_chunk *x, struct family_rows k, int r)
{
    if (!(flags & NO_STATE_IN_DK)) {
        family_write_back(x, k, r);
        return;
    }
    for (int j = 0; j < x->c; j++)
        for (int i = j; i < x->c; i++)
            family_score_back(x, row(x->dAqk, query_row(x, i))[j * x->rows + r], x->q,
                              i,
                              i, k, j);
}

/* Defines a variant with one error in one model. Other models return KCP_NA. */
#define WRONG(MODEL, model, ident, flag, why)                                         \
    static int run_##ident(void *args)                                                \
    {                                                                                 \
        const struct kcp_family *a = args;                                            \
        flags = (flag);                                                               \
        return a->model == (MODEL) ? kcp_family_run(&model, a) : KCP_NA;              \
    }                                                                                 \
    KCP_VARIANT(family_##ident) = { "16_family", #ident, why, KCP_F64, KCP_HOST,      \
                                    "one model", run_##ident, NULL };
