/* checks.c -- checks every exchange algorithm (form): its states must be exact.
 * Book: chapter 07.
 *
 * Maps have small integers as entries, so that all sums are exact and results can be
 * compared bit for bit. Entries that the exchange must not read are NaN. */
#include "folded.h"

#include <stdlib.h>
#include <string.h>

int merge_pick(struct stream *s, int n)
{
    const int k = (int)(uniform(s) * n);
    return k < n ? k : n - 1;
}

/* Makes a plan of random ranges with random owners, or a zigzag or striped plan. */
static struct kcp_plan *deal_plan(struct stream *s, int N, const int64_t *cu, int R,
                                  int64_t L)
{
    int64_t bound[3 * MOST_R + 1] = { 0 };
    int owner[3 * MOST_R];
    struct kcp_owners o = { 1 + merge_pick(s, 3 * R), bound, owner };
    struct kcp_plan *plan = NULL;
    const int kind = merge_pick(s, 4);
    if (kind == KCP_ZIGZAG || kind == KCP_STRIPED) {
        if (kcp_owners_make(&o, kind, N, cu, R, 1 + merge_pick(s, 4), NULL))
            return NULL;
        const int err = kcp_plan_owned(&plan, N, cu, R, &o, L, 4, 0, NULL);
        kcp_owners_free(&o);
        return err ? NULL : plan;
    }
    for (int b = 1; b <= o.B; b++) {
        const int64_t left = cu[N] - bound[b - 1];
        bound[b] = b == o.B ? cu[N] : bound[b - 1] + merge_pick(s, (int)left / 2 + 1);
        owner[b - 1] = merge_pick(s, R);
    }
    return kcp_plan_owned(&plan, N, cu, R, &o, L, 4, 0, NULL) ? NULL : plan;
}

/* Makes a random plan, in which sequences and ranks may be empty. */
static struct kcp_plan *draw_plan(struct stream *s, int R, int64_t L)
{
    int64_t cu[MAX_N + 1] = { 0 }, cuts[MOST_R + 1] = { 0 };
    struct kcp_plan *plan;
    const int N = 1 + merge_pick(s, MAX_N), longest = 1 + merge_pick(s, 2 * MAX_T / 3);
    for (int n = 0; n < N; n++) {
        const int64_t len = merge_pick(s, merge_pick(s, 3) ? longest : 2);
        cu[n + 1] = cu[n] + len > MAX_T ? cu[n] : cu[n] + len;
    }
    if (!merge_pick(s, 3)) return deal_plan(s, N, cu, R, L);
    for (int r = 1; r < R; r++) cuts[r] = merge_pick(s, (int)cu[N] + 1);
    cuts[R] = cu[N];
    for (int r = 1; r < R; r++)                          /* sorts cuts */
        for (int j = r; j > 1 && cuts[j] < cuts[j - 1]; j--) {
            const int64_t t = cuts[j];
            cuts[j] = cuts[j - 1];
            cuts[j - 1] = t;
        }
    return kcp_plan_make(&plan, N, cu, R, merge_pick(s, 4) ? cuts : NULL, L, 4, 0, NULL)
        ? NULL : plan;
}

/* Draws maps. Each row of M has one or two nonzero entries, 1 or -1, so products of 40
 * maps are exact. */
static void draw_maps(struct whole *a, struct stream *s)
{
    for (int j = 0; j < a->plan->S; j++)
        for (int n = 0; n < HV; n++)
            for (int i = 0; i < K; i++) {
                for (int p = 0; p < K; p++) a->M[j][n][i][p] = 0;
                a->M[j][n][i][merge_pick(s, K)] = merge_pick(s, 2) ? 1 : -1;
                if (!merge_pick(s, 4)) a->M[j][n][i][merge_pick(s, K)] = 1;
                for (int v = 0; v < V; v++) {
                    a->h[0][j][n][i][v] = merge_pick(s, 7) - 3;
                    a->h[1][j][n][i][v] = merge_pick(s, 7) - 3;
                    a->start[j][n][i][v] = merge_pick(s, 5) - 2;
                }
            }
}

