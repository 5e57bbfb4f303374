/* wrong.c -- checks that errors name the failing rank and that wrong results are found.
 * Book: chapter 07. */
#include "folded.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static int no_compose(int hv, int k, int v, const void *b, const void *a, int backward,
                      int a_first, void *out, struct CUstream_st *stream)
{
    return KCP_CUDA;
}

const struct kcp_mapops merge_refuses = {
    "refuses", sizeof(double), no_apply, no_compose, no_copy, NULL, 0 };

/* ---- an error names a rank that fails or returns early; a deadlock ends the run */

enum { FAILS = 1, RETURNS, LEAVES, WAITS, SIZES };

static int failing(struct kcp_comm *c, void *arg)
{
    const struct whole *a = arg;
    double x = 0, all[MAX_R];
    if (a->bad_how == FAILS && c->r == a->bad_rank) {
        c->fail(c, KCP_CUDA, "device error");
        return KCP_OK;
    }
    if (a->bad_how == RETURNS && c->r == a->bad_rank) return KCP_MISMATCH;
    if (a->bad_how == LEAVES && c->r == a->bad_rank) return KCP_OK;
    if (a->bad_how == WAITS && c->r == a->bad_rank)
        return c->recv(c, &x, sizeof x, (c->r + 1) % c->R, NULL);
    if (a->bad_how == SIZES && c->r == a->bad_rank)
        return c->all_gather(c, &x, all, sizeof(float), NULL);
    return c->r % 2 && a->bad_how < WAITS ? c->recv(c, &x, sizeof x, a->bad_rank, NULL)
                                          : c->all_gather(c, &x, all, sizeof x, NULL);
}

/* Limit in seconds, far below the timeout of 60 s but long enough on a busy machine. */
enum { AT_ONCE = 30 };
static int failures(struct kcp_report *rep)
{
    static const char *const reason[] = { "", "device error", "returned status 6",
                                          "it ended while rank",
                                          "every other rank waits",
                                          "unequal sizes" };
    static const int status[] = { 0, KCP_CUDA, KCP_MISMATCH, KCP_COMM, KCP_COMM,
                                  KCP_COMM };
    struct whole *a = calloc(1, sizeof *a);
    for (int R = 2; R <= MAX_R && a; R++)
        for (a->bad_how = FAILS; a->bad_how <= SIZES; a->bad_how++) {
            char why[200] = "", rank[16];
            const double t = seconds_now();
            a->bad_rank = R / 2;
            const int err = kcp_threads_run(R, failing, a, why, sizeof why);
            snprintf(rank, sizeof rank, "rank %d: ", a->bad_rank);
            EXPECT(rep, err == status[a->bad_how], "case %d: %d", a->bad_how, err);
            EXPECT(rep, strstr(why, reason[a->bad_how]), "case %d %s", a->bad_how, why);
            EXPECT(rep, a->bad_how >= WAITS || !strncmp(why, rank, strlen(rank)),
                   "case %d: %s, not %s", a->bad_how, why, rank);
            const double took = seconds_now() - t;
            EXPECT(rep, took < AT_ONCE, "case %d: %.1f s", a->bad_how, took);
        }
    free(a);
    return KCP_OK;
}

static int middle(struct kcp_report *rep)
{
    const int64_t cu[] = { 0, 36 };
    struct whole *a = calloc(1, sizeof *a);
    if (!a || kcp_plan_make(&a->plan, 1, cu, 6, NULL, 0, 4, 0, NULL))
        return KCP_NO_MEMORY;
    a->ops = &ref_mapops; a->bad_ops = &merge_refuses; a->bad_rank = 3;
    for (int form = 0; form < KCP_FORMS; form++) {
        char why[200] = "";
        const double t = seconds_now();
        a->form = form;
        const int err = kcp_threads_run(6, merge_body, a, why, sizeof why);
        EXPECT(rep, err == KCP_CUDA && !strncmp(why, "rank 3: ", 8),
               "form %d: status %d, %s", form, err, why);
        const double took = seconds_now() - t;
        EXPECT(rep, took < AT_ONCE, "form %d took %.1f s", form, took);
    }
    kcp_plan_free(a->plan);
    free(a);
    return KCP_OK;
}

/* ---- when a rank's gather has returned, no other rank may read that rank's row */

enum { READERS = 3, ROW = 64 };
struct readers { double row[READERS][ROW], all[READERS][READERS][ROW]; };
static _Thread_local int reader;

/* Copies for all_gather: slowly on rank 0, fast on rank 2, and fails on rank 1. */
static int reads(void *to, const void *from, size_t bytes, struct CUstream_st *stream)
{
    const struct timespec moment = { 0, 50 * 1000 * 1000 };
    if (bytes && reader == 1) return KCP_CUDA;
    if (bytes && reader == 0) nanosleep(&moment, NULL);
    if (bytes) memcpy(to, from, bytes);
    return KCP_OK;
}

static int reader_body(struct kcp_comm *c, void *arg)
{
    struct readers *x = arg;
    reader = c->r;
    for (int i = 0; i < ROW; i++) x->row[c->r][i] = c->r + 1;
    const int err = c->all_gather(c, x->row[c->r], x->all[c->r], sizeof x->row[0],
                                  NULL);
    memset(x->row[c->r], 0xff, sizeof x->row[0]);
    return err;
}

