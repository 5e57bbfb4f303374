/* 06_plan.c -- computes which rank has which tokens, as a table of segments.
 * Book: chapter 06. */
#include "checked.h"
#include "ref.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536, MOST_ITEMS = 1 << 26 };

/* `block` holds the integer arrays (cu, cn, sc ...) of the contexts of all ranks. */
struct owned {
    struct kcp_plan plan;
    int *block;
};

/* The caller's ranges: `owners` or `cuts`, or the default ranges if both are NULL. */
struct request {
    const int64_t *cuts;
    const struct kcp_owners *owners;
    int Wc;
};

static const char *refuse_ranges(const struct request *a, int64_t T, int R)
{
    const struct kcp_owners *o = a->owners;
    if (o) {
        if (o->B < 1 || o->B > MOST_ITEMS || !o->bound || !o->owner)
            return "owners: a NULL array, no ranges, or more than 2^26 ranges";
        if (o->bound[0] != 0) return "the owners' ranges do not begin at 0";
        for (int b = 0; b < o->B; b++) {
            if (o->bound[b + 1] < o->bound[b]) return "the owners' ranges decrease";
            if (o->owner[b] < 0 || o->owner[b] >= R)
                return "the owner of a range is not a rank from 0 to R-1";
        }
        if (o->bound[o->B] != T)
            return "the owners' ranges do not end at T, the number of tokens";
    }
    if (a->cuts) {
        if (a->cuts[0] != 0) return "cuts do not begin with 0";
        for (int r = 0; r < R; r++)
            if (a->cuts[r + 1] < a->cuts[r]) return "cuts decrease";
        if (a->cuts[R] != T) return "cuts do not end with T, the number of tokens";
    }
    return NULL;
}

static const char *refuse(int N, const int64_t *cu, int R, const struct request *a,
                          int64_t L, int C)
{
    if (N < 0 || N > MOST_ITEMS) return "N, the number of sequences, is not in 0..2^26";
    if (!cu || cu[0] != 0) return "cu_seqlens is NULL or does not begin with 0";
    for (int n = 0; n < N; n++)
        if (cu[n + 1] < cu[n]) return "cu_seqlens decreases";
    if (R < 1 || R > MOST_RANKS) return "R, the number of ranks, is not in 1..65536";
    const char *why = refuse_ranges(a, cu[N], R);
    if (why) return why;
    if (L < 0) return "L, the length of a canonical segment, is negative";
    if (C < 1) return "C, the chunk length, is less than 1";
    if (a->Wc < 0) return "Wc, the convolution's window, is negative";
    return NULL;
}

/* If L > 0, moves each boundary between two ranges down to a multiple of L tokens from
 * the start of the sequence that contains it. The boundaries stay in order. */
static void move_bounds(struct kcp_plan *p)
{
    for (int b = 1, n = 0; b < p->B; b++) {
        while (n < p->N && p->cu_seqlens[n + 1] <= p->bound[b]) n++;
        if (n == p->N) return;
        const int64_t into = (p->bound[b] - p->cu_seqlens[n]) % p->L;
        p->bound[b] -= into;
        p->moved += into > 0;
    }
}

/* Removes empty ranges and joins adjacent ranges of one owner. Then sets `cuts` (the
 * boundaries of the shards) and `scattered` (1 if the concatenated shards are not in
 * token order). */
static void join_ranges(struct kcp_plan *p)
{
    int B = 0;
    for (int b = 0; b < p->B; b++) {
        if (p->bound[b] == p->bound[b + 1]) continue;
        if (B && p->owner[B - 1] == p->owner[b]) B--;
        else p->bound[B] = p->bound[b];
        p->owner[B++] = p->owner[b];
        p->bound[B] = p->bound[b + 1];
    }
    p->B = B;
    memset(p->cuts, 0, sizeof *p->cuts * (p->R + 1LL));
    for (int b = 0; b < B; b++) {
        p->cuts[p->owner[b] + 1] += p->bound[b + 1] - p->bound[b];
        p->scattered |= b > 0 && p->owner[b] < p->owner[b - 1];
    }
    for (int r = 0; r < p->R; r++) p->cuts[r + 1] += p->cuts[r];
}

/* Sets the ranges from the table of owners or from cuts. By default, the range of rank
 * r begins at floor(r T / R), computed without the product r T. */
static int ranges(struct kcp_plan *p, const struct request *a)
{
    const int64_t q = p->T / p->R, rest = p->T % p->R;
    const struct kcp_owners *o = a->owners;
    p->B = o ? o->B : p->R;
    p->bound = malloc(sizeof *p->bound * (p->B + 1LL));
    p->owner = malloc(sizeof *p->owner * (p->B + 1LL));
    if (!p->bound || !p->owner) return KCP_NO_MEMORY;
    for (int b = 0; b <= p->B; b++) {
        if (o) p->bound[b] = o->bound[b];
        else p->bound[b] = a->cuts ? a->cuts[b] : b * q + b * rest / p->R;
        p->owner[b] = o && b < p->B ? o->owner[b] : b;
    }
    if (p->L) move_bounds(p);
    join_ranges(p);
    return KCP_OK;
}

