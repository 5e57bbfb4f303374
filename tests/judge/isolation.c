/* isolation.c -- runs a variant in a separate process and judges the returned bytes.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * The judge's process and the variant's process share memory, which contains images
 * (copies) of a trial's arrays. The judge's request to run a trial describes the
 * trial's ranks. The variant's process copies the images into arrays, runs the variant,
 * copies the arrays back and replies with a status. With --here, and under a launcher,
 * the variant runs in the judge's process. Isolation is no protection against malicious
 * variants; use a container. */
#define _DEFAULT_SOURCE                        /* for MAP_ANONYMOUS and madvise */
#include "isolation.h"
#include "core/paths.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int isolation_off, isolation_start = 10;

static struct isolated *runner;                /* NULL: trials run in this process */

/* ---- memory shared by both processes. Images are allocated one after another. When
 * the last image is freed, all memory except 64 MiB is returned to the system. */
static const size_t SHARED = (size_t)64 << 30, KEPT = 64 << 20;
static struct { char *base; size_t used; int images; } shared;

static int open_shared(void)
{
    if (shared.base) return KCP_OK;
    void *p = mmap(NULL, SHARED, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) shared.base = p;
    return shared.base ? KCP_OK : KCP_NO_MEMORY;
}

void *image_alloc(size_t n)
{
    const size_t bytes = (n + 255) / 256 * 256;
    if (!isolated_runs_trials()) return malloc(n + 1);
    if (open_shared() || shared.used + bytes > SHARED) return NULL;
    char *p = shared.base + shared.used;
    shared.used += bytes;
    shared.images++;
    return p;
}

void image_free(void *p)
{
    char *at = p;
    const int is_shared = shared.base && at >= shared.base && at < shared.base + SHARED;
    if (!is_shared) free(p);
    if (!is_shared || --shared.images) return;
    if (shared.used > KEPT)
        madvise(shared.base + KEPT, (shared.used - KEPT + 4095) / 4096 * 4096,
                MADV_REMOVE);
    shared.used = 0;
}

/* Allows a host variant's process at most 4 GiB more memory than at its start. */
static void limit_memory(const struct kcp_variant *v)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    const int found = f && fscanf(f, "%ld", &pages) == 1;
    if (f) fclose(f);
    if (!found || v->where != KCP_HOST) return;
    const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) +
                        ((rlim_t)4 << 30);
    setrlimit(RLIMIT_AS, &(struct rlimit){ most, most });
}

/* ---- the judge's process sends requests, the variant's process replies */
struct request {
    struct kcase k;
    enum kcp_pass pass;
    int R, plan_R, again;                      /* again: reuse the last arrays */
    enum leftovers stale;
    const struct rank_args *rank;              /* R elements, in shared memory */
};
struct reply {
    int status;
    char why[160];
    struct kcp_traffic traffic[CASE_RANKS];
};

/* Runs a trial. Frees the previous trial's arrays only after this trial's run, so that
 * no new array has the address of an old array. */
static void run_request(const struct request *q, struct trial *t, struct kcp_plan **p,
                        struct reply *out)
{
    struct trial old = *t;
    struct kcp_plan *old_plan = *p;
    const size_t bytes = (size_t)q->R * sizeof *t->rank;
    const int again = q->again && t->rank;
    t->k = &q->k;
    t->pass = q->pass;
    t->stale = q->stale;
    if (!again) {
        t->R = q->R;
        t->mem = t->variant->where == KCP_HOST ? &host_memory : device_memory();
        t->rank = alloc_or_exit(bytes);
        memcpy(t->rank, q->rank, bytes);
        *p = case_plan(&q->k, q->plan_R);
        if (!*p || !t->mem) _exit(2);
    }
    for (int r = 0; r < t->R; r++) {
        struct rank_args *s = &t->rank[r];
        for (int i = 0; i < s->n; i++) {  /* rank_args_check swaps image and back */
            s->buffer[i].image = q->rank[r].buffer[i].image;
            s->buffer[i].back = q->rank[r].buffer[i].back;
        }
        s->plan = *p;
        s->mem = t->mem;
    }
    out->status = trial_here(t, out->why, sizeof out->why);
    for (int r = 0; r < t->R; r++) out->traffic[r] = t->rank[r].traffic;
    for (int r = 0; r < old.R && !again; r++) rank_args_release(&old.rank[r]);
    if (again) return;
    free(old.rank);
    kcp_plan_free(old_plan);
}

