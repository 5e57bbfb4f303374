/* 06_owners.c -- assigns ranges of tokens to ranks, and copies a shard's rows.
 * Book: chapter 06. */
#include "ref.h"

#include <stdlib.h>
#include <string.h>

/* Returns the number of ranges of a sequence of `length` tokens. */
static int64_t pieces(enum kcp_spread spread, int64_t length, int R, int64_t stripe)
{
    if (spread == KCP_ZIGZAG) return 2 * (int64_t)R;
    if (spread == KCP_STRIPED)
        return length / stripe + (length % stripe != 0);    /* rounded up */
    return R;
}

/* owner_of() returns the rank that owns range i of a sequence. begin_of() returns the
 * range's first token, without overflow: min(i * stripe, length) if the ranges are
 * stripes, otherwise floor(i * length / P), where P is the number of ranges. */
//> zigzag
static int owner_of(enum kcp_spread spread, int64_t i, int R)
{
    if (spread == KCP_ZIGZAG) return (int)(i < R ? i : 2 * (int64_t)R - 1 - i);
    return (int)(i % R);
}

static int64_t begin_of(enum kcp_spread spread, int64_t i, int64_t length, int R,
                        int64_t stripe)
{
    const int64_t P = pieces(spread, length, R, stripe);
    if (spread != KCP_STRIPED) return length / P * i + length % P * i / P;
    return i * stripe < length ? i * stripe : length;
}
//< zigzag

static const char *refuse(enum kcp_spread spread, int N, const int64_t *cu, int R,
                          int64_t stripe, int64_t *B)
{
    if ((int)spread < KCP_CONTIGUOUS || (int)spread > KCP_STRIPED)
        return "the layout is not contiguous, zigzag or striped";
    if (N < 0 || !cu || cu[0] != 0)
        return "N < 0, cu_seqlens is NULL, or cu_seqlens[0] is not 0";
    if (R < 1 || R > 65536) return "R, the number of ranks, is not in 1..65536";
    if (spread == KCP_STRIPED && stripe < 1)
        return "the stripe is too short: expected 1 token or more per stripe";
    *B = 0;
    for (int n = 0; n < N; n++) {
        if (cu[n + 1] < cu[n]) return "cu_seqlens decreases";
        *B += pieces(spread, cu[n + 1] - cu[n], R, stripe);
        if (*B > 1 << 26) return "the table of owners has more than 2^26 ranges";
    }
    if (spread == KCP_CONTIGUOUS) *B = R;
    return NULL;
}

int kcp_owners_make(struct kcp_owners *o, enum kcp_spread spread, int N,
                    const int64_t *cu, int R, int64_t stripe, const char **why)
{
    const char *unread;
    int64_t B = 0;
    why = why ? why : &unread;
    *why = "owners: the pointer to the struct to fill is NULL";
    if (!o) return KCP_BAD;
    *o = (struct kcp_owners){ 0 };
    *why = refuse(spread, N, cu, R, stripe, &B);
    if (*why) return KCP_BAD;
    const int64_t whole[] = { 0, cu[N] };
    const int all = spread == KCP_CONTIGUOUS || B == 0;
    if (all) {
        cu = whole;
        N = 1;
        spread = KCP_CONTIGUOUS;
        B = R;
    }
    o->bound = malloc(sizeof *o->bound * (B + 1));
    o->owner = malloc(sizeof *o->owner * (B + 1));
    if (!o->bound || !o->owner) {
        *why = "out of memory";
        kcp_owners_free(o);
        return KCP_NO_MEMORY;
    }
    o->bound[0] = 0;
    for (int n = 0; n < N; n++) {
        const int64_t length = cu[n + 1] - cu[n];
        const int64_t P = pieces(spread, length, R, stripe);
        for (int64_t i = 0; i < P; i++) {
            o->owner[o->B++] = owner_of(spread, i, R);
            o->bound[o->B] = cu[n] + begin_of(spread, i + 1, length, R, stripe);
        }
    }
    return KCP_OK;
}

void kcp_owners_free(struct kcp_owners *o)
{
    if (!o) return;
    free(o->bound);
    free(o->owner);
    *o = (struct kcp_owners){ 0 };
}

/* ---- rows */

//> rows
void kcp_plan_take(const struct kcp_plan *p, int r, size_t row, const void *whole,
                   void *shard)
{
    if (!p || !whole || !shard || r < 0 || r >= p->R) return;
    const struct kcp_context *x = &p->ctx[r];
    for (int s = 0; s < x->NS; s++) {
        const struct kcp_segment *g = &p->seg[x->seg0 + s];
        memcpy((char *)shard + x->cu[s] * row, (const char *)whole + g->begin * row,
               (size_t)(g->end - g->begin) * row);
    }
}

void kcp_plan_give(const struct kcp_plan *p, int r, size_t row, const void *shard,
                   void *whole)
{
    if (!p || !whole || !shard || r < 0 || r >= p->R) return;
    const struct kcp_context *x = &p->ctx[r];
    for (int s = 0; s < x->NS; s++) {
        const struct kcp_segment *g = &p->seg[x->seg0 + s];
        memcpy((char *)whole + g->begin * row, (const char *)shard + x->cu[s] * row,
               (size_t)(g->end - g->begin) * row);
    }
}
//< rows

/* Returns the batch position of token i of the concatenated shards (-1: no token i). */
int64_t kcp_plan_token(const struct kcp_plan *p, int64_t i)
{
    for (int j = 0; p && i >= 0 && j < p->S; j++) {
        const int64_t length = p->seg[j].end - p->seg[j].begin;
        if (i < length) return p->seg[j].begin + i;
        i -= length;
    }
    return -1;
}
