/* owners.c -- checks the plans of all small tables of owners (token ranges with ranks).
 *
 * Book: chapter 06.  Checked by: itself, on wrong plans that it must reject.
 * Next: ref/06_owners.c.
 * The oracle finds the owner of each token and never computes a segment's boundary. */
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 128, MOST_B = 24 };

/* A table of B ranges with owners. Expected per token: its sequence `n`, its owner `r`,
 * and `begins`, which is 1 where a segment begins. */
struct table {
    int N, R, C, B;
    int64_t L, T, cu[4], bound[MOST_B + 1];
    int owner[MOST_B];
    int n[MOST], r[MOST], begins[MOST], moved;
};

#define NEED(x) do { if (!(x)) return #x; } while (0)

static void ask(struct table *a)
{
    int64_t at[MOST_B + 1];
    a->moved = 0;
    for (int b = 0; b <= a->B; b++) {
        at[b] = a->bound[b];
        for (int n = 0; n < a->N && a->L && b && b < a->B; n++)
            while (a->cu[n] < at[b] && at[b] < a->cu[n + 1] &&
                   (at[b] - a->cu[n]) % a->L)
                at[b]--;                     /* down to a canonical position */
        a->moved += at[b] != a->bound[b];
    }
    for (int64_t t = 0; t < a->T; t++) {
        for (int n = 0; n < a->N; n++)
            if (a->cu[n] <= t && t < a->cu[n + 1]) a->n[t] = n;
        for (int b = 0; b < a->B; b++)
            if (at[b] <= t && t < at[b + 1]) a->r[t] = a->owner[b];
        const int64_t into = t - a->cu[a->n[t]];
        a->begins[t] = into == 0 || a->r[t] != a->r[t - 1] ||
                       (a->L && into % a->L == 0);
    }
}

/* Checks the segments in token order, and their links prev and next. */
static const char *wrong_links(const struct kcp_plan *p, const struct table *a)
{
    int i = -1, changes = 0, crossing = 0;
    for (int64_t t = 0; t < a->T; t++) {
        const int first = t == a->cu[a->n[t]], end = (int)a->cu[a->n[t] + 1];
        changes = first ? 0 : changes + (a->r[t] != a->r[t - 1]);
        crossing |= changes > 0;
        if (!a->begins[t]) continue;
        NEED(++i < p->S);
        const int j = p->order[i], before = i ? p->order[i - 1] : -1;
        NEED(j >= 0 && j < p->S);
        const struct kcp_segment *g = &p->seg[j];
        int64_t stop = t + 1, after = 0;
        while (stop < a->T && !a->begins[stop]) stop++;
        for (int64_t u = t + 1; u < end; u++) after += a->r[u] != a->r[u - 1];
        NEED(g->begin == t && g->end == stop && g->n == a->n[t] && g->rank == a->r[t]);
        NEED(g->first == first && g->last == (stop == end) && g->at == i);
        NEED(g->pre == changes && g->post == after);
        NEED(g->prev == (first ? -1 : before));
        NEED(first || p->seg[before].next == j);
        NEED(!g->last || g->next == -1);
    }
    NEED(i + 1 == p->S && p->crossing == crossing && p->moved == a->moved);
    return NULL;
}

/* Checks rank r's shard, chunk grid and runs of consecutive tokens, token by token. */
static const char *wrong_shard(const struct kcp_plan *p, const struct table *a, int r)
{
    const struct kcp_context *x = &p->ctx[r];
    int row = 0, s = -1, m = -1, c = -1, rows = 0;
    int64_t last = -2;
    for (int64_t t = 0; t < a->T; t++) {
        if (a->r[t] != r) continue;
        if (a->begins[t]) {
            NEED(++s < x->NS && x->cu[s] == row && x->cn[s] == c + 1);
            NEED(p->seg[x->seg0 + s].begin == t && p->seg[x->seg0 + s].rank == r);
            rows = 0;
        }
        if (rows++ % a->C == 0) NEED(++c < x->NC && x->sc[c] == s);
        if (last != t - 1 || a->n[t] != a->n[last])
            NEED(++m < x->n_local && x->cu_seqlens[m] == row && x->seq[m] == a->n[t]);
        NEED(kcp_plan_token(p, x->begin + row) == t);
        last = t;
        row++;
    }
    NEED(x->NS == s + 1 && x->NC == c + 1 && x->n_local == m + 1);
    NEED(x->cu[x->NS] == row && x->end - x->begin == row && p->cuts[r] == x->begin);
    NEED(r + 1 == p->R || p->ctx[r + 1].begin == x->end);
    return NULL;
}