/* Handles requests until the socket is closed. The variant's stdout is redirected to
 * stderr, so that stdout contains only the judge's lines. */
static _Noreturn void serve(const struct isolated *x, int fd)
{
    struct trial t = { .stage = x->stage, .variant = x->variant };
    struct kcp_plan *p = NULL;
    static struct request q;
    char why[160];
    runner = NULL;
    dup2(2, 1);
    if (x->object) t.variant = variant_load(x->object, why, sizeof why);
    if (!t.variant) _exit(2);
    limit_memory(t.variant);
    while (!process_receive(fd, &q, sizeof q)) {
        struct reply out = { .why = "" };
        run_request(&q, &t, &p, &out);
        if (process_send(fd, &out, sizeof out)) break;
    }
    ranks_close();
    _exit(0);              /* omits LeakSanitizer's check, which needs --here */
}

int isolated_runs_trials(void) { return runner != NULL; }

double isolated_seconds_left(const struct isolated *x)
{
    return isolation_limit ? isolation_limit * 5 / 3.0 - x->lost : INFINITY;
}

static int may_start(struct isolated *x, char *why, size_t n)
{
    if (isolated_seconds_left(x) <= 0) {
        snprintf(why, n, "not run: earlier runs lost %.0f s in time-outs", x->lost);
        return KCP_COMM;
    }
    if (x->pid) return KCP_OK;
    if (open_shared()) return KCP_NO_MEMORY;
    const pid_t pid = process_start(&x->fd);
    if (!pid) serve(x, x->fd);
    if (pid < 0) return KCP_NO_MEMORY;
    x->pid = pid;
    return KCP_OK;
}

static void close_socket(struct isolated *x)
{
    if (x->pid) close(x->fd);
    x->pid = 0;
}

/* Returns a trial's time limit in seconds: --limit, plus 1 s per 50 MB of arrays, plus
 * isolation_start for a new process. After time-outs the limit is shorter. */
static double seconds_for(const struct isolated *x, const struct trial *t, int fresh)
{
    double bytes = 0;
    for (int r = 0; r < t->R; r++)
        for (int i = 0; i < t->rank[r].n; i++)
            bytes += (double)t->rank[r].buffer[i].bytes;
    return fmin(isolation_limit, isolated_seconds_left(x)) +
           (fresh ? isolation_start : 0) + bytes / 50e6;
}

int isolated_trial(struct trial *t, char *why, size_t n)
{
    struct isolated *x = runner;
    struct reply out;
    const int fresh = !x->pid;
    const size_t bytes = (size_t)t->R * sizeof *t->rank;
    const int status = may_start(x, why, n);
    if (status) return status;
    struct rank_args *ranks = image_alloc(bytes);
    if (!ranks) return KCP_NO_MEMORY;
    memcpy(ranks, t->rank, bytes);
    const struct request q = { .k = *t->k, .pass = t->pass, .R = t->R,
        .plan_R = t->rank[0].plan->R, .again = t->runs > 0, .stale = t->stale,
        .rank = ranks };
    const double begin = seconds_now();
    process_send(x->fd, &q, sizeof q);        /* if sending fails, no answer comes */
    const int lost = process_answer(x->pid, x->fd, seconds_for(x, t, fresh), &out,
                                    sizeof out, why, n);
    image_free(ranks);
    if (lost) {
        close_socket(x);
        x->lost += seconds_now() - begin;
        return KCP_COMM;
    }
    for (int r = 0; r < t->R; r++) t->rank[r].traffic = out.traffic[r];
    if (out.why[0]) snprintf(why, n, "%.*s", (int)sizeof out.why - 1, out.why);
    return out.status;
}