/* Computes the expected states by applying the maps of all segments in order. */
static void fold_all(struct whole *a, int backward)
{
    const struct kcp_segment *seg = a->plan->seg;
    const int S = a->plan->S, *order = a->plan->order;
    for (int e = 0, b = 0, j = 0; e < S; e++, b = j) {
        j = order[backward ? S - 1 - e : e];
        const int starts = backward ? seg[j].last : seg[j].first;
        for (int n = 0; n < HV; n++)
            for (int i = 0; i < K; i++)
                for (int v = 0; v < V; v++) {
                    double x = starts ? a->start[j][n][i][v]
                                      : a->h[backward][b][n][i][v];
                    if (!starts && !(backward ? seg[b].last : seg[b].first))
                        for (int p = 0; p < K; p++)
                            x += (backward ? a->M[b][n][p][i] : a->M[b][n][i][p]) *
                                 a->want[backward][b][n][p][v];
                    a->want[backward][j][n][i][v] = x;
                }
    }
}

void merge_fill(struct whole *a, struct stream *s)
{
    draw_maps(a, s);
    fold_all(a, 0);
    fold_all(a, 1);
}

int merge_draw(struct whole *a, struct stream *s, int R, int64_t L)
{
    a->plan = draw_plan(s, R, L);
    if (!a->plan) return 0;
    merge_fill(a, s);
    return 1;
}

static int same(struct kcp_traffic a, struct kcp_traffic b)
{
    return a.bytes == b.bytes && a.messages == b.messages &&
           a.collectives == b.collectives;
}

static int owner_of(const struct kcp_plan *p, int64_t t)
{
    int b = 0;
    while (p->bound[b + 1] <= t) b++;
    return p->owner[b];
}

/* Computes the traffic of rank r by the formulas in chapter 07's table, token by
 * token. A visit is a run of consecutive tokens of one sequence on one rank. */
static struct kcp_traffic table(const struct whole *a, int r)
{
    const struct kcp_plan *p = a->plan;
    struct kcp_traffic t = { 0, 0, 0 };
    int visit[MAX_T + 1], from = 0, leaves = 0, far = 0, sent[MOST_R] = { 0 }, most = 0;
    if (!p->crossing) return t;
    for (int n = 0; n < p->N; n++, from = 0) {
        int m = 0, owners = 0;
        for (int64_t i = p->cu_seqlens[n]; i < p->cu_seqlens[n + 1]; i++) {
            const int64_t last = p->cu_seqlens[n + 1] - 1;
            const int q = owner_of(p, a->backward ? last - (i - p->cu_seqlens[n]) : i);
            if (!m || visit[m - 1] != q)
                visit[m++] = q;                      /* backward: last visit first */
        }
        for (; from < m; from++) {
            for (int to = from + 1; to < m; to++)
                owners |= visit[to] != visit[from];
            sent[visit[from]] += owners && from + 1 < m;
            leaves += visit[from] == r && from + 1 < m;
            for (int d = 1; visit[from] == r && from + d < m; d *= 2)
                far += visit[from + d] != r;
        }
    }
    for (int q = 0; q < p->R; q++) most = sent[q] > most ? sent[q] : most;
    const int blocks = a->blocks < V ? a->blocks : V;
    const int B = a->blocks < 1 ? 4 : blocks;
    if (a->form == KCP_ALL_GATHER) {
        const int bytes = a->reuse_M && a->backward ? STATE * 8 : MAP * 8;
        t.bytes = (p->R - 1) * (int64_t)bytes * most;              /* if L = 0 */
        t.collectives = 1;
    } else if (a->form == KCP_SCAN) {
        t.messages = far;
        t.bytes = t.messages * MAP * 8;
    } else {
        t.messages = a->form == KCP_CHAIN ? leaves : leaves * B;
        t.bytes = leaves * STATE * 8;
    }
    return t;
}

