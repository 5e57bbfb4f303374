/* plugin.c -- a shared object's variant: its process computes, the judge's judges.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh,
 * tests/cli/plugins.sh.  Next: isolation.c.
 *
 * Whoever writes into a process can write its verdict. So the process that loads the
 * object is this program started anew: it has no reference's numbers, is given the
 * arrays of every rank as bytes, and gives them back after the run. What should be
 * there, what is, and the verdict are the judge's, whose memory nobody else may read.
 */
#include "plugin.h"
#include "isolation.h"
#include "paths.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET_IS "KCP_PLUGIN_FD"

/* A trial begins with this; then a rank after the other its buffers, each as a head and
 * its image, fences included. */
struct ask {
    struct kcase k;
    enum kcp_pass pass;
    int R, plan_R, stale, again;              /* again: into the arrays of before */
};
struct head { int n, field[32]; size_t bytes[32]; };

/* ---- in the judge's process */
struct plugin_start plugin_start;
static int guarded;

int plugin_guarded(void) { return guarded; }

void plugin_guard(void)
{
    guarded = 1;
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void plugin_unguard(void) { prctl(PR_SET_DUMPABLE, 1); }

/* Even root's may not trace: what an object can do, any user's program can. */
static void drop_rights(void)
{
    enum { SYS_MODULE = 16, SYS_RAWIO = 17, SYS_PTRACE = 19, SYS_ADMIN = 21 };
    static const int rights[] = { SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN };
    for (int i = 0; i < 4; i++) prctl(PR_CAPBSET_DROP, rights[i]);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

_Noreturn void plugin_execs(int fd)
{
    char number[16], *const program[] = { "kcp-check", NULL };
    snprintf(number, sizeof number, "%d", fd);
    for (int other = 3; other < 256; other++)
        if (other != fd) close(other);
    drop_rights();
    /* What it prints is not the judge's word. */
    dup2(2, 1);
    if (!setenv(SOCKET_IS, number, 1)) execv("/proc/self/exe", program);
    perror("kcp-check: a process for the plug-in");
    _exit(127);
}

void plugin_ends_orphans(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (int round = 0; round < 1000; round++) {
        FILE *f = fopen(path, "r");
        int pid, some = 0;
        while (f && fscanf(f, "%d", &pid) == 1) {
            some = 1;
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        if (f) fclose(f);
        if (!some) return;
    }
}

static void head_of(const struct trial *t, int r, struct head *h)
{
    const struct rank_args *s = &t->rank[r];
    memset(h, 0, sizeof *h);
    h->n = s->n;
    for (int i = 0; i < s->n; i++) {
        while (trial_field(t->stage, h->field[i]) != s->buffer[i].field) h->field[i]++;
        h->bytes[i] = s->buffer[i].bytes;
    }
}

/* Room for what comes back, beside the images that went; and the lists of both. */
struct letters {
    struct ask ask;
    struct head head[CASE_RANKS];
    struct plugin_part to[1 + CASE_RANKS * 33], from[CASE_RANKS * 32];
    int nto, nfrom;
};

static int write_letters(struct letters *x, struct trial *t)
{
    x->ask = (struct ask){ *t->k, t->pass, t->R, t->rank[0].plan->R, t->stale,
                           t->runs > 0 };
    x->to[x->nto++] = (struct plugin_part){ &x->ask, sizeof x->ask };
    for (int r = 0; r < t->R; r++) {
        const struct rank_args *s = &t->rank[r];
        head_of(t, r, &x->head[r]);
        x->to[x->nto++] = (struct plugin_part){ &x->head[r], sizeof x->head[r] };
        for (int i = 0; i < s->n; i++) {
            const size_t all = s->buffer[i].bytes + 2 * FENCE;
            char *now = malloc(all + 1);
            x->to[x->nto++] = (struct plugin_part){ s->buffer[i].image, all };
            x->from[x->nfrom++] = (struct plugin_part){ now, all };
            if (!now) return KCP_NO_MEMORY;
        }
    }
    return KCP_OK;
}

/* What came back, to the buffers: their images are the variant's outputs then. */
static int read_letters(struct letters *x, struct trial *t, char *why, size_t n)
{
    int status = KCP_OK, at = 0;
    for (int r = 0; r < t->R; r++)
        for (int i = 0; i < t->rank[r].n && !status; i++, at++) {
            char *now = x->from[at].p;
            x->from[at].p = NULL;
            status = rank_args_keep(&t->rank[r], &t->rank[r].buffer[i], now, why, n);
        }
    return status;
}

int plugin_trial(struct trial *t, char *why, size_t n)
{
    struct letters *x = calloc(1, sizeof *x);
    struct plugin_ran ran = { .status = KCP_OK };
    if (!x) return KCP_NO_MEMORY;
    int status = write_letters(x, t);
    if (!status)
        status = plugin_exchange(x->to, x->nto, x->from, x->nfrom, &ran, why, n);
    if (!status && ran.status) {
        status = ran.status;
        snprintf(why, n, "%.150s", ran.why);
    }
    if (!status) status = read_letters(x, t, why, n);
    for (int r = 0; r < t->R && !status; r++) t->rank[r].traffic = ran.traffic[r];
    for (int i = 0; i < x->nfrom; i++) free(x->from[i].p);
    free(x);
    t->runs++;
    return status;
}

/* ---- in the process of the object */
int plugin_asked_for(void)
{
    const char *s = getenv(SOCKET_IS);
    struct stat is;
    const int fd = s ? atoi(s) : -1;
    if (fd < 3 || fstat(fd, &is) || !S_ISSOCK(is.st_mode)) return -1;
    unsetenv(SOCKET_IS);
    return fd;
}

/* Its arrays as the judge filled them, at places of their own or those of before. */
static int hear_buffer(struct rank_args *s, struct buffer *o,
                       const struct kcp_field *field, size_t bytes)
{
    const size_t all = bytes + 2 * FENCE;
    o->field = field;
    o->bytes = bytes;
    if (!o->image) o->image = alloc_or_exit(all + 1);
    if (!o->base) o->base = s->mem->alloc(all);
    if (plugin_hears(o->image, all)) _exit(0);
    if (!o->base || s->mem->copy(o->base, o->image, all)) return KCP_NO_MEMORY;
    void *p = (char *)o->base + FENCE;
    memcpy(s->args + field->at, &p, sizeof p);
    return KCP_OK;
}

static int hear_rank(struct trial *t, int r, int again)
{
    struct rank_args *s = &t->rank[r];
    struct head h;
    int status = KCP_OK;
    if (plugin_hears(&h, sizeof h)) _exit(0);
    if (!again) {
        s->args = calloc(1, t->stage->args + BEHIND_ARGS);
        if (!s->args) alloc_or_exit(SIZE_MAX);
        memcpy(s->args, &s->call, sizeof s->call);
    }
    s->n = h.n;
    for (int i = 0; i < h.n; i++) {
        const int err = hear_buffer(s, &s->buffer[i],
                                    trial_field(t->stage, h.field[i]), h.bytes[i]);
        if (err) status = err;
    }
    return status;
}

static int take_back(struct trial *t)
{
    int status = KCP_OK;
    for (int r = 0; r < t->R; r++)
        for (int i = 0; i < t->rank[r].n && !status; i++) {
            struct buffer *o = &t->rank[r].buffer[i];
            status = t->mem->copy(o->image, o->base, o->bytes + 2 * FENCE);
        }
    return status;
}

/* One run: 0, or 1 when nobody asks any more. The trial before is freed when the next
 * one has its arrays, so that no two have the same. */
static int serve_one(const struct kcp_stage *s, const struct kcp_variant *v,
                     struct trial *t, struct kcp_plan **p)
{
    static struct ask ask;
    struct plugin_ran ran = { .status = KCP_OK };
    struct trial old = *t;
    struct kcp_plan *old_plan = *p;
    if (plugin_hears(&ask, sizeof ask)) return 1;
    const int again = ask.again && t->rank;
    if (!again) {
        *t = (struct trial){ .stage = s, .variant = v, .R = ask.R, .mem =
                             v->where == KCP_HOST ? &host_memory : device_memory() };
        *p = case_plan(&ask.k, ask.plan_R);
        t->rank = calloc((size_t)ask.R, sizeof *t->rank);
        if (!t->rank || !*p || !t->mem) alloc_or_exit(SIZE_MAX);
        for (int r = 0; r < t->R; r++) trial_seat(t, r, &ask.k, *p, ask.pass);
    }
    t->stale = ask.stale;
    for (int r = 0; r < t->R; r++) {
        const int status = hear_rank(t, r, again);
        t->rank[r].why[0] = 0;
        if (status) ran.status = status;
    }
    if (!again && old.rank) {
        trial_free(&old);
        kcp_plan_free(old_plan);
    }
    if (!ran.status) ran.status = trial_launch(t, ran.why, sizeof ran.why);
    if (!ran.status) ran.status = take_back(t);
    for (int r = 0; r < t->R; r++) ran.traffic[r] = t->rank[r].traffic;
    plugin_answers(&ran);
    for (int r = 0; r < t->R && !ran.status; r++)
        for (int i = 0; i < t->rank[r].n; i++)
            if (plugin_says(t->rank[r].buffer[i].image,
                            t->rank[r].buffer[i].bytes + 2 * FENCE)) return 1;
    return 0;
}

int plugin_serve(int fd)
{
    struct trial t = { .R = 0 };
    struct kcp_plan *p = NULL;
    struct plugin_start *x = &plugin_start;
    char why[256];
    plugin_connects(fd);
    if (plugin_hears(x, sizeof *x)) return 2;
    fence_bytes = x->fence;
    bare_workspaces = x->bare;
    ranks_in_turn = x->in_turn;
    const int status = ranks_open(x->backend[0] ? x->backend : NULL, x->device,
                                  &x->ranks);
    if (status) return status;
    memory_settle();
    const struct kcp_variant *v = variant_load(x->object, why, sizeof why);
    const struct kcp_stage *s = v ? stage_find(v->stage) : NULL;
    if (!s) {
        fprintf(stderr, "kcp-check: %s\n", v ? "a stage that is none" : why);
        return 2;
    }
    while (!serve_one(s, v, &t, &p)) continue;
    fflush(stdout);
    ranks_close();
    _exit(0);
}
