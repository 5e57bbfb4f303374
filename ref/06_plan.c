/* 06_plan.c -- who holds what: from (cu_seqlens, R, cuts, L) to segments and contexts.
 *
 * Book: chapter 06.  Checked by: tests/06_plan/checks.c, against brute force.
 * Next: ref/07_merge.c, which carries the state over the cuts. */
#include "checked.h"
#include "ref.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Limits: a plan larger than these is a mistake of whoever asked for it. */
enum { MOST_RANKS = 65536, MOST_ITEMS = 1 << 26 };

/* The integers of all contexts lie in one block, freed with the plan. */
struct owned {
    struct kcp_plan plan;
    int *block;
};

static const char *refuse(int N, const int64_t *cu, int R, const int64_t *cuts,
                          int64_t L, int C, int Wc)
{
    if (N < 0 || N > MOST_ITEMS) return "N, the number of sequences, is out of range";
    if (!cu || cu[0] != 0) return "cu_seqlens does not begin with 0";
    for (int n = 0; n < N; n++)
        if (cu[n + 1] < cu[n]) return "cu_seqlens decreases";
    if (R < 1 || R > MOST_RANKS) return "R, the number of ranks, is not in 1..65536";
    if (cuts) {
        if (cuts[0] != 0) return "cuts do not begin with 0";
        for (int r = 0; r < R; r++)
            if (cuts[r + 1] < cuts[r]) return "cuts decrease";
        if (cuts[R] != cu[N]) return "cuts do not end with T";
    }
    if (L < 0) return "L, the length of a canonical segment, is negative";
    if (C < 1) return "C, the chunk length, is less than 1";
    if (Wc < 0) return "Wc, the convolution's window, is negative";
    return NULL;
}

/* The rank that holds token t: the last r with cuts[r] <= t, so empty ranks hold none
 * and t = T belongs to the last rank. */
//> holder
static int holder(const struct kcp_plan *p, int64_t t)
{
    int low = 0, high = p->R;                   /* cuts[low] <= t; answer < high */
    while (high - low > 1) {
        const int mid = low + (high - low) / 2;
        if (p->cuts[mid] <= t)
            low = mid;
        else
            high = mid;
    }
    return low;
}
//< holder

/* cuts[r] = floor(r T / R), without forming r T. Canonical mode then moves a cut that
 * falls inside a segment down to the segment's beginning; the order is kept. */
static void cut(struct kcp_plan *p, const int64_t *cuts)
{
    const int64_t q = p->T / p->R, rest = p->T % p->R;
    for (int r = 0; r <= p->R; r++)
        p->cuts[r] = cuts ? cuts[r] : r * q + r * rest / p->R;
    if (!p->L)
        return;
    for (int r = 1, n = 0; r < p->R; r++) {
        while (n < p->N && p->cu_seqlens[n + 1] <= p->cuts[r])
            n++;
        if (n == p->N)
            return;
        const int64_t into = (p->cuts[r] - p->cu_seqlens[n]) % p->L;
        p->cuts[r] -= into;
        p->moved += into > 0;
    }
}

/* Walk the tokens once: a segment ends where its sequence, its rank or its canonical
 * length does. With seg NULL it only counts; it stops counting above the limit. */
//> segments
static int64_t segments(const struct kcp_plan *p, struct kcp_segment *seg)
{
    int64_t S = 0;
    for (int n = 0, r = 0; n < p->N; n++) {
        const int64_t from = p->cu_seqlens[n], to = p->cu_seqlens[n + 1];
        for (int64_t t = from, end; t < to; t = end) {
            while (p->cuts[r + 1] <= t)
                r++;
            end = to < p->cuts[r + 1] ? to : p->cuts[r + 1];
            if (p->L && end - t > p->L - (t - from) % p->L)
                end = t + p->L - (t - from) % p->L;
            if (seg)
                seg[S] = (struct kcp_segment){ n, r, t, end, t == from, end == to };
            if (++S > MOST_ITEMS)
                return S;
        }
    }
    return S;
}
//< segments

/* Rank r's context, its integers carved from at; returns what is left of at. */
static int *context(struct kcp_plan *p, int r, int Wc, int *at)
{
    struct kcp_context *x = &p->ctx[r];
    const struct kcp_segment *seg = p->seg + x->seg0;
    x->begin = p->cuts[r];
    x->end = p->cuts[r + 1];
    x->conv1d_kernel_size = Wc;
    x->is_first_rank = x->is_last_rank = 1;     /* an empty rank: nothing enters */

    x->cu = at;
    at += x->NS + 1;
    x->cn = at;
    at += x->NS + 1;
    x->sc = at;
    at += x->NC;
    x->cu_seqlens = at;
    at += x->NS + 1;
    x->seq = at;
    at += x->NS;
    x->cu[0] = x->cn[0] = x->cu_seqlens[0] = 0;
    for (int s = 0; s < x->NS; s++) {
        x->cu[s + 1] = seg[s].end - x->begin;
        x->cn[s + 1] = x->cn[s] + (x->cu[s + 1] - x->cu[s] - 1) / p->C + 1;
        for (int c = x->cn[s]; c < x->cn[s + 1]; c++)
            x->sc[c] = s;
        if (s == 0 || seg[s].n != seg[s - 1].n)
            x->seq[x->n_local++] = seg[s].n;
        x->cu_seqlens[x->n_local] = x->cu[s + 1];
    }
    if (x->NS == 0)
        return at;

    const int first = seg[0].n, last = seg[x->NS - 1].n;
    x->is_first_rank = seg[0].first;
    x->pre_num_ranks = r - p->h0_rank[first];
    x->pre_num_conv_tokens = x->begin - p->cu_seqlens[first];
    x->is_last_rank = seg[x->NS - 1].last;
    x->post_num_ranks = p->ht_rank[last] - r;
    return at;
}