static const char *wrong_rows(const struct kcp_plan *p, const struct table *a)
{
    int64_t whole[MOST], shard[MOST], back[MOST];
    for (int64_t t = 0; t < a->T; t++) whole[t] = 7 * t + 1;
    memset(back, 0, sizeof back);
    for (int r = 0; r < p->R; r++) {
        const int64_t rows = p->ctx[r].end - p->ctx[r].begin;
        kcp_plan_take(p, r, sizeof *whole, whole, shard);
        for (int64_t i = 0; i < rows; i++)
            NEED(shard[i] == 7 * kcp_plan_token(p, p->ctx[r].begin + i) + 1);
        kcp_plan_give(p, r, sizeof *whole, shard, back);
    }
    NEED(!memcmp(whole, back, sizeof *whole * (size_t)a->T));
    return NULL;
}

static const char *wrong_plan(const struct kcp_plan *p, const struct table *a)
{
    int in_order = 1;
    const char *why = wrong_links(p, a);
    for (int r = 0; r < p->R && !why; r++) why = wrong_shard(p, a, r);
    if (why) return why;
    for (int64_t t = 1; t < a->T; t++) in_order &= a->r[t] >= a->r[t - 1];
    NEED(p->scattered == !in_order);
    for (int n = 0; n < a->N; n++) {
        const int64_t at = a->cu[n], end = a->cu[n + 1] > at ? a->cu[n + 1] - 1 : at;
        NEED(p->h0_rank[n] == (at < a->T ? a->r[at] : p->R - 1));
        NEED(p->ht_rank[n] == (end < a->T ? a->r[end] : p->R - 1));
    }
    return wrong_rows(p, a);
}

/* ---- tables */

static struct kcp_plan *plan_of(struct table *a)
{
    const struct kcp_owners o = { a->B, a->bound, a->owner };
    struct kcp_plan *p = NULL;
    const char *why;
    ask(a);
    return kcp_plan_owned(&p, a->N, a->cu, a->R, &o, a->L, a->C, 4, &why) ? NULL : p;
}

/* Increments the n-digit number x in base `most`. Returns 0 if all digits become 0. */
static int next_digits(int *x, int n, int most)
{
    for (int i = 0; i < n; i++) {
        if (++x[i] < most) return 1;
        x[i] = 0;
    }
    return 0;
}

/* every_table checks the plans of all tables of at most four ranges over six tokens and
 * three ranks, for three batches, classic (L = 0) and canonical (L = 1, 2, 3). Function
 * `spoil` changes each plan before the check. */
struct seen { int64_t plans, found, scattered; const char *why; };

static struct seen every_table(void (*spoil)(struct kcp_plan *))
{
    struct seen seen = { 0, 0, 0, NULL };
    struct table a = { .R = 3, .C = 2, .T = 6 };
    for (int batch = 0; batch < 3; batch++)
        for (a.L = 0; a.L < 4; a.L++)
            for (a.B = 1; a.B <= 4; a.B++) {
                int cut[3] = { 0 }, owner[4] = { 0 };
                const int64_t cu[][4] = { { 0, 6 }, { 0, 4, 4, 6 }, { 0, 1, 6, 6 } };
                memcpy(a.cu, cu[batch], sizeof a.cu);
                a.N = batch ? 3 : 1;
                do {
                    int sorted = 1;
                    for (int b = 1; b < a.B; b++) {
                        a.bound[b] = cut[b - 1];
                        sorted &= a.bound[b] >= a.bound[b - 1];
                    }
                    a.bound[a.B] = a.T;
                    do {
                        memcpy(a.owner, owner, sizeof owner);
                        struct kcp_plan *p = sorted ? plan_of(&a) : NULL;
                        if (!p) continue;
                        seen.scattered += p->scattered;
                        if (spoil) spoil(p);
                        const char *why = wrong_plan(p, &a);
                        seen.why = why ? why : seen.why;
                        seen.found += why != NULL;
                        seen.plans++;
                        kcp_plan_free(p);
                    } while (next_digits(owner, a.B, 3));
                } while (next_digits(cut, a.B - 1, 7));
            }
    return seen;
}

/* ---- wrong plans */

static void owner_one_on(struct kcp_plan *p)
{
    for (int j = 0; j < p->S; j++)
        if (p->seg[j].begin > 2) p->seg[j].rank = (p->seg[j].rank + 1) % p->R;
}

static void linked_by_shard(struct kcp_plan *p)
{
    for (int j = 1; j < p->S; j++)
        if (!p->seg[j].first) p->seg[j].prev = j - 1;
}

static void counts_of_segments(struct kcp_plan *p)       /* not of owners */
{
    for (int i = 0; i < p->S; i++) {
        struct kcp_segment *g = &p->seg[p->order[i]];
        g->pre = g->first ? 0 : p->seg[g->prev].pre + 1;
    }
}

static void ranges_run_together(struct kcp_plan *p)
{
    for (int r = 0; r < p->R; r++)
        if (p->ctx[r].n_local > 1) p->ctx[r].n_local--;
}

static void shards_in_token_order(struct kcp_plan *p)
{
    for (int r = 0; r < p->R; r++)
        if (p->ctx[r].NS) p->ctx[r].begin = p->seg[p->ctx[r].seg0].begin;
}