//> plan-walk
/* Stores segment s, number i in token order, after earlier segments of rank s.rank. */
static void put_segment(struct kcp_plan *p, int64_t i, struct kcp_segment s)
{
    struct kcp_context *x = &p->ctx[s.rank];
    const int j = x->seg0 + x->NS++;
    s.prev = s.first ? -1 : p->order[i - 1];
    s.next = -1;
    s.at = (int)i;
    if (!s.first) {
        struct kcp_segment *before = &p->seg[s.prev];
        before->next = j;
        s.pre = before->pre + (before->rank != s.rank);
    }
    p->seg[j] = s;
    p->order[i] = j;
}

/* Lists the segments in token order. A segment ends where its sequence or range ends,
 * or at a multiple of L tokens from the start of its sequence. In the first call p->seg
 * is NULL: this call only counts the segments, up to MOST_ITEMS + 1. */
//> segments
static int64_t segments(struct kcp_plan *p)
{
    int64_t S = 0;
    for (int n = 0, b = 0; n < p->N; n++) {
        const int64_t from = p->cu_seqlens[n], to = p->cu_seqlens[n + 1];
        for (int64_t t = from, end; t < to; t = end) {
            while (p->bound[b + 1] <= t) b++;
            end = to < p->bound[b + 1] ? to : p->bound[b + 1];
            if (p->L && end - t > p->L - (t - from) % p->L)
                end = t + p->L - (t - from) % p->L;
            if (p->seg)
                put_segment(p, S, (struct kcp_segment){
                    .n = n, .rank = p->owner[b], .begin = t, .end = end,
                    .first = t == from, .last = end == to });
            else p->ctx[p->owner[b]].NS++;
            if (++S > MOST_ITEMS) return S;
        }
    }
    return S;
}
//< segments
//< plan-walk

/* Fills rank r's context. The context's integer arrays are placed at `at`. Returns the
 * end of these arrays. */
static int *context(struct kcp_plan *p, int r, int Wc, int *at)
{
    struct kcp_context *x = &p->ctx[r];
    const struct kcp_segment *seg = p->seg + x->seg0;
    x->begin = p->cuts[r];
    x->end = p->cuts[r + 1];
    x->conv1d_kernel_size = Wc;
    x->is_first_rank = x->is_last_rank = 1;     /* for an empty rank */

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
        x->cu[s + 1] = x->cu[s] + (int)(seg[s].end - seg[s].begin);
        x->cn[s + 1] = x->cn[s] + (x->cu[s + 1] - x->cu[s] - 1) / p->C + 1;
        for (int c = x->cn[s]; c < x->cn[s + 1]; c++) x->sc[c] = s;
        if (s == 0 || seg[s].prev != x->seg0 + s - 1) x->seq[x->n_local++] = seg[s].n;
        x->cu_seqlens[x->n_local] = x->cu[s + 1];
    }
    if (x->NS == 0) return at;

    const int first = seg[0].n, last = seg[x->NS - 1].n;
    x->is_first_rank = seg[0].first;
    x->pre_num_ranks = p->scattered ? seg[0].pre : r - p->h0_rank[first];
    x->pre_num_conv_tokens = seg[0].begin - p->cu_seqlens[first];
    x->is_last_rank = seg[x->NS - 1].last;
    x->post_num_ranks = p->scattered ? seg[x->NS - 1].post : p->ht_rank[last] - r;
    return at;
}

/* Counts every rank's chunks. Returns an error message if a limit is exceeded. */
static const char *count(struct kcp_plan *p, int64_t *chunks)
{
    *chunks = 0;
    for (int r = 0; r < p->R; r++) {
        struct kcp_context *x = &p->ctx[r];
        if (p->cuts[r + 1] - p->cuts[r] > INT_MAX)
            return "a rank holds more than 2^31 - 1 tokens";
        for (int s = 0; s < x->NS; s++) {
            const struct kcp_segment *g = &p->seg[x->seg0 + s];
            const int64_t nc = (g->end - g->begin - 1) / p->C + 1;
            if ((*chunks += nc) > MOST_ITEMS)
                return "the plan has more than 2^26 chunks";
            x->NC += nc;
        }
    }
    return NULL;
}