/* Hand each rank its run of segments, and count chunks; NULL or why it cannot be. */
static const char *count(struct kcp_plan *p, int64_t *chunks)
{
    *chunks = 0;
    for (int r = 0, j = 0; r < p->R; r++) {
        struct kcp_context *x = &p->ctx[r];
        if (p->cuts[r + 1] - p->cuts[r] > INT_MAX)
            return "a rank holds more than 2^31 - 1 tokens";
        for (x->seg0 = j; j < p->S && p->seg[j].rank == r; j++) {
            const int64_t nc = (p->seg[j].end - p->seg[j].begin - 1) / p->C + 1;
            x->NS++;
            if ((*chunks += nc) > MOST_ITEMS)
                return "the plan has more than 2^26 chunks";
            x->NC += nc;
        }
    }
    return NULL;
}

/* Cuts, segments, owners, contexts, in this order: each needs the ones before. */
static int build(struct owned *own, const int64_t *cuts, int Wc, const char **why)
{
    struct kcp_plan *p = &own->plan;
    cut(p, cuts);
    const int64_t S = segments(p, NULL);
    int64_t chunks;
    *why = "the plan has more than 2^26 segments";
    if (S > MOST_ITEMS)
        return KCP_BAD;
    p->seg = malloc((S + 1) * sizeof *p->seg);
    if (!p->seg)
        return KCP_NO_MEMORY;
    p->S = segments(p, p->seg);
    if ((*why = count(p, &chunks)))
        return KCP_BAD;
    own->block = malloc((4 * S + 3LL * p->R + chunks) * sizeof(int));
    if (!own->block)
        return KCP_NO_MEMORY;

    for (int n = 0; n < p->N; n++) {
        const int64_t from = p->cu_seqlens[n], to = p->cu_seqlens[n + 1];
        p->h0_rank[n] = holder(p, from);
        p->ht_rank[n] = from < to ? holder(p, to - 1) : p->h0_rank[n];
    }
    int *at = own->block;
    for (int r = 0; r < p->R; r++)
        at = context(p, r, Wc, at);
    for (int j = 0; j + 1 < p->S; j++)
        p->crossing |= !p->seg[j].last && p->seg[j].rank != p->seg[j + 1].rank;
    p->digest = kcp_plan_digest(p);
    return KCP_OK;
}

/* spec 6. Allocates *plan, which kcp_plan_free gives back. KCP_BAD with a sentence in
 * *why when the input is no plan, KCP_NO_MEMORY when it does not fit. */
int kcp_plan_make(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                  const int64_t *cuts, int64_t L, int C, int Wc, const char **why)
{
    const char *unread;
    int err = KCP_BAD;
    why = why ? why : &unread;
    if (!plan)
        return kcp_refuse(err, "plan: there is no place for it");
    *plan = NULL;
    if ((*why = refuse(N, cu_seqlens, R, cuts, L, C, Wc)))
        return kcp_refuse(err, "plan: %s", *why);

    err = KCP_NO_MEMORY;
    struct owned *own = calloc(1, sizeof *own);
    if (own) {
        struct kcp_plan *p = *plan = &own->plan;
        p->N = N; p->R = R; p->C = C; p->L = L; p->T = cu_seqlens[N];
        p->cu_seqlens = malloc(sizeof(int64_t) * (N + 1LL));
        p->cuts = malloc(sizeof(int64_t) * (R + 1LL));
        p->ctx = calloc(R, sizeof *p->ctx);
        p->h0_rank = malloc(sizeof(int) * (N + 1LL));
        p->ht_rank = malloc(sizeof(int) * (N + 1LL));
        if (p->cu_seqlens && p->cuts && p->ctx && p->h0_rank && p->ht_rank) {
            memcpy(p->cu_seqlens, cu_seqlens, sizeof(int64_t) * (N + 1LL));
            err = build(own, cuts, Wc, why);
        }
    }
    if (err == KCP_NO_MEMORY)
        *why = "out of memory";
    if (err) {
        kcp_plan_free(*plan);
        *plan = NULL;
        kcp_refuse(err, "plan: %s", *why);
    }
    return err;
}

void kcp_plan_free(struct kcp_plan *p)
{
    if (!p)
        return;
    free(((struct owned *)p)->block);           /* plan is owned's first member */
    free(p->cu_seqlens);
    free(p->cuts);
    free(p->seg);
    free(p->h0_rank);
    free(p->ht_rank);
    free(p->ctx);
    free(p);
}

/* What of segment j's map anybody reads: h_ext when the walk goes on behind it, M when
 * it also arrives there with a state. */
int kcp_plan_want(const struct kcp_plan *p, int j, int backward)
{
    const struct kcp_segment *s = &p->seg[j];
    const int goes_on = backward ? !s->first : !s->last;
    return (goes_on ? KCP_WANT_H : 0) | (!s->first && !s->last ? KCP_WANT_M : 0);
}
