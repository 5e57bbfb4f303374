/* 06_refresh.c -- reuses the memory of a plan for the next batch.
 * Book: chapter 06, "The next batch".
 *
 * Plans may differ in sequence lengths, but not in array sizes. The next plan is copied
 * to the old plan, so args structs and CUDA graphs that use it stay valid. */
#include "checked.h"

#include <string.h>

/* Returns NULL if both plans have equal sizes and need the same messages between ranks.
 * Otherwise returns a text that names the difference. */
static const char *differs(const struct kcp_plan *p, const struct kcp_plan *next)
{
    if (p->N != next->N || p->R != next->R || p->C != next->C || p->T != next->T ||
        p->L != next->L || p->S != next->S || p->B != next->B)
        return "the plans differ in N, R, C, T, L, or in the number of segments or "
               "ranges";
    for (int r = 0; r < p->R; r++) {
        const struct kcp_context *x = &p->ctx[r], *y = &next->ctx[r];
        if (x->end - x->begin != y->end - y->begin || x->NS != y->NS || x->NC != y->NC)
            return "the plans differ in a rank's number of tokens, segments or chunks";
    }
    for (int j = 0; j < p->S; j++) {
        const struct kcp_segment *s = &p->seg[j], *t = &next->seg[j];
        if (s->n != t->n || s->rank != t->rank || s->prev != t->prev ||
            s->next != t->next || s->at != t->at)
            return "the plans differ in the ranks or the order of segments";
    }
    for (int n = 0; n < p->N; n++)
        if (p->h0_rank[n] != next->h0_rank[n] || p->ht_rank[n] != next->ht_rank[n])
            return "the plans differ in the rank that owns a sequence's state";
    return NULL;
}

/* Copies the context y to x. The arrays of x stay at the same addresses. */
static void refresh_context(struct kcp_context *x, const struct kcp_context *y)
{
    struct kcp_context now = *y;
    now.cu_seqlens = x->cu_seqlens;
    now.seq = x->seq;
    now.cu = x->cu;
    now.cn = x->cn;
    now.sc = x->sc;
    memcpy(now.cu_seqlens, y->cu_seqlens, sizeof(int) * (y->n_local + 1));
    memcpy(now.seq, y->seq, sizeof(int) * y->n_local);
    memcpy(now.cu, y->cu, sizeof(int) * (y->NS + 1));
    memcpy(now.cn, y->cn, sizeof(int) * (y->NS + 1));
    memcpy(now.sc, y->sc, sizeof(int) * y->NC);
    *x = now;
}

int kcp_plan_refresh(struct kcp_plan *p, const struct kcp_plan *next, const char **why)
{
    const char *unread;
    why = why ? why : &unread;
    *why = !p || !next ? "one of the two plans is NULL" : NULL;
    if (*why) return kcp_refuse(KCP_BAD, "plan: %s", *why);
    *why = differs(p, next);
    if (*why) return kcp_refuse(KCP_NA, "plan: %s", *why);
    memcpy(p->cu_seqlens, next->cu_seqlens, sizeof *p->cu_seqlens * (p->N + 1));
    memcpy(p->cuts, next->cuts, sizeof *p->cuts * (p->R + 1));
    memcpy(p->seg, next->seg, sizeof *p->seg * p->S);
    memcpy(p->order, next->order, sizeof *p->order * p->S);
    memcpy(p->bound, next->bound, sizeof *p->bound * (p->B + 1));
    memcpy(p->owner, next->owner, sizeof *p->owner * p->B);
    for (int r = 0; r < p->R; r++) refresh_context(&p->ctx[r], &next->ctx[r]);
    p->moved = next->moved;
    p->scattered = next->scattered;
    p->digest = next->digest;
    return KCP_OK;
}
