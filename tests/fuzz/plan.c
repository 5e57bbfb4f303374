/* plan.c -- makes a plan from random numbers. Either the numbers are rejected with a
 * message, or each token must be in one segment, on the rank that holds the token.
 *
 * Book: chapter 06.  Checked by: make fuzz.  Next: main.c.
 *
 * Input bytes: N, R, C, L, Wc, flags, then N+1 boundaries and, with flag 1, R+1 cuts.
 * With flag 2, boundaries and cuts are sums of increments, and so mostly valid; without
 * flag 2, they are any numbers. */
#include "ref.h"
#include "tests/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes { const uint8_t *at, *end; };

static int64_t take(struct bytes *b, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++)
        x |= (uint64_t)(b->at < b->end ? *b->at++ : 0) << 8 * i;
    return (int64_t)x;
}

static void numbers(struct bytes *b, int n, int steps, int64_t *to)
{
    for (int i = 0; i < n; i++) {
        if (!steps) to[i] = take(b, 8);
        else to[i] = i ? to[i - 1] + take(b, 1) % 37 : 0;
    }
}

/* Checks that segments tile the tokens, each inside one sequence and one rank, and that
 * the grid of each rank covers the rank's tokens. tests/06_plan checks every field. */
static void segments(const struct kcp_plan *p)
{
    int64_t at = 0;
    for (int j = 0; j < p->S; j++) {
        const struct kcp_segment *s = &p->seg[j];
        MUST(s->begin == at && s->end > at && s->n >= 0 && s->n < p->N);
        MUST(s->begin >= p->cu_seqlens[s->n] && s->end <= p->cu_seqlens[s->n + 1]);
        MUST(s->begin >= p->cuts[s->rank] && s->end <= p->cuts[s->rank + 1]);
        MUST(s->first == (s->begin == p->cu_seqlens[s->n]));
        MUST(s->last == (s->end == p->cu_seqlens[s->n + 1]));
        MUST(j == 0 || s->rank >= p->seg[j - 1].rank);
        at = s->end;
    }
    MUST(at == p->T);
    for (int r = 0; r < p->R; r++) {
        const struct kcp_context *x = &p->ctx[r];
        MUST(x->begin == p->cuts[r] && x->end == p->cuts[r + 1] && x->begin <= x->end);
        MUST(x->cu[x->NS] == x->end - x->begin && x->cn[x->NS] == x->NC);
        for (int s = 0; s < x->NS; s++)
            for (int c = x->cn[s]; c < x->cn[s + 1]; c++)
                MUST(x->sc[c] == s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes b = { data, data + size };
    const int flags = (int)take(&b, 1), N = (int)take(&b, 1) % 20;
    const int R = (int)(int8_t)take(&b, 1), Wc = (int)(int8_t)take(&b, 1);
    const int C = (int)(int16_t)take(&b, 2);
    const int64_t L = (int16_t)take(&b, 2);
    int64_t cu[21], cuts[130];
    numbers(&b, N + 1, flags & 2, cu);
    if (R > 0)
        numbers(&b, R + 1, flags & 2, cuts);
    if (R > 0 && flags & 4)
        cuts[R] = cu[N];                 /* right end, any order */
    /* Skip valid plans with many chunks, which would take seconds. */
    if (cu[N] / (C > 0 ? C : 1) > 100000 || (L > 0 && cu[N] / L > 100000))
        return 0;

    struct kcp_plan *p;
    const char *why = NULL;
    const int status = kcp_plan_make(&p, N, cu, R, flags & 1 ? cuts : NULL, L, C, Wc,
                                     &why);
    MUST(status == KCP_OK || status == KCP_BAD || status == KCP_NO_MEMORY);
    if (status) {
        MUST(p == NULL && why && why[0]);
        return 0;
    }
    MUST(p->T == cu[N] && p->R == R && p->cuts[0] == 0 && p->cuts[R] == p->T);
    segments(p);
    kcp_plan_free(p);
    return 0;
}