int isolated_case(struct isolated *x, int index, enum kcp_storage judged,
                  struct verdict *out)
{
    if (!x->pid) x->first_case = index;
    if (!isolation_off && ranks_mine() < 0) runner = x;
    const int status = judge_case(x->stage, x->variant, &x->list[index], judged, out);
    runner = NULL;
    return status;
}

int isolated_bits(struct isolated *x, int is_canonical, struct kcp_report *own)
{
    char why[160];
    if (!isolation_off && ranks_mine() < 0) runner = x;
    const int status = bits_of_variant(own, x->variant, is_canonical);
    runner = NULL;
    if (isolated_end(x, why, sizeof why))
        report_fail(own, "%s: %s", x->variant->name, why);
    return status;
}

int isolated_end(struct isolated *x, char *why, size_t n)
{
    if (!x->pid) return 0;
    shutdown(x->fd, SHUT_WR);
    const int bad = process_end(x->pid, x->fd, why, n);
    close_socket(x);
    return bad;
}

struct checked { struct kcp_report report; int status; };

static void run_check(const void *arg, void *to)
{
    const struct kcp_check *c = arg;
    struct checked *x = to;
    x->status = c->run(&x->report);
}

int isolated_check(const struct kcp_check *c, struct kcp_report *own)
{
    struct checked x = { .report = *own };
    char why[160];
    if (isolation_off || ranks_mine() >= 0) return c->run(own);
    const int lost = process_ask(run_check, c, &x, sizeof x, 20.0 * isolation_limit,
                                 why, sizeof why);
    *own = x.report;
    if (lost) report_fail(own, "%s %s: %s", c->stage, c->name, why);
    return lost ? KCP_OK : x.status;
}

struct found_device { struct kcp_device is; int status; };

static void find_device(const void *arg, void *to)
{
    struct found_device *x = to;
    (void)arg;
    x->status = kcp_device_here(&x->is);
}

int isolated_device(struct kcp_device *d)
{
    struct found_device x = { .status = KCP_NA };
    char why[160];
    if (isolation_off || ranks_mine() >= 0) return kcp_device_here(d) != KCP_OK;
    const int lost = process_ask(find_device, NULL, &x, sizeof x,
                                 isolation_limit + 10.0, why, sizeof why);
    *d = x.is;
    return lost || x.status;
}

struct record {
    char stage[32], name[64], why[160], shapes[160];
    int storage, where, found;
};

static void load_record(const void *path, void *to)
{
    struct record *x = to;
    const struct kcp_variant *v = variant_load(path, x->why, sizeof x->why);
    if (!v) return;
    snprintf(x->stage, sizeof x->stage, "%s", v->stage);
    snprintf(x->name, sizeof x->name, "%s", v->name);
    snprintf(x->why, sizeof x->why, "%s", v->why);
    snprintf(x->shapes, sizeof x->shapes, "%s", v->shapes);
    x->storage = v->storage;
    x->where = v->where;
    x->found = 1;
}

int isolated_probe(const char *path, struct kcp_variant *record, char *why, size_t n)
{
    static struct record x;                    /* keeps the record's strings */
    x = (struct record){ .found = 0 };
    if (process_ask(load_record, path, &x, sizeof x, isolation_limit, why, n)) return 1;
    const int known = x.storage >= KCP_F64 && x.storage <= KCP_BF16 &&
                      (x.where == KCP_HOST || x.where == KCP_DEVICE);
    if (!x.found) snprintf(why, n, "%s", x.why);
    else if (!known)
        snprintf(why, n, "its record is invalid: 'storage' is %d, 'where' is %d",
                 x.storage, x.where);
    if (!x.found || !known) return 1;
    *record = (struct kcp_variant){ x.stage, x.name, x.why,
        (enum kcp_storage)x.storage, (enum kcp_where)x.where, x.shapes, NULL, NULL };
    return 0;
}
