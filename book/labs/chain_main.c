/* chain_main.c -- runs a student's exchange algorithm on threads; checks every state.
 * Book: chapter 07, staff.md.  Used by: make grade LAB=07c, 07g, 07s.
 * kcp-lab-check chain|all_gather|scan ./lab.so ROW [TRIAL]. Maps are small integers, so
 * correct results are exact. The student's process has the maps but not the expected
 * states, and returns the states of its ranks. This process compares these states with
 * the fold of all segments in order. With "-" instead of ./lab.so, the student's code
 * is linked to this program and runs in this process, for AddressSanitizer.
 */
#include "apart.h"
#include "rendezvous.h"
#include "tests/07_merge/folded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum row { LINE, BACK, CUTS, OWNERS, BYTES, REFUSES, ROWS };
static const char *const row_name[] = { "line", "back", "cuts", "owners", "bytes",
                                        "refuses" };
enum { TRIALS = 24, GUARD = 64 };
typedef int exchange(const struct kcp_exchange *x);

/* The results of a trial, from the student's process. */
struct found {
    int status, spoiled;               /* spoiled: 0, or 1 + rank (see watched()) */
    char why[160];
    struct whole a;
};

struct trial { const char *object; struct whole a; enum row row; };

static enum kcp_form form;
static exchange *students;
static int spoiled;
static struct kcp_mapops unable;             /* apply and compose return errors */
static __thread struct kcp_comm real;        /* the communicator without the wrappers */

static int waiting_send(struct kcp_comm *c, const void *from, size_t bytes, int to,
                        struct CUstream_st *stream)
{
    const int status = real.send(c, from, bytes, to, stream);
    if (status) return status;
    meet_count(meet.sent, c->r, to);
    return grouped ? KCP_OK : meet_wait(c);
}

static int taking_recv(struct kcp_comm *c, void *to, size_t bytes, int from,
                       struct CUstream_st *stream)
{
    const int status = real.recv(c, to, bytes, from, stream);
    if (!status) meet_count(meet.taken, from, c->r);
    return status;
}

static int meeting_group(struct kcp_comm *c, int begin)
{
    const int status = real.group(c, begin);
    grouped = begin;
    return status || begin ? status : meet_wait(c);
}

static int refused_gather(struct kcp_comm *c, const void *mine, void *all,
                          size_t bytes, struct CUstream_st *stream)
{
    printf("  FAIL  form %s calls all_gather, but may only call send, recv and group\n",
           kcp_form_names[form]);
    return KCP_BAD;
}

/* Runs the student's exchange. Sets `spoiled` if the exchange changes the rank's maps,
 * or the GUARD bytes that merge_body allocates after x->work. */
static int watched(const struct kcp_exchange *x)
{
    const size_t bytes = x->plan->ctx[x->comm->r].NS * sizeof(double) * MAP;
    char *end = (char *)x->work + kcp_exchange_work(x), guard[GUARD];
    char *sent = malloc(bytes + 1);
    if (!sent) return KCP_NO_MEMORY;
    memcpy(sent, x->maps, bytes);
    memset(guard, 0x7e, sizeof guard);
    memcpy(end, guard, sizeof guard);
    const int status = students(x);
    if (memcmp(sent, x->maps, bytes) || memcmp(end, guard, sizeof guard))
        spoiled = x->comm->r + 1;
    free(sent);
    return status;
}

static int body(struct kcp_comm *comm, void *arg)
{
    real = *comm;
    grouped = 0;
    comm->send = waiting_send;
    comm->recv = taking_recv;
    comm->group = meeting_group;
    if (form != KCP_ALL_GATHER) comm->all_gather = refused_gather;
    const int status = merge_body(comm, arg);
    if (status) comm->fail(comm, status, "the exchange failed");
    comm->send = real.send;
    comm->recv = real.recv;
    comm->group = real.group;
    comm->all_gather = real.all_gather;
    meet_end(status);
    return status;
}

/* Returns 1 if some rank owns more than one range of tokens, else 0. */
static int dealt(const struct kcp_plan *p)
{
    for (int b = 0; b < p->B; b++)
        for (int c = 0; c < b; c++)
            if (p->owner[b] == p->owner[c]) return 1;
    return 0;
}

/* Makes trial `number` of a row: a random plan, random maps and the expected states.
 * Returns 0 if out of memory. */
static int draw(struct trial *t, enum row row, int number)
{
    struct stream s = stream_of(1000 * row + number, "chain");
    const int R = (row == REFUSES ? 4 : 2) + number % 5;
    const int one = row == LINE || row == BACK || row == REFUSES;
    const int64_t cu[] = { 0, 6 * R };
    memset(t, 0, sizeof *t);
    t->row = row;
    t->a.backward = row == BACK || (row >= CUTS && number % 2);
    t->a.ops = &ref_mapops;
    t->a.form = form;
    t->a.run = watched;
    unable = ref_mapops;
    unable.apply = merge_refuses.apply;
    unable.compose = merge_refuses.compose;
    t->a.bad_ops = row == REFUSES ? &unable : NULL;
    if (one) {
        const int folded = (R - 1) / 2;             /* this rank sends a state */
        t->a.bad_rank = t->a.backward ? R - 1 - folded : folded;
        if (kcp_plan_make(&t->a.plan, 1, cu, R, NULL, 0, 4, 0, NULL)) return 0;
        merge_fill(&t->a, &s);
        return 1;
    }
    for (;;) {
        if (!merge_draw(&t->a, &s, 1 + R, number % 3 * 2)) return 0;
        const struct kcp_plan *p = t->a.plan;
        const int fits = row == BYTES || dealt(p) == (row == OWNERS);
        if (p->crossing && fits) return 1;
        kcp_plan_free(t->a.plan);
    }
}

