/* checks.c -- every form of the exchange on thread ranks, bit for bit; and failures.
 *
 * Book: chapter 07.  Checked by: itself, against a fold over all segments in order.
 * Next: tests/07_merge/wrong.c.
 *
 * Maps are small integers, so that every form's sums are exact
 * and a right answer is right in every bit; what nobody may read is NaN. */
#include "folded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int merge_pick(struct stream *s, int n)
{
    const int k = (int)(uniform(s) * n);
    return k < n ? k : n - 1;
}

/* A plan with zero-length sequences, empty ranks and cuts anywhere. */
static struct kcp_plan *draw_plan(struct stream *s, int R, int64_t L)
{
    int64_t cu[MAX_N + 1] = { 0 }, cuts[MOST_R + 1] = { 0 };
    struct kcp_plan *plan;
    const int N = 1 + merge_pick(s, MAX_N), longest = 1 + merge_pick(s, 2 * MAX_T / 3);
    for (int n = 0; n < N; n++) {
        const int64_t len = merge_pick(s, merge_pick(s, 3) ? longest : 2);
        cu[n + 1] = cu[n] + len > MAX_T ? cu[n] : cu[n] + len;
    }
    for (int r = 1; r < R; r++)
        cuts[r] = merge_pick(s, (int)cu[N] + 1);
    cuts[R] = cu[N];
    for (int r = 1; r < R; r++)                          /* in order */
        for (int j = r; j > 1 && cuts[j] < cuts[j - 1]; j--) {
            const int64_t t = cuts[j];
            cuts[j] = cuts[j - 1];
            cuts[j - 1] = t;
        }
    return kcp_plan_make(&plan, N, cu, R, merge_pick(s, 4) ? cuts : NULL, L, 4, 0, NULL)
        ? NULL : plan;
}

/* Rows of M with one or two entries of +-1: products of forty stay exact. */
static void draw_maps(struct whole *a, struct stream *s)
{
    for (int j = 0; j < a->plan->S; j++)
        for (int n = 0; n < HV; n++)
            for (int i = 0; i < K; i++) {
                for (int p = 0; p < K; p++)
                    a->M[j][n][i][p] = 0;
                a->M[j][n][i][merge_pick(s, K)] = merge_pick(s, 2) ? 1 : -1;
                if (!merge_pick(s, 4))
                    a->M[j][n][i][merge_pick(s, K)] = 1;
                for (int v = 0; v < V; v++) {
                    a->h[0][j][n][i][v] = merge_pick(s, 7) - 3;
                    a->h[1][j][n][i][v] = merge_pick(s, 7) - 3;
                    a->start[j][n][i][v] = merge_pick(s, 5) - 2;
                }
            }
}

