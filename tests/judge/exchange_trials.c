/* exchange_trials.c -- runs random exchanges in every form on threads, processes or
 * GPUs.
 *
 * Book: chapter 07.  Checked by: tests/cli/mpi.sh, bench/check_gpus.sh.
 * Next: ref/07_merge.c, the fold that is tested.
 *
 * Maps contain small integers, so that sums have equal bits in fp32 and double and on
 * every backend. Tests that kill a rank also run these exchanges. */
#include "tests/07_merge/folded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct round { struct whole *a; const struct memory *m; int wrong[MOST_R]; };

/* put converts doubles to the type of the ranks' maps and copies them to the ranks'
 * memory; get does the reverse. */
static int put(const struct memory *m, void *to, const double *from, int64_t n,
               size_t e)
{
    void *coded = malloc((size_t)n * e + 8);
    if (!coded) return KCP_NO_MEMORY;
    encode(coded, from, n, e);
    const int err = m->copy(to, coded, (size_t)n * e);
    free(coded);
    return err;
}

static int get(const struct memory *m, double *to, const void *from, int64_t n,
               size_t e)
{
    void *coded = malloc((size_t)n * e + 8);
    if (!coded) return KCP_NO_MEMORY;
    const int err = m->copy(coded, from, (size_t)n * e);
    decode(to, coded, n, e);
    free(coded);
    return err;
}

static int body(struct kcp_comm *comm, void *arg)
{
    struct round *t = arg;
    struct whole *a = t->a;
    const struct memory *m = t->m;
    const struct kcp_context *x = &a->plan->ctx[comm->r];
    const size_t e = m->mapops->elem;
    struct kcp_exchange ex = { .form = a->form, .backward = a->backward, .HV = HV,
        .K = K, .V = V, .blocks = a->blocks, .plan = a->plan, .comm = comm,
        .ops = m->mapops };
    const int64_t nm = (int64_t)x->NS * MAP, ns = (int64_t)x->NS * STATE;
    double *rows = malloc(sizeof *rows * (size_t)(nm + ns + 1));
    ex.maps = m->alloc((size_t)nm * e + 8);
    ex.states = m->alloc((size_t)ns * e + 8);
    ex.work = m->alloc(kcp_exchange_work(&ex) + 8);
    int err = rows && ex.maps && ex.states && ex.work ? KCP_OK : KCP_NO_MEMORY;
    if (!err) merge_own_maps(a, x, rows);
    for (int64_t i = 0; i < ns && !err; i++) rows[nm + i] = NAN;
    for (int s = 0; s < x->NS && !err; s++) {
        const struct kcp_segment *g = &a->plan->seg[x->seg0 + s];
        if (a->backward ? g->last : g->first)
            memcpy(rows + nm + s * STATE, a->start[x->seg0 + s], sizeof a->start[0]);
    }
    if (!err) err = put(m, ex.maps, rows, nm, e);
    if (!err) err = put(m, ex.states, rows + nm, ns, e);
    if (!err) err = kcp_exchange_run(&ex);
    if (!err) err = comm->barrier(comm, NULL);
    if (m->sync() && !err) err = KCP_CUDA;
    if (!err) err = get(m, rows, ex.states, ns, e);
    t->wrong[comm->r] = 0;
    for (int s = 0; s < x->NS && !err; s++)
        for (int i = 0; i < STATE; i++)
            t->wrong[comm->r] += !(rows[s * STATE + i] ==
                (&a->want[a->backward][x->seg0 + s][0][0][0])[i]);
    if (ex.maps) m->free(ex.maps);
    if (ex.states) m->free(ex.states);
    if (ex.work) m->free(ex.work);
    free(rows);
    return err;
}

int exchange_on(struct kcp_comm *comm, const struct memory *m, uint64_t seed,
                long long *wrong)
{
    struct round t = { calloc(1, sizeof *t.a), m, { 0 } };
    struct stream s = stream_of(seed, "exchange_on");
    int err = t.a ? KCP_OK : KCP_NO_MEMORY;
    for (int plan = 0; plan < 2 && !err; plan++) {
        if (!merge_draw(t.a, &s, comm->R, plan ? 2 : 0)) err = KCP_NO_MEMORY;
        for (int k = 0; k < 2 * KCP_FORMS && !err; k++) {
            t.a->form = (enum kcp_form)(k / 2);
            t.a->backward = k % 2;
            err = body(comm, &t);
            *wrong += t.wrong[comm->r];
        }
        if (t.a->plan) kcp_plan_free(t.a->plan);
        t.a->plan = NULL;
    }
    free(t.a);
    return err;
}

/* Returns 0, or 1 if a number is wrong or a rank failed. If `trials` is 0, runs until
 * killed. */
int exchange_trials(int trials, int R, int device)
{
    struct round t = { calloc(1, sizeof *t.a), device ? device_memory() : &host_memory,
                       { 0 } };
    struct stream s = stream_of(7, "exchange_trials");
    char why[200] = "";
    long long wrong = 0, runs = 0, crossing = 0;
    if (!t.a || !t.m) {
        fprintf(stderr, "kcp-check: no device\n");
        return 1;
    }
    printf("exchange trials, %d ranks\n", R);
    fflush(stdout);
    for (int i = 0; i < trials || !trials; i++) {
        if (!merge_draw(t.a, &s, R, i % 2 ? 1 + merge_pick(&s, 5) : 0)) return 1;
        t.a->blocks = merge_pick(&s, 8);
        crossing += t.a->plan->crossing;
        for (int k = 0; k < 2 * KCP_FORMS; k++, runs++) {
            struct verdict verdict = { .outcome = PASS };
            t.a->form = (enum kcp_form)(k / 2);
            t.a->backward = k % 2;
            snprintf(why, sizeof why, "exchange %lld, %s%s", runs,
                     kcp_form_names[k / 2],
                     k % 2 ? " backward" : "");
            ranks_doing(why);
            why[0] = 0;
            memset(t.wrong, 0, sizeof t.wrong);
            if (ranks_run(t.m, R, body, &t, why, sizeof why)) {
                fprintf(stderr, "kcp-check: exchange %lld: %s\n", runs, why);
                return 1;
            }
            for (int r = 0; r < R; r++) verdict.traffic.bytes += t.wrong[r];
            ranks_agree(&verdict);
            wrong += verdict.traffic.bytes;
        }
        kcp_plan_free(t.a->plan);
    }
    printf("%s: %lld exchanges; states cross a cut in %lld of %d plans; %lld numbers "
           "wrong%s\n",
           wrong || !crossing ? "FAILED" : "OK", runs, crossing, trials, wrong,
           crossing ? "" : "; expected more plans, at least one with a cut");
    free(t.a);
    return wrong || !crossing;
}