static int gather_readers(struct kcp_report *rep)
{
    struct readers *x = calloc(1, sizeof *x);
    if (!x) return KCP_NO_MEMORY;
    char why[200] = "";
    const int err = kcp_threads_run_on(READERS, reader_body, x, why, sizeof why, reads);
    EXPECT(rep, err == KCP_CUDA && !strncmp(why, "rank 1: ", 8), "status %d, %s", err,
           why);
    for (int r = 0; r < READERS; r++)
        for (int i = 0; i < ROW; i++)
            EXPECT(rep, x->all[0][r][i] == r + 1 && x->all[2][r][i] == r + 1,
                   "row %d, number %d is %g on rank 0, %g on rank 2, not row + 1", r, i,
                   x->all[0][r][i], x->all[2][r][i]);
    free(x);
    return KCP_OK;
}

/* ---- each wrong map operation in a correct exchange must give wrong states */

#define APPLY                                                                         \
    int hv, int k, int v, const void *map, int backward, int first, int v0, int Vb,   \
    const void *in, int ld_in, void *out, int ld_out, struct CUstream_st *stream
#define COMPOSE                                                                       \
    int hv, int k, int v, const void *b, const void *a, int backward, int a_first,    \
    void *out, struct CUstream_st *stream

static int not_turned(APPLY)
{
    return ref_mapops.apply(hv, k, v, map, 0, first, v0, Vb, in, ld_in, out, ld_out,
                            stream);
}

static int never_first(APPLY)
{
    return ref_mapops.apply(hv, k, v, map, backward, 0, v0, Vb, in, ld_in, out, ld_out,
                            stream);
}

static int always_first(APPLY)
{
    return ref_mapops.apply(hv, k, v, map, backward, 1, v0, Vb, in, ld_in, out, ld_out,
                            stream);
}

static int first_block(APPLY)                     /* ignores v0 */
{
    return ref_mapops.apply(hv, k, v, map, backward, first, 0, Vb, in, ld_in, out,
                            ld_out, stream);
}

static int other_order(COMPOSE)
{
    return ref_mapops.compose(hv, k, v, a, b, backward, a_first, out, stream);
}

static int composed_forward(COMPOSE)
{
    return ref_mapops.compose(hv, k, v, b, a, 0, a_first, out, stream);
}

static int last_only(COMPOSE)                     /* drops the earlier map */
{
    memcpy(out, b, sizeof(double) * MAP);
    return KCP_OK;
}

static int last_row_lost(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t rows, struct CUstream_st *stream)
{
    return ref_mapops.copy(to, to_pitch, from, from_pitch, width - 8, rows, stream);
}

static int wrong_maps(struct kcp_report *rep)
{
    const struct kcp_mapops *const r = &ref_mapops;
    const struct kcp_mapops list[] = {
        { "twin", 8, r->apply, r->compose, r->copy, NULL, 0 },
        { "not_turned", 8, not_turned, r->compose, r->copy, NULL, 0 },
        { "never_first", 8, never_first, r->compose, r->copy, NULL, 0 },
        { "always_first", 8, always_first, r->compose, r->copy, NULL, 0 },
        { "first_block", 8, first_block, r->compose, r->copy, NULL, 0 },
        { "other_order", 8, r->apply, other_order, r->copy, NULL, 0 },
        { "composed_forward", 8, r->apply, composed_forward, r->copy, NULL, 0 },
        { "last_only", 8, r->apply, last_only, r->copy, NULL, 0 },
        { "last_row_lost", 8, r->apply, r->compose, last_row_lost, NULL, 0 } };
    struct whole *a = calloc(1, sizeof *a);
    for (size_t i = 0; i < sizeof list / sizeof *list && a; i++) {
        struct stream s = stream_of(9, "wrong_maps");
        int wrong = 0;
        a->ops = &list[i];
        for (int trial = 0; trial < 30 && !wrong; trial++) {
            if (!merge_draw(a, &s, 3 + trial % 7, trial % 2 * 3)) return KCP_NO_MEMORY;
            for (int form = 0; form < KCP_FORMS; form++)
                for (a->backward = 0; a->backward < 2; a->backward++) {
                    char why[200] = "";
                    a->form = form;
                    const int n = merge_run(a, why, sizeof why);
                    EXPECT(rep, n >= 0, "%s: %s", list[i].name, why);
                    wrong += n;
                }
            kcp_plan_free(a->plan);
        }
        EXPECT(rep, (i > 0) == (wrong > 0), "%s: %d wrong states", list[i].name, wrong);
    }
    free(a);
    return KCP_OK;
}

KCP_CHECK(check_07_failures) = { "07_merge", "failures",
    "a rank that fails or returns early is named; a deadlock is an error", failures };
KCP_CHECK(check_07_middle) = { "07_merge", "middle",
    "if a map operation fails on one rank, every rank returns an error", middle };
KCP_CHECK(check_07_gather_readers) = { "07_merge", "gather_readers",
    "if an all_gather fails on one rank, it returns there only after all other ranks "
    "have read that rank's row", gather_readers };
KCP_CHECK(check_07_wrong_maps) = { "07_merge", "wrong_maps",
    "each of eight wrong map operations gives wrong states", wrong_maps };