int merge_run(struct whole *a, char *why, size_t n)
{
    const struct kcp_plan *p = a->plan;
    int wrong = 0;
    memset(a->got, 0xff, sizeof a->got);
    if (kcp_threads_run(p->R, merge_body, a, why, n)) return -1;
    for (int j = 0; j < p->S; j++)
        wrong += !!memcmp(a->got[j], a->want[a->backward][j], sizeof a->got[j]);
    return wrong;
}

static void compare(struct kcp_report *rep, struct whole *a)
{
    const struct kcp_plan *p = a->plan;
    char why[200] = "";
    const int wrong = merge_run(a, why, sizeof why);
    EXPECT(rep, wrong == 0, "form %d pass %d reuse %d R %d L %d: %d/%d states wrong %s",
           a->form, a->backward, a->reuse_M, p->R, (int)p->L, wrong, p->S, why);
    for (int r = 0; r < p->R && wrong >= 0; r++) {
        const struct kcp_traffic c = a->counted[r], f = a->formula[r], t = table(a, r);
        EXPECT(rep, same(c, f), "form %d, R = %d: rank %d sent %lld bytes in %lld "
               "messages, expected %lld bytes in %lld", a->form, p->R, r,
               (long long)c.bytes, (long long)c.messages, (long long)f.bytes,
               (long long)f.messages);
        /* table() has formulas only for the four exchange forms of chapter 07. */
        const int in_table = (int)a->form <= KCP_SCAN;
        EXPECT(rep, !in_table || (p->L && a->form == KCP_ALL_GATHER) || same(c, t),
               "form %d, R = %d: rank %d sent %lld bytes in %lld messages, table() "
               "gives %lld in %lld", a->form, p->R, r, (long long)c.bytes,
               (long long)c.messages, (long long)t.bytes, (long long)t.messages);
        EXPECT(rep, p->crossing || !(c.bytes | c.messages | c.collectives),
               "rank %d of %d sends a message, but no sequence is cut", r, p->R);
    }
}

/* Runs every exchange form in both passes. With reuse_M, backward uses forward's M. */
static int forms(struct kcp_report *rep)
{
    struct whole *a = calloc(1, sizeof *a);
    struct stream s = stream_of(7, "07_merge");
    int crossing = 0, scattered = 0;
    for (int trial = 0; trial < 400 && a; trial++) {
        const int R = 1 + trial % MAX_R;
        if (!merge_draw(a, &s, R, trial % 2 ? 1 + merge_pick(&s, 5) : 0))
            return KCP_NO_MEMORY;
        a->ops = &ref_mapops;
        crossing += a->plan->crossing;
        scattered += a->plan->scattered;
        a->blocks = merge_pick(&s, 8);
        for (int form = 0; form < KCP_FORMS; form++) {
            const struct kcp_exchange e = { .form = form, .HV = HV, .K = K, .V = V,
                                            .plan = a->plan, .ops = &ref_mapops };
            a->form = form; a->reuse_M = 0;
            for (a->backward = 0; a->backward < 2; a->backward++)
                compare(rep, a);
            for (int r = 0; r < R; r++)
                a->kept[r] = malloc(kcp_exchange_kept(&e) + 1);
            a->reuse_M = form == KCP_ALL_GATHER;
            for (a->backward = 0; a->backward < 2 && a->reuse_M; a->backward++)
                compare(rep, a);
            for (int r = 0; r < R; r++) {
                free(a->kept[r]);
                a->kept[r] = NULL;
            }
        }
        kcp_plan_free(a->plan);
    }
    EXPECT(rep, scattered > 60, "%d of 400 plans have shards out of token order, "
           "expected over 60", scattered);
    EXPECT(rep, crossing > 200, "%d of 400 plans cut a sequence, expected over 200",
           crossing);
    free(a);
    return KCP_OK;
}

KCP_CHECK(check_07_forms) = { "07_merge", "forms",
    "on 1 to 9 ranks, all exchange forms give the states of a fold over all maps in "
    "order, and send as many bytes as their formulas give", forms };