/* The fold, one segment after another, no ranks: what everybody must agree with. */
static void fold_all(struct whole *a, int backward)
{
    const struct kcp_segment *seg = a->plan->seg;
    const int S = a->plan->S, step = backward ? -1 : 1;
    for (int e = 0, j = backward ? S - 1 : 0; e < S; e++, j += step) {
        const int starts = backward ? seg[j].last : seg[j].first, b = j - step;
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

int merge_draw(struct whole *a, struct stream *s, int R, int64_t L)
{
    a->plan = draw_plan(s, R, L);
    if (!a->plan)
        return 0;
    draw_maps(a, s);
    fold_all(a, 0);
    fold_all(a, 1);
    return 1;
}

/* This rank's maps, NaN where kcp_plan_want says that nobody reads. */
void merge_own_maps(const struct whole *a, const struct kcp_context *x, double *maps_)
{
    double (*maps)[HV][K][V + K] = (double (*)[HV][K][V + K])maps_;
    for (int s = 0; s < x->NS; s++) {
        const int j = x->seg0 + s, want = kcp_plan_want(a->plan, j, a->backward);
        for (int n = 0; n < HV; n++)
            for (int i = 0; i < K; i++) {
                for (int v = 0; v < V; v++)
                    maps[s][n][i][v] =
                        want & KCP_WANT_H ? a->h[a->backward][j][n][i][v] : NAN;
                for (int p = 0; p < K; p++)
                    maps[s][n][i][V + p] = want & KCP_WANT_M ? a->M[j][n][i][p] : NAN;
            }
    }
}

/* One rank: its own maps and states, the exchange, its answers. */
int merge_body(struct kcp_comm *comm, void *arg)
{
    struct whole *a = arg;
    const struct kcp_context *x = &a->plan->ctx[comm->r];
    const struct kcp_mapops *ops =
        a->bad_ops && comm->r == a->bad_rank ? a->bad_ops : a->ops;
    struct kcp_exchange e = { .form = a->form, .backward = a->backward, .HV = HV,
        .K = K, .V = V, .blocks = a->blocks, .reuse_M = a->reuse_M && a->backward,
        .plan = a->plan, .comm = comm, .ops = ops };
    const size_t work = kcp_exchange_work(&e) / sizeof(double);
    double *maps = malloc(sizeof(double) * (x->NS * MAP + x->NS * STATE + work + 1));
    if (!maps)
        return KCP_NO_MEMORY;
    e.maps = maps;
    e.states = maps + x->NS * MAP;
    e.work = maps + x->NS * (MAP + STATE);
    if (a->reuse_M)
        e.kept = a->kept[comm->r];
    for (size_t i = 0; i < x->NS * STATE + work; i++)
        ((double *)e.states)[i] = NAN;
    merge_own_maps(a, x, maps);
    for (int s = 0; s < x->NS; s++) {
        const struct kcp_segment *g = &a->plan->seg[x->seg0 + s];
        if (a->backward ? g->last : g->first)
            memcpy((double *)e.states + s * STATE, a->start[x->seg0 + s],
                   sizeof a->start[0]);
    }
    const int err = kcp_exchange_run(&e);
    if (!err)
        memcpy(a->got[x->seg0], e.states, sizeof(double) * x->NS * STATE);
    a->counted[comm->r] = comm->traffic;
    a->formula[comm->r] = kcp_exchange_formula(&e);
    free(maps);
    return err;
}

static int same(struct kcp_traffic a, struct kcp_traffic b)
{
    return a.bytes == b.bytes && a.messages == b.messages &&
           a.collectives == b.collectives;
}

/* field.md's table, from the segments alone: a second count of what rank r sends. */
static struct kcp_traffic table(const struct whole *a, int r)
{
    const struct kcp_plan *p = a->plan;
    const int step = a->backward ? -1 : 1, R = p->R;
    const struct kcp_segment *seg = p->seg;
    struct kcp_traffic t = { 0, 0, 0 };
    int last = -1, after = 0;
    for (int j = a->backward ? p->S - 1 : 0; j >= 0 && j < p->S; j += step)
        if (seg[j].rank == r)
            last = j;
    for (int j = last; j >= 0 && !(a->backward ? seg[j].first : seg[j].last); j += step)
        after += seg[j + step].rank != seg[j].rank;
    if (!p->crossing)
        return t;
    const int asked = a->blocks < V ? a->blocks : V;
    const int B = a->blocks < 1 ? 4 : asked;
    if (a->form == KCP_ALL_GATHER) {
        const int bytes = a->reuse_M && a->backward ? STATE * 8 : MAP * 8;
        t.bytes = (R - 1) * (int64_t)bytes; t.collectives = 1;     /* classic only */
    } else if (a->form == KCP_SCAN) {
        while ((1 << t.messages) <= after)
            t.messages++;
        t.bytes = t.messages * MAP * 8;
    } else if (after) {
        t.messages = a->form == KCP_CHAIN ? 1 : B;
        t.bytes = STATE * 8;
    }
    return t;
}

int merge_run(struct whole *a, char *why, size_t n)
{
    const struct kcp_plan *p = a->plan;
    int wrong = 0;
    memset(a->got, 0xff, sizeof a->got);
    if (kcp_threads_run(p->R, merge_body, a, why, n))
        return -1;
    for (int j = 0; j < p->S; j++)
        wrong += !!memcmp(a->got[j], a->want[a->backward][j], sizeof a->got[j]);
    return wrong;
}

static void compare(struct kcp_report *rep, struct whole *a)
{
    const struct kcp_plan *p = a->plan;
    char why[200] = "";
    const int wrong = merge_run(a, why, sizeof why);
    EXPECT(rep, wrong == 0, "form %d backward %d reuse %d R %d L %d: %d of %d wrong %s",
           a->form, a->backward, a->reuse_M, p->R, (int)p->L, wrong, p->S, why);
    for (int r = 0; r < p->R && wrong >= 0; r++) {
        const struct kcp_traffic c = a->counted[r], f = a->formula[r], t = table(a, r);
        EXPECT(rep, same(c, f), "form %d R %d rank %d: %lld bytes in %lld messages, "
               "formula %lld in %lld", a->form, p->R, r, (long long)c.bytes,
               (long long)c.messages, (long long)f.bytes, (long long)f.messages);
        EXPECT(rep, (p->L && a->form == KCP_ALL_GATHER) || same(c, t),
               "form %d R %d rank %d: %lld bytes, the table says %lld", a->form, p->R,
               r, (long long)c.bytes, (long long)t.bytes);
        EXPECT(rep, p->crossing || !(c.bytes | c.messages | c.collectives),
               "rank %d of %d talks though nothing crosses", r, p->R);
    }
}

/* Every form, both walks, with M sent again and with M reused. */
static int forms(struct kcp_report *rep)
{
    struct whole *a = calloc(1, sizeof *a);
    struct stream s = stream_of(7, "07_merge");
    int crossing = 0;
    for (int trial = 0; trial < 400 && a; trial++) {
        const int R = 1 + trial % MAX_R;
        if (!merge_draw(a, &s, R, trial % 2 ? 1 + merge_pick(&s, 5) : 0))
            return KCP_NO_MEMORY;
        a->ops = &ref_mapops;
        crossing += a->plan->crossing;
        a->blocks = merge_pick(&s, 8);
        for (int form = KCP_ALL_GATHER; form <= KCP_SCAN; form++) {
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
    EXPECT(rep, crossing > 200, "only %d plans of 400 cross a cut", crossing);
    free(a);
    return KCP_OK;
}

KCP_CHECK(check_07_forms) = {
    "07_merge", "forms", "four forms, R = 1..9: the fold's bits, the table's bytes",
    forms };
