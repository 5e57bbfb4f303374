/* wrong.c -- checks that invalid arguments and wrong plans are rejected.
 * Book: chapter 06.
 * Each wrong plan has one change, which a bug in kcp_plan_make might cause. */
#include "plan_case.h"

#include <limits.h>
#include <string.h>

static int refused(struct kcp_report *rep)
{
    const int64_t ok[] = { 0, 5, 12 }, late[] = { 1, 5, 12 }, down[] = { 0, 7, 5 };
    const int64_t huge[] = { 0, INT64_MAX }, wide[] = { 0, (int64_t)1 << 46 };
    const int64_t cuts[] = { 0, 4, 12 }, cut_late[] = { 1, 4, 12 };
    const int64_t cut_down[] = { 0, 13, 12 }, cut_short[] = { 0, 4, 11 };
    const struct {
        const int64_t *cu;
        int N, R;
        const int64_t *cuts, L;
        int C, Wc;
    } bad[] = {
        { ok, -1, 1, NULL, 0, 64, 0 }, { ok, INT_MAX, 1, NULL, 0, 64, 0 },
        { NULL, 2, 1, NULL, 0, 64, 0 }, { late, 2, 1, NULL, 0, 64, 0 },
        { down, 2, 1, NULL, 0, 64, 0 }, { ok, 2, 0, NULL, 0, 64, 0 },
        { ok, 2, -3, NULL, 0, 64, 0 }, { ok, 2, 65537, NULL, 0, 64, 0 },
        { ok, 2, 2, cut_late, 0, 64, 0 }, { ok, 2, 2, cut_down, 0, 64, 0 },
        { ok, 2, 2, cut_short, 0, 64, 0 }, { ok, 2, 1, NULL, -1, 64, 0 },
        { ok, 2, 1, NULL, 0, 0, 0 }, { ok, 2, 1, NULL, 0, 64, -1 },
        { huge, 1, 1, NULL, 0, 64, 0 }, { huge, 1, 65536, NULL, 0, 64, 0 },
        { huge, 1, 7, NULL, 1, 64, 0 }, { wide, 1, 65536, NULL, 0, 1, 0 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kcp_plan *p = (struct kcp_plan *)1;
        const char *why = NULL;
        const int err = kcp_plan_make(&p, bad[i].N, bad[i].cu, bad[i].R, bad[i].cuts,
                                      bad[i].L, bad[i].C, bad[i].Wc, &why);
        EXPECT(rep, err == KCP_BAD && !p && why, "bad plan %d: status %d", (int)i, err);
    }
    struct kcp_plan *p;
    EXPECT(rep, !kcp_plan_make(&p, 2, ok, 2, cuts, 0, 64, 0, NULL), "valid plan");
    kcp_plan_free(p);
    if (kcp_plan_make(&p, 1, wide, 65536, NULL, 0, INT_MAX, 0, NULL)) return KCP_BAD;
    EXPECT(rep, p->cuts[65535] == (int64_t)65535 << 30, "r T / R overflows");
    kcp_plan_free(p);
    return KCP_OK;
}

static int owners_refused(struct kcp_report *rep)
{
    const int64_t cu[] = { 0, 5, 12 };
    int64_t good[] = { 0, 5, 12 }, late[] = { 1, 5, 12 }, back[] = { 0, 7, 5 };
    int64_t open[] = { 0, 5, 11 };
    int owner[] = { 1, 0 }, none[] = { 1, 2 }, less[] = { -1, 0 };
    const struct { struct kcp_owners o; const char *text; } bad[] = {
        { { 0, good, owner }, "no ranges" }, { { 2, NULL, owner }, "no ranges" },
        { { 2, late, owner }, "begin at 0" }, { { 2, back, owner }, "decrease" },
        { { 2, open, owner }, "end at T" },
        { { 2, good, none }, "not a rank from 0 to R-1" },
        { { 2, good, less }, "not a rank from 0 to R-1" } };
    struct kcp_plan *p;
    struct kcp_owners made;
    const char *why;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int err = kcp_plan_owned(&p, 2, cu, 2, &bad[i].o, 0, 4, 0, &why);
        EXPECT(rep, err == KCP_BAD && !p && strstr(why, bad[i].text), "%d: %s", (int)i,
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

/* ---- wrong plans */

static void twin(struct kcp_plan *p) { }

static void empty_ranks_not_counted(struct kcp_plan *p)
{
    for (int r = 0; r < p->R; r++) {
        struct kcp_context *x = &p->ctx[r];
        for (int j = r - 1, pre = x->pre_num_ranks; j >= r - pre; j--)
            x->pre_num_ranks -= p->ctx[j].NS == 0;
    }
}

static void first_for_last(struct kcp_plan *p)              /* errata 6 */
{
    for (int r = 0; r < p->R; r++)
        if (p->ctx[r].n_local > 1) {
            p->ctx[r].is_last_rank = 1;
            p->ctx[r].post_num_ranks = 0;
        }
}

static void halo_from_neighbour_only(struct kcp_plan *p)
{
    for (int r = 1; r < p->R; r++) {
        const int64_t near = p->ctx[r - 1].end - p->ctx[r - 1].begin;
        if (p->ctx[r].pre_num_conv_tokens > near) p->ctx[r].pre_num_conv_tokens = near;
    }
}

static void one_grid_for_the_rank(struct kcp_plan *p)
{
    for (int r = 0; r < p->R; r++)
        for (int s = 0; s < p->ctx[r].NS; s++)
            p->ctx[r].cn[s + 1] = (p->ctx[r].cu[s + 1] + p->C - 1) / p->C;
}

static void empty_sequence_after_the_cut(struct kcp_plan *p)
{
    for (int n = 0; n < p->N; n++)
        if (p->cu_seqlens[n] == p->cu_seqlens[n + 1] && p->h0_rank[n]) p->h0_rank[n]--;
}

static void two_ranks_always_cross(struct kcp_plan *p) { p->crossing = p->R > 1; }

static void rank_end_is_last(struct kcp_plan *p)
{
    for (int j = 0; j + 1 < p->S; j++)
        p->seg[j].last |= p->seg[j].rank != p->seg[j + 1].rank;
}

/* Moves cuts off the multiples of L, as if L were counted from the rank's start. */
static void canonical_from_the_rank(struct kcp_plan *p)
{
    for (int j = 1; p->L && j < p->S; j++)
        if (p->seg[j].n == p->seg[j - 1].n && p->seg[j].end - p->seg[j].begin < p->L) {
            p->seg[j].begin++;
            p->seg[j - 1].end++;
        }
}

static void local_numbers_for_global(struct kcp_plan *p)
{
    for (int r = 0; r < p->R; r++)
        for (int m = 0; m < p->ctx[r].n_local; m++) p->ctx[r].seq[m] = m;
}

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

/* Sets `pre` to the number of earlier segments, not of earlier changes of owner. */
static void counts_of_segments(struct kcp_plan *p)
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

struct hunt { void (*spoil)(struct kcp_plan *); int64_t found, plans; };

static int hunt(const struct plan_case *a, struct kcp_plan *p, void *arg)
{
    struct hunt *h = arg;
    h->spoil(p);
    h->found += plan_wrong(p, a) != NULL;
    h->plans++;
    return !h->found;
}

static int wrong_plans(struct kcp_report *rep)
{
#define WRONG(f) { f, #f }
    static const struct {
        void (*spoil)(struct kcp_plan *);
        const char *name;
    } list[] = {
        WRONG(twin), WRONG(empty_ranks_not_counted), WRONG(first_for_last),
        WRONG(halo_from_neighbour_only), WRONG(one_grid_for_the_rank),
        WRONG(empty_sequence_after_the_cut), WRONG(two_ranks_always_cross),
        WRONG(rank_end_is_last), WRONG(canonical_from_the_rank),
        WRONG(local_numbers_for_global), WRONG(owner_one_on), WRONG(linked_by_shard),
        WRONG(counts_of_segments), WRONG(ranges_run_together),
        WRONG(shards_in_token_order), WRONG(ends_on_the_last_rank) };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct hunt h = { list[i].spoil, 0, 0 };
        plan_cases(hunt, &h);
        EXPECT(rep, (i > 0) == (h.found > 0),
               "'%s': %lld of %lld plans rejected, expected 0 for twin, >0 for others",
               list[i].name, (long long)h.found, (long long)h.plans);
    }
    return KCP_OK;
}

KCP_CHECK(check_06_wrong_plans) = { "06_plan", "wrong_plans",
    "15 wrong plans are rejected, and the correct plan passes", wrong_plans };
KCP_CHECK(check_06_refused) = {
    "06_plan", "refused", "invalid arguments are rejected with a message", refused };
KCP_CHECK(check_06_owners_refused) = { "06_plan", "owners_refused",
    "an invalid table of owners is rejected with a message", owners_refused };
