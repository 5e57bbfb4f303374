/* 07_merge.c -- every form of the exchange on thread ranks, bit for bit; and failures.
 *
 * Book: chapter 07.  Checked by: itself, against a fold over all segments in order.
 * Next: 08_forward.c. Maps are small integers, so that every form's sums are exact and
 * a right answer is right in every bit; what nobody may read is NaN. */
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HV = 2, K = 3, V = 5, MAX_N = 6, MAX_R = 9, MAX_T = 40, STATE = HV * K * V,
       MAP = HV * K * (V + K) };

/* All segments' maps for both walks (M is the same), and what one process makes of
 * them. Ranks copy their own rows out of it and write their answers into got. */
struct whole {
    struct kcp_plan *plan;
    int backward, reuse_M, blocks;
    enum kcp_form form;
    double M[MAX_T][HV][K][K], h[2][MAX_T][HV][K][V], start[MAX_T][HV][K][V];
    double want[2][MAX_T][HV][K][V], got[MAX_T][HV][K][V];
    double *kept[MAX_R];
    struct kcp_traffic counted[MAX_R], formula[MAX_R];
    int bad_rank, bad_how;
};

static int pick(struct stream *s, int n)
{
    const int k = (int)(uniform(s) * n);
    return k < n ? k : n - 1;
}

