/* exchange.c -- runs random exchanges of all algorithms on threads, processes or GPUs.
 * Book: chapter 07.
 *
 * Maps contain small integers, so that sums are exact in fp32 and double on every
 * backend. Tests that kill a rank also run these exchanges. */
#include "folded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Converts `numbers` to the type of the ranks' maps and copies the result to address
 * `to` in the ranks' memory. If `back` is 1, copies and converts in reverse. */
static int move(const struct memory *m, void *to, double *numbers, int64_t n, size_t e,
                int back)
{
    void *coded = malloc((size_t)n * e + 8);
    if (!coded) return KCP_NO_MEMORY;
    const enum kcp_type type = e == 8 ? KCP_TYPE_F64 : KCP_TYPE_F32;
    if (!back) encode(coded, numbers, n, type);
    const int err = back ? m->copy(coded, to, (size_t)n * e)
                         : m->copy(to, coded, (size_t)n * e);
    if (back) decode(numbers, coded, n, type);
    free(coded);
    return err;
}

/* Fills the rank's maps [NS,HV,K,V+K]. Parts of maps that kcp_plan_want excludes become
 * NaN. States become NaN, except states that start a sequence. */
static void fill_rows(const struct whole *a, const struct kcp_context *x, double *maps_,
                      double *states)
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
    for (int i = 0; i < x->NS * STATE; i++) states[i] = NAN;
    for (int s = 0; s < x->NS; s++) {
        const struct kcp_segment *g = &a->plan->seg[x->seg0 + s];
        if (a->backward ? g->last : g->first)
            memcpy(states + s * STATE, a->start[x->seg0 + s], sizeof a->start[0]);
    }
}

/* Runs one rank's exchange. The rank must send each message in a group. */
static int run_counted(struct whole *a, struct kcp_exchange *e)
{
    struct kcp_comm *comm = e->comm;
    if (!a->run) groups_count(comm);
    int err = a->run ? a->run(e) : kcp_exchange_run(e);
    const char *ungrouped = a->run ? NULL : groups_end(comm);
    if (ungrouped && !err) {
        err = KCP_BAD;
        comm->fail(comm, err, ungrouped);
    }
    a->counted[comm->r] = comm->traffic;
    a->formula[comm->r] = kcp_exchange_formula(e);
    return err;
}

int merge_body(struct kcp_comm *comm, void *arg)
{
    struct whole *a = arg;
    const struct memory *m = a->m ? a->m : &host_memory;
    const struct kcp_context *x = &a->plan->ctx[comm->r];
    struct kcp_exchange e = { .form = a->form, .backward = a->backward, .HV = HV,
        .K = K, .V = V, .blocks = a->blocks, .reuse_M = a->reuse_M && a->backward,
        .plan = a->plan, .comm = comm, .ops = a->ops ? a->ops : m->mapops };
    if (a->bad_ops && comm->r == a->bad_rank) e.ops = a->bad_ops;
    if (a->reuse_M) e.kept = a->kept[comm->r];
    const size_t width = e.ops->elem, work = kcp_exchange_work(&e);
    const int64_t nm = (int64_t)x->NS * MAP, ns = (int64_t)x->NS * STATE;
    double *rows = malloc(sizeof *rows * (size_t)(nm + ns + 1));
    e.maps = m->alloc((size_t)nm * width + 8);
    e.states = m->alloc((size_t)ns * width + 8);
    e.work = m->alloc(work + 64);
    int err = rows && e.maps && e.states && e.work ? KCP_OK : KCP_NO_MEMORY;
    if (!err) fill_rows(a, x, rows, rows + nm);
    if (!err) err = m->fill(e.work, 0xff, work);
    if (!err) err = move(m, e.maps, rows, nm, width, 0);
    if (!err) err = move(m, e.states, rows + nm, ns, width, 0);
    if (!err) err = run_counted(a, &e);
    if (!err && m != &host_memory) err = comm->barrier(comm, NULL);
    if (m->sync() && !err) err = KCP_CUDA;
    if (!err) err = move(m, e.states, &a->got[x->seg0][0][0][0], ns, width, 1);
    if (e.maps) m->free(e.maps);
    if (e.states) m->free(e.states);
    if (e.work) m->free(e.work);
    free(rows);
    return err;
}