/* Runs a trial on a copy of its inputs; this copy lacks the expected states. */
static void run_trial(const struct trial *t, exchange *run, struct found *f)
{
    f->a = t->a;
    memset(f->a.want, 0xff, sizeof f->a.want);
    memset(f->a.got, 0xff, sizeof f->a.got);
    students = run;
    spoiled = 0;
    meet_begin();
    f->status = kcp_threads_run(t->a.plan->R, body, &f->a, f->why, sizeof f->why);
    f->spoiled = spoiled;
}

static void in_process(const void *arg, void *answer)
{
    const struct trial *t = arg;
    run_trial(t, (exchange *)lab_function(t->object), answer);
}

/* Returns 0 if all states are right, else 1 with the first wrong number in `why`. */
static int differs(const struct trial *t, const struct found *f, char *why, size_t n)
{
    const struct kcp_plan *p = t->a.plan;
    for (int j = 0; j < p->S; j++)
        for (int e = 0; e < STATE; e++) {
            const double got = (&f->a.got[j][0][0][0])[e];
            const double want = (&t->a.want[t->a.backward][j][0][0][0])[e];
            if (got == want) continue;
            const struct kcp_segment *s = &p->seg[j];
            snprintf(why, n, "rank %d of %d%s: tokens %lld .. %lld of sequence %d: the"
                     " state at their %s has %g at [%d][%d][%d] of [HV K V], expected"
                     " %g", s->rank, p->R, t->a.backward ? ", in backward" : "",
                     (long long)s->begin, (long long)s->end - 1, s->n,
                     t->a.backward ? "end" : "start", got, e / (K * V), e / V % K,
                     e % V, want);
            return 1;
        }
    return 0;
}

/* Compares each rank's traffic to the formula of the exchange algorithm. Returns 1 and
 * writes the first difference to `why`; returns 0 if there is none. */
static int traffic_differs(const struct trial *t, const struct found *f, char *why,
                           size_t n)
{
    for (int r = 0; r < t->a.plan->R; r++) {
        const struct kcp_traffic due = f->a.formula[r], c = f->a.counted[r];
        if (c.bytes == due.bytes && c.messages == due.messages) continue;
        snprintf(why, n, "rank %d of %d sent %lld bytes in %lld messages, expected"
                 " %lld bytes in %lld messages", r, t->a.plan->R, (long long)c.bytes,
                 (long long)c.messages, (long long)due.bytes, (long long)due.messages);
        return 1;
    }
    return 0;
}

static int wrong(const struct trial *t, const struct found *f, char *why, size_t n)
{
    if (t->row == REFUSES) {
        snprintf(why, n, "if apply and compose fail on rank %d: expected status %d and "
                 "a message that begins with 'rank %d', found status %d%s%s",
                 t->a.bad_rank, KCP_CUDA, t->a.bad_rank, f->status,
                 f->why[0] ? ", " : "", f->why);
        return f->status != KCP_CUDA || strncmp(f->why, "rank ", 5) ||
               atoi(f->why + 5) != t->a.bad_rank;
    }
    if (f->status) {
        snprintf(why, n, "status %d, %s", f->status, f->why);
        return 1;
    }
    if (f->spoiled) {
        snprintf(why, n, "rank %d wrote to its input maps, or past the end of 'work'",
                 f->spoiled - 1);
        return 1;
    }
    return differs(t, f, why, n) ||
           (t->row == BYTES && traffic_differs(t, f, why, n));
}

static int chain_bad(const char *found, const char *expected)
{
    fprintf(stderr, "kcp-lab-check: found argument '%s', expected %s\n", found,
            expected);
    return 2;
}

int chain_main(int argc, char **argv)
{
    const char *object = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "";
    int row = 0, failed = 0;
    for (int i = 0; i < KCP_FORMS; i++)
        if (!strcmp(argv[0], kcp_form_names[i])) form = i;
    const int only = argc > 3 ? atoi(argv[3]) : -1;
    if (strcmp(object, "-") && !strchr(object, '/'))
        return chain_bad(object, "./lab.so");
    while (row < ROWS && strcmp(name, row_name[row])) row++;
    if (row == ROWS)
        return chain_bad(name, "row line, back, cuts, owners, bytes or refuses");
    struct trial *t = malloc(sizeof *t);
    struct found *f = malloc(sizeof *f);
    for (int i = 0; i < TRIALS && !failed; i++) {
        char why[300];
        if (only >= 0 && i != only) continue;
        if (!t || !f || !draw(t, row, i)) {
            fprintf(stderr, "kcp-lab-check: out of memory\n");
            return 2;
        }
        t->object = object;
        memset(f, 0, sizeof *f);
        if (!strcmp(object, "-")) run_trial(t, kcp_exchange_run, f);
        else failed = apart(in_process, t, f, sizeof *f) != 0;
        if (!failed && wrong(t, f, why, sizeof why)) {
            printf("  FAIL  %s\n", why);
            failed = 1;
        }
        if (failed)
            printf("        to run only this trial: kcp-lab-check %s %s %s %d\n",
                   argv[0], object, name, i);
        kcp_plan_free(t->a.plan);
    }
    free(t);
    free(f);
    if (!failed) printf("1 passed, 0 failed, 0 skipped\n");
    return failed;
}