static void ends_on_the_last_rank(struct kcp_plan *p)
{
    for (int n = 0; n < p->N; n++) p->ht_rank[n] = p->R - 1;
}

static int any_owner(struct kcp_report *rep)
{
    static const struct {
        void (*spoil)(struct kcp_plan *);
        const char *name;
    } list[] = {
        { owner_one_on, "owner_one_on" }, { linked_by_shard, "linked_by_shard" },
        { counts_of_segments, "counts_of_segments" },
        { ranges_run_together, "ranges_run_together" },
        { shards_in_token_order, "shards_in_token_order" },
        { ends_on_the_last_rank, "ends_on_the_last_rank" } };
    const struct seen right = every_table(NULL);
    EXPECT(rep, right.found == 0, "%lld of %lld plans are wrong: %s",
           (long long)right.found, (long long)right.plans, right.why);
    EXPECT(rep, right.plans > 90000 && right.scattered > right.plans / 3,
           "only %lld plans, %lld scattered", (long long)right.plans,
           (long long)right.scattered);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        EXPECT(rep, every_table(list[i].spoil).found > 0, "%s: passes",
               list[i].name);
    return KCP_OK;
}
KCP_CHECK(check_06_any_owner) = { "06_plan", "any_owner",
    "all tables of four ranges, three owners, six tokens; six wrong plans fail",
    any_owner };

static int named_layouts(struct kcp_report *rep)
{
    const int64_t cu[] = { 0, 37, 37, 40, 103 };
    for (int R = 1; R <= 6; R++)
        for (int stripe = 1; stripe <= 9; stripe += 2)
            for (int spread = KCP_CONTIGUOUS; spread <= KCP_STRIPED; spread++) {
                struct kcp_owners o;
                int wrong = 0, b = 0;
                if (kcp_owners_make(&o, spread, 4, cu, R, stripe, NULL))
                    return KCP_NO_MEMORY;
                for (int64_t t = 0, n = 0; t < 103; t++) {
                    while (cu[n + 1] <= t) n++;
                    while (o.bound[b + 1] <= t) b++;
                    const int64_t into = t - cu[n], len = cu[n + 1] - cu[n];
                    int64_t i = 0, r = into / stripe % R;
                    while (spread == KCP_ZIGZAG && (i + 1) * len / (2 * R) <= into) i++;
                    while (spread == KCP_CONTIGUOUS && (i + 1) * 103 / R <= t) i++;
                    if (spread == KCP_ZIGZAG) r = i < R ? i : 2 * R - 1 - i;
                    if (spread == KCP_CONTIGUOUS) r = i;
                    wrong += o.owner[b] != r;
                }
                EXPECT(rep, !wrong, "spread %d, R %d, stripe %d: %d wrong", spread, R,
                       stripe, wrong);
                kcp_owners_free(&o);
            }
    return KCP_OK;
}
KCP_CHECK(check_06_named) = { "06_plan", "named_layouts",
    "contiguous, zigzag, stripes: the owner of each token", named_layouts };

static int refused(struct kcp_report *rep)
{
    const int64_t cu[] = { 0, 5, 12 };
    int64_t good[] = { 0, 5, 12 }, late[] = { 1, 5, 12 }, back[] = { 0, 7, 5 };
    int64_t open[] = { 0, 5, 11 };
    int owner[] = { 1, 0 }, none[] = { 1, 2 }, less[] = { -1, 0 };
    const struct { struct kcp_owners o; const char *says; } bad[] = {
        { { 0, good, owner }, "no ranges" }, { { 2, NULL, owner }, "no ranges" },
        { { 2, late, owner }, "begin with 0" }, { { 2, back, owner }, "decrease" },
        { { 2, open, owner }, "end with T" },
        { { 2, good, none }, "not in 0..R-1" },
        { { 2, good, less }, "not in 0..R-1" } };
    struct kcp_plan *p;
    struct kcp_owners made;
    const char *why;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int err = kcp_plan_owned(&p, 2, cu, 2, &bad[i].o, 0, 4, 0, &why);
        EXPECT(rep, err == KCP_BAD && !p && strstr(why, bad[i].says), "%d: %s", (int)i,
               why);
    }
    EXPECT(rep, kcp_owners_make(&made, KCP_STRIPED, 2, cu, 2, 0, &why) == KCP_BAD &&
           strstr(why, "stripe"), "%s", why);
    const enum kcp_spread other = (enum kcp_spread)3;
    EXPECT(rep, kcp_owners_make(&made, other, 2, cu, 2, 1, &why) == KCP_BAD, "%s", why);
    EXPECT(rep, kcp_owners_make(&made, KCP_ZIGZAG, 2, back, 2, 1, &why) == KCP_BAD,
           "%s", why);
    return KCP_OK;
}
KCP_CHECK(check_06_owners_refused) = { "06_plan", "owners_refused",
    "an invalid table of owners is rejected with a message", refused };