/* Returns the number of wrong values on rank r after merge_body. */
static int wrong_values(const struct whole *a, int r)
{
    const struct kcp_context *x = &a->plan->ctx[r];
    const double *got = &a->got[x->seg0][0][0][0];
    const double *want = &a->want[a->backward][x->seg0][0][0][0];
    int wrong = 0;
    for (int i = 0; i < x->NS * STATE; i++) wrong += !(got[i] == want[i]);
    return wrong;
}

int exchange_on(struct kcp_comm *comm, const struct memory *m, uint64_t seed,
                long long *wrong)
{
    struct whole *a = calloc(1, sizeof *a);
    struct stream s = stream_of(seed, "exchange_on");
    int err = a ? KCP_OK : KCP_NO_MEMORY;
    if (a) a->m = m;
    for (int plan = 0; plan < 2 && !err; plan++) {
        if (!merge_draw(a, &s, comm->R, plan ? 2 : 0)) err = KCP_NO_MEMORY;
        for (int k = 0; k < 2 * KCP_FORMS && !err; k++) {
            a->form = (enum kcp_form)(k / 2);
            a->backward = k % 2;
            err = merge_body(comm, a);
            *wrong += err ? 0 : wrong_values(a, comm->r);
        }
        if (a->plan) kcp_plan_free(a->plan);
        a->plan = NULL;
    }
    free(a);
    return err;
}

/* Returns 1 if a number is wrong, a rank fails or no plan cuts a sequence, else 0. If
 * `trials` is 0, runs until killed or until a rank fails. */
int exchange_trials(int trials, int R, int device)
{
    struct whole *a = calloc(1, sizeof *a);
    struct stream s = stream_of(7, "exchange_trials");
    char why[200] = "";
    long long wrong = 0, runs = 0, crossing = 0;
    if (a) a->m = device ? device_memory() : &host_memory;
    if (!a || !a->m) {
        fprintf(stderr, "kcp-check: no device\n");
        return 1;
    }
    printf("exchange trials, %d ranks\n", R);
    fflush(stdout);
    for (int i = 0; i < trials || !trials; i++) {
        if (!merge_draw(a, &s, R, i % 2 ? 1 + merge_pick(&s, 5) : 0)) return 1;
        a->blocks = merge_pick(&s, 8);
        crossing += a->plan->crossing;
        for (int k = 0; k < 2 * KCP_FORMS; k++, runs++) {
            struct verdict verdict = { .outcome = PASS };
            a->form = (enum kcp_form)(k / 2);
            a->backward = k % 2;
            snprintf(why, sizeof why, "exchange %lld, %s%s", runs,
                     kcp_form_names[k / 2],
                     k % 2 ? " backward" : "");
            ranks_doing(why);
            why[0] = 0;
            if (ranks_run(a->m, R, merge_body, a, why, sizeof why)) {
                fprintf(stderr, "kcp-check: exchange %lld: %s\n", runs, why);
                return 1;
            }
            for (int r = 0; r < R; r++)
                if (ranks_mine() < 0 || r == ranks_mine())
                    verdict.traffic.bytes += wrong_values(a, r);
            ranks_agree(&verdict);
            wrong += verdict.traffic.bytes;
        }
        kcp_plan_free(a->plan);
    }
    printf("%s: %lld exchanges; states cross a cut in %lld of %d plans; %lld numbers "
           "wrong%s\n",
           wrong || !crossing ? "FAILED" : "OK", runs, crossing, trials, wrong,
           crossing ? "" : "; no plan cuts a sequence, so run more trials");
    free(a);
    return wrong || !crossing;
}