/* A plan with zero-length sequences, empty ranks and cuts anywhere. */
static struct kcp_plan *draw_plan(struct stream *s, int R, int64_t L)
{
    int64_t cu[MAX_N + 1] = { 0 }, cuts[MAX_R + 1] = { 0 };
    struct kcp_plan *plan;
    const int N = 1 + pick(s, MAX_N), longest = 1 + pick(s, 2 * MAX_T / 3);
    for (int n = 0; n < N; n++) {
        const int64_t len = pick(s, 3) ? pick(s, longest) : pick(s, 2);
        cu[n + 1] = cu[n] + len > MAX_T ? cu[n] : cu[n] + len;
    }
    for (int r = 1; r < R; r++)
        cuts[r] = pick(s, (int)cu[N] + 1);
    cuts[R] = cu[N];
    for (int r = 1; r < R; r++)                          /* in order */
        for (int j = r; j > 1 && cuts[j] < cuts[j - 1]; j--) {
            const int64_t t = cuts[j];
            cuts[j] = cuts[j - 1], cuts[j - 1] = t;
        }
    return kcp_plan_make(&plan, N, cu, R, pick(s, 4) ? cuts : NULL, L, 4, 0, NULL)
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
                a->M[j][n][i][pick(s, K)] = pick(s, 2) ? 1 : -1;
                if (!pick(s, 4))
                    a->M[j][n][i][pick(s, K)] = 1;
                for (int v = 0; v < V; v++) {
                    a->h[0][j][n][i][v] = pick(s, 7) - 3;
                    a->h[1][j][n][i][v] = pick(s, 7) - 3;
                    a->start[j][n][i][v] = pick(s, 5) - 2;
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

/* This rank's maps, NaN where kcp_plan_want says that nobody reads. */
static void own_maps(const struct whole *a, const struct kcp_context *x, double *maps_)
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

static int no_apply(int hv, int k, int v, const void *map, int backward, int first,
                    int v0, int Vb, const void *in, int ld_in, void *out, int ld_out,
                    struct CUstream_st *stream)
{
    return KCP_CUDA;
}

static int no_copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                   size_t width, size_t rows, struct CUstream_st *stream)
{
    return KCP_CUDA;
}

/* One rank: its own maps and states, the exchange, its answers. */
static int body(struct kcp_comm *comm, void *arg)
{
    struct whole *a = arg;
    const struct kcp_context *x = &a->plan->ctx[comm->r];
    struct kcp_mapops ops = ref_mapops;
    if (a->bad_how && comm->r == a->bad_rank)
        ops.apply = no_apply, ops.copy = no_copy;
    struct kcp_exchange e = { .form = a->form, .backward = a->backward, .HV = HV,
        .K = K, .V = V, .blocks = a->blocks, .reuse_M = a->reuse_M && a->backward,
        .plan = a->plan, .comm = comm, .ops = &ops };
    const size_t work = kcp_exchange_work(&e) / sizeof(double);
    double *maps = malloc(sizeof(double) * (x->NS * MAP + x->NS * STATE + work + 1));
    if (!maps)
        return KCP_NO_MEMORY;
    e.maps = maps, e.states = maps + x->NS * MAP, e.work = maps + x->NS * (MAP + STATE);
    if (a->reuse_M)
        e.kept = a->kept[comm->r];
    for (size_t i = 0; i < x->NS * STATE + work; i++)
        ((double *)e.states)[i] = NAN;
    own_maps(a, x, maps);
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
    const int B = a->blocks < 1 ? 4 : a->blocks < V ? a->blocks : V;
    if (a->form == KCP_ALL_GATHER) {
        const int bytes = a->reuse_M && a->backward ? STATE * 8 : MAP * 8;
        t.bytes = (R - 1) * (int64_t)bytes, t.collectives = 1;     /* classic only */
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

static void compare(struct kcp_report *rep, struct whole *a, const char *what)
{
    const struct kcp_plan *p = a->plan;
    char why[200] = "";
    memset(a->got, 0xff, sizeof a->got);
    const int err = kcp_threads_run(p->R, body, a, why, sizeof why);
    EXPECT(rep, !err, "%s form %d backward %d R %d L %d: status %d, %s", what, a->form,
           a->backward, p->R, (int)p->L, err, why);
    for (int j = 0; j < p->S && !err; j++)
        EXPECT(rep, !memcmp(a->got[j], a->want[a->backward][j], sizeof a->got[j]),
               "%s form %d backward %d reuse %d R %d L %d: segment %d of %d, rank %d",
               what, a->form, a->backward, a->reuse_M, p->R, (int)p->L, j, p->S,
               p->seg[j].rank);
    for (int r = 0; r < p->R && !err; r++) {
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
        a->plan = draw_plan(&s, R, trial % 2 ? 1 + pick(&s, 5) : 0);
        EXPECT(rep, a->plan != NULL, "trial %d: no plan", trial);
        if (!a->plan)
            break;
        crossing += a->plan->crossing;
        draw_maps(a, &s);
        fold_all(a, 0);
        fold_all(a, 1);
        a->blocks = pick(&s, 8);
        for (int form = KCP_ALL_GATHER; form <= KCP_SCAN; form++) {
            const struct kcp_exchange e = { .form = form, .HV = HV, .K = K, .V = V,
                                            .plan = a->plan, .ops = &ref_mapops };
            a->form = form, a->reuse_M = 0;
            for (a->backward = 0; a->backward < 2; a->backward++)
                compare(rep, a, "forms");
            for (int r = 0; r < R; r++)
                a->kept[r] = malloc(kcp_exchange_kept(&e) + 1);
            a->reuse_M = form == KCP_ALL_GATHER;
            for (a->backward = 0; a->backward < 2 && a->reuse_M; a->backward++)
                compare(rep, a, "reuse_M");
            for (int r = 0; r < R; r++)
                free(a->kept[r]), a->kept[r] = NULL;
        }
        kcp_plan_free(a->plan);
    }
    EXPECT(rep, crossing > 200, "only %d plans of 400 cross a cut", crossing);
    free(a);
    return KCP_OK;
}

/* ---- a rank that fails, leaves, or waits for nobody ends the run, named */

enum { FAILS = 1, RETURNS, LEAVES, WAITS, SIZES };

static int failing(struct kcp_comm *c, void *arg)
{
    const struct whole *a = arg;
    double x = 0, all[MAX_R];
    if (a->bad_how == FAILS && c->r == a->bad_rank) {
        c->fail(c, KCP_CUDA, "its device is on fire");
        return KCP_OK;
    }
    if (a->bad_how == RETURNS && c->r == a->bad_rank)
        return KCP_MISMATCH;
    if (a->bad_how == LEAVES && c->r == a->bad_rank)
        return KCP_OK;
    if (a->bad_how == WAITS && c->r == a->bad_rank)
        return c->recv(c, &x, sizeof x, (c->r + 1) % c->R, NULL);
    if (a->bad_how == SIZES && c->r == a->bad_rank)
        return c->all_gather(c, &x, all, sizeof(float), NULL);
    return c->r % 2 && a->bad_how < WAITS ? c->recv(c, &x, sizeof x, a->bad_rank, NULL)
                                          : c->all_gather(c, &x, all, sizeof x, NULL);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int failures(struct kcp_report *rep)
{
    static const char *const reason[] = { "", "its device is on fire", "KCP_MISMATCH",
                                          "left while rank", "every other rank waits",
                                          "unequal sizes" };
    static const int status[] = { 0, KCP_CUDA, KCP_MISMATCH, KCP_COMM, KCP_COMM,
                                  KCP_COMM };
    struct whole *a = calloc(1, sizeof *a);
    for (int R = 2; R <= MAX_R && a; R++)
        for (a->bad_how = FAILS; a->bad_how <= SIZES; a->bad_how++) {
            char why[200] = "", rank[16];
            const double t = seconds();
            a->bad_rank = R / 2;
            const int err = kcp_threads_run(R, failing, a, why, sizeof why);
            snprintf(rank, sizeof rank, "rank %d: ", a->bad_rank);
            EXPECT(rep, err == status[a->bad_how], "how %d: %d", a->bad_how, err);
            EXPECT(rep, strstr(why, reason[a->bad_how]), "how %d: %s", a->bad_how, why);
            EXPECT(rep, a->bad_how >= WAITS || !strncmp(why, rank, strlen(rank)),
                   "how %d: %s, not %s", a->bad_how, why, rank);
            EXPECT(rep, seconds() - t < 1, "how %d: %.1f s", a->bad_how, seconds() - t);
        }
    free(a);
    return KCP_OK;
}

/* The device of one rank refuses in the middle of each form. */
static int middle(struct kcp_report *rep)
{
    const int64_t cu[] = { 0, 36 };
    struct whole *a = calloc(1, sizeof *a);
    struct stream s = stream_of(7, "middle");
    if (!a || kcp_plan_make(&a->plan, 1, cu, 6, NULL, 0, 4, 0, NULL))
        return KCP_NO_MEMORY;
    draw_maps(a, &s);
    a->bad_how = RETURNS, a->bad_rank = 3;
    for (int form = KCP_ALL_GATHER; form <= KCP_SCAN; form++) {
        char why[200] = "";
        const double t = seconds();
        a->form = form;
        const int err = kcp_threads_run(6, body, a, why, sizeof why);
        EXPECT(rep, err == KCP_CUDA && !strncmp(why, "rank 3: ", 8),
               "form %d: status %d, %s", form, err, why);
        EXPECT(rep, seconds() - t < 1, "form %d took %.1f s", form, seconds() - t);
    }
    kcp_plan_free(a->plan);
    free(a);
    return KCP_OK;
}

KCP_CHECK(check_07_forms) = {
    "07_merge", "forms", "four forms, R = 1..9: the fold's bits, the table's bytes",
    forms };
KCP_CHECK(check_07_failures) = {
    "07_merge", "failures", "a rank that fails, leaves or waits is named within 1 s",
    failures };
KCP_CHECK(check_07_middle) = {
    "07_merge", "middle", "a device that refuses inside an exchange ends all ranks",
    middle };