/* Stores the segments rank by rank. Within a rank, segments are in token order. */
static int own_segments(struct kcp_plan *p, const char **why)
{
    const int64_t S = segments(p);
    *why = "the plan has more than 2^26 segments";
    if (S > MOST_ITEMS) return KCP_BAD;
    for (int r = 0, j = 0; r < p->R; r++) {
        p->ctx[r].seg0 = j;
        j += p->ctx[r].NS;
        p->ctx[r].NS = 0;
    }
    p->seg = malloc((S + 1) * sizeof *p->seg);
    p->order = malloc((S + 1) * sizeof *p->order);
    if (!p->seg || !p->order) return KCP_NO_MEMORY;
    p->S = segments(p);
    for (int i = p->S - 1; i >= 0; i--) {
        struct kcp_segment *s = &p->seg[p->order[i]];
        const struct kcp_segment *next = s->last ? NULL : &p->seg[s->next];
        if (!next) continue;
        s->post = next->post + (next->rank != s->rank);
        p->crossing |= next->rank != s->rank;
    }
    return KCP_OK;
}

/* Sets the ranks that own h0 and ht. The state of a sequence without tokens belongs to
 * the owner of the next token, or to the last rank if there is no next token. */
static void own_states(struct kcp_plan *p)
{
    for (int n = 0, b = 0; n < p->N; n++) {
        while (b < p->B && p->bound[b + 1] <= p->cu_seqlens[n]) b++;
        p->h0_rank[n] = p->ht_rank[n] = b < p->B ? p->owner[b] : p->R - 1;
    }
    for (int j = 0; j < p->S; j++)
        if (p->seg[j].last) p->ht_rank[p->seg[j].n] = p->seg[j].rank;
}

/* ---- digests (not cryptographic) */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

uint64_t kcp_digest(const int64_t *x, int64_t n)
{
    uint64_t h = mix(1, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) h = mix(h, (uint64_t)x[i]);
    return h;
}

uint64_t kcp_plan_digest(const struct kcp_plan *p)
{
    uint64_t h = mix(kcp_digest(p->cu_seqlens, p->N + 1LL),
                     kcp_digest(p->cuts, p->R + 1LL));
    h = mix(mix(h, (uint64_t)p->L), (uint64_t)p->C);
    for (int j = 0; j < p->S; j++) {
        const struct kcp_segment *s = &p->seg[j];
        h = mix(mix(h, (uint64_t)s->n), (uint64_t)s->rank);
        h = mix(mix(h, (uint64_t)s->begin), (uint64_t)s->end);
    }
    return h;
}

/* Builds the ranges, then the segments, the owners of states, and the contexts. */
static int build(struct owned *own, const struct request *a, const char **why)
{
    struct kcp_plan *p = &own->plan;
    int64_t chunks;
    int err = ranges(p, a);
    if (!err) err = own_segments(p, why);
    if (err) return err;
    *why = count(p, &chunks);
    if (*why) return KCP_BAD;
    own->block = malloc((4LL * p->S + 3LL * p->R + chunks) * sizeof(int));
    if (!own->block) return KCP_NO_MEMORY;

    own_states(p);
    int *at = own->block;
    for (int r = 0; r < p->R; r++) at = context(p, r, a->Wc, at);
    p->digest = kcp_plan_digest(p);
    return KCP_OK;
}

static int make(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                const struct request *a, int64_t L, int C, const char **why)
{
    const char *unread;
    int err = KCP_BAD;
    why = why ? why : &unread;
    if (!plan) return kcp_refuse(err, "plan: the pointer to the plan to make is NULL");
    *plan = NULL;
    *why = refuse(N, cu_seqlens, R, a, L, C);
    if (*why) return kcp_refuse(err, "plan: %s", *why);

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
            err = build(own, a, why);
        }
    }
    if (err == KCP_NO_MEMORY) *why = "out of memory";
    if (err) {
        kcp_plan_free(*plan);
        *plan = NULL;
        kcp_refuse(err, "plan: %s", *why);
    }
    return err;
}

int kcp_plan_make(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                  const int64_t *cuts, int64_t L, int C, int Wc, const char **why)
{
    const struct request a = { cuts, NULL, Wc };
    return make(plan, N, cu_seqlens, R, &a, L, C, why);
}

int kcp_plan_owned(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                   const struct kcp_owners *owners, int64_t L, int C, int Wc,
                   const char **why)
{
    const struct request a = { NULL, owners, Wc };
    return make(plan, N, cu_seqlens, R, &a, L, C, why);
}

void kcp_plan_free(struct kcp_plan *p)
{
    if (!p) return;
    free(((struct owned *)p)->block);           /* p is at offset 0 of `owned` */
    free(p->cu_seqlens);
    free(p->cuts);
    free(p->seg);
    free(p->h0_rank);
    free(p->ht_rank);
    free(p->ctx);
    free(p->order);
    free(p->bound);
    free(p->owner);
    free(p);
}

int kcp_plan_want(const struct kcp_plan *p, int j, int backward)
{
    if (!p || j < 0 || j >= p->S) return 0;
    const struct kcp_segment *s = &p->seg[j];
    const int continues = backward ? !s->first : !s->last;
    return (continues ? KCP_WANT_H : 0) | (!s->first && !s->last ? KCP_WANT_M : 0);
}
