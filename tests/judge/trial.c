/* trial.c -- fills each rank's arguments, runs the variant, and fetches the results.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "isolation.h"
#include "paths.h"
#include "trial.h"
#include <stdlib.h>
#include <string.h>

static void begin_rank(struct trial *t, int r, const struct kcase *k,
                       const struct kcp_plan *p, enum kcp_pass pass)
{
    struct rank_args *s = &t->rank[r];
    s->call = call_of(t->stage, k, p, r, pass);
    s->plan = p;
    s->mem = t->mem;
    s->ranks = t->stage->ranks;
    s->id = k->id;
    s->storage = t->variant->storage;
    s->poison = !is_mutant(t->variant);
}

int trial_fill(struct trial *t, const struct kcase *k, const struct kcp_plan *p,
               enum kcp_pass pass, const struct tensor_set *in,
               const struct tensor_set *want)
{
    int status = KCP_OK;
    t->k = k;
    t->pass = pass;
    t->runs = 0;
    t->R = t->stage->ranks ? k->call.R : 1;
    t->rank = calloc(t->R, sizeof *t->rank);
    if (!t->rank) return KCP_NO_MEMORY;
    for (int r = 0; r < t->R && !status; r++) {
        if (t->stage->ranks && ranks_mine() >= 0 && r != ranks_mine()) continue;
        begin_rank(t, r, k, p, pass);
        status = rank_args_fill(&t->rank[r], t->stage, in, want);
    }
    return status;
}

void trial_free(struct trial *t)
{
    for (int r = 0; t->rank && r < t->R; r++) rank_args_free(&t->rank[r]);
    free(t->rank);
    kcp_plan_free(t->plan);
    t->rank = NULL;
    t->plan = NULL;
}

/* Frees p. If the variant wrote outside of p, sets s->why to an error message. */
static void free_fenced(struct rank_args *s, void *p, size_t bytes, const char *what)
{
    const char *broken = fenced_free(s->mem, p, bytes);
    if (broken && !s->why[0]) snprintf(s->why, sizeof s->why, "%s %s", broken, what);
}

/* Returns the size of the block that forward saves for backward: in the format that
 * backward v reads or in the reference's format, whichever is larger. */
static size_t block_bytes(const struct kcp_forward *a, const struct kcp_variant *v,
                          size_t width)
{
    const int format = kcp_path_format(v->stage, v->name);
    const size_t all = kcp_saved_bytes(a);
    struct kcp_saved of;
    const int none = !format || kcp_saved_layout_of(&of, (const struct kcp_call *)a,
                                                    format, v->name, width,
                                                    width == 8 ? 8 : 4);
    return !none && of.bytes > all ? of.bytes : all;
}

static const struct kcp_field forward_o = { "o", "T HV V", KCP_OUT, KCP_ALWAYS,
    KCP_ACTV, sizeof(struct kcp_backward) };
static const struct kcp_field forward_ht = { "ht", "N HV K V", KCP_OUT, KCP_ALWAYS,
    KCP_ACC, sizeof(struct kcp_backward) + sizeof(void *) };

const struct kcp_field *trial_field(const struct kcp_stage *s, int i)
{
    if (i < s->nfields) return &s->fields[i];
    if (!(s->facts & KCP_LOADS)) return NULL;
    if (i == s->nfields) return &forward_o;
    return i == s->nfields + 1 ? &forward_ht : NULL;
}

const struct kcp_stage *stage_of_field(const struct kcp_stage *s,
                                       const struct kcp_field *f)
{
    return f == &forward_o || f == &forward_ht ? stage_find("08_forward") : s;
}

const char *forward_prefix(const struct kcp_field *f)
{
    return stage_of_field(NULL, f) ? "forward's " : "";
}

int (*trial_forward)(struct kcp_forward *) = ref_forward;

/* Runs the forward that writes the block format of backward v (see paths.c) or, for a
 * host variant without such a forward, the reference. The reference also runs before a
 * mutant and its twin (the same code without the mistake), because their forwards save
 * nothing. */
static int run_forward_of(const struct kcp_variant *v, const struct rank_args *s,
                          struct kcp_forward *a)
{
    const int is_reference = is_mutant(v) || !strcmp(v->name, "twin");
    const struct kcp_variant *first =
        is_reference ? NULL : paths_forward_before(v, a, s->id);
    if (!first && v->where == KCP_DEVICE) return KCP_NA;
    if (first && first->work) a->work_bytes = first->work(a);
    if (a->work_bytes) a->work = fenced_unwritten_soon(s->mem, a->work_bytes);
    if (s->mem->sync()) return KCP_CUDA;
    return first ? first->run(a) : trial_forward(a);
}

/* Runs a forward before backward v. The forward's o and ht are outputs of the trial. */
static int run_forward(struct rank_args *s, const struct kcp_variant *v)
{
    const struct kcp_stage *back = stage_find("13_backward");
    const struct kcp_stage *fw = stage_find("08_forward");
    struct kcp_forward a;
    if (!fw) return KCP_NA;
    memset(&a, 0, sizeof a);
    memcpy(&a, s->args, sizeof(struct kcp_call));
    for (int i = 0; i < fw->nfields; i++)
        for (int j = 0; j < back->nfields; j++)
            if (!strcmp(fw->fields[i].name, back->fields[j].name))
                memcpy((char *)&a + fw->fields[i].at, s->args + back->fields[j].at, 8);
    const size_t width = kcp_bytes_of(&s->call, KCP_ACTV, s->storage);
    s->saved_bytes = block_bytes(&a, v, width);
    s->saved = a.saved = fenced_unwritten_soon(s->mem, s->saved_bytes);
    a.saved_bytes = s->saved_bytes;
    memcpy(&a.o, s->args + forward_o.at, sizeof a.o);
    memcpy(&a.ht, s->args + forward_ht.at, sizeof a.ht);
    const int status = a.saved ? run_forward_of(v, s, &a) : KCP_NO_MEMORY;
    const int unfinished = s->mem->sync();
    free_fenced(s, a.work, a.work_bytes, "forward's workspace");
    return unfinished ? KCP_CUDA : status;
}

/* Gives the variant a workspace, which *work keeps for the caller, and runs it. */
static int run_variant(const struct trial *t, struct rank_args *s, void **work)
{
    struct kcp_call *c = (struct kcp_call *)s->args;
    if (t->variant->work) c->work_bytes = t->variant->work(s->args);
    if (c->work_bytes) {
        c->work = *work = fenced_unwritten_soon(s->mem, c->work_bytes);
        if (!*work) return KCP_NO_MEMORY;
    }
    const int filled =
        *work && t->stale ? leftovers_fill(s, *work, c->work_bytes, t->stale) : KCP_OK;
    if (filled) return filled;
    return s->mem->sync() ? KCP_CUDA : t->variant->run(s->args);
}

static int rank_body(struct kcp_comm *comm, void *arg)
{
    struct trial *t = arg;
    struct rank_args *s = &t->rank[comm ? comm->r : 0];
    struct kcp_call *c = (struct kcp_call *)s->args;
    void *work = NULL;
    int status = KCP_OK;
    /* Cases with odd ids run on a stream that does not wait for other streams. */
    struct CUstream_st *stream = s->id % 2 && s->mem->stream ? s->mem->stream() : NULL;
    if (stream && s->mem->sync()) return KCP_CUDA;
    c->stream = stream;
    if (comm) groups_count(comm);
    c->work = NULL;                    /* the previous workspace was freed */
    c->work_bytes = 0;
    c->comm = comm;
    /* If ops is NULL, a layer must choose the map operations (host or GPU) by where its
     * arrays are. */
    c->ops = s->ranks && s->id % 3 == 2 ? NULL : s->mem->mapops;
    c->plan = s->plan;
    if (t->stage->facts & KCP_LOADS) {
        status = run_forward(s, t->variant);
        s->lacks_forward = status == KCP_NA;
        ((struct kcp_backward *)s->args)->saved = s->saved;
        ((struct kcp_backward *)s->args)->saved_bytes = s->saved_bytes;
    }
    if (comm) comm->traffic = (struct kcp_traffic){ 0 };
    if (!status) status = run_variant(t, s, &work);
    const char *ungrouped = comm ? groups_end(comm) : NULL;
    if (ungrouped) snprintf(s->why, sizeof s->why, "%s", ungrouped);
    /* The stream also ends if NCCL aborts, so only the barrier detects a failure. */
    if (comm && !status && ranks_apart()) {
        s->traffic = comm->traffic;
        status = comm->barrier(comm, NULL);
    }
    if (s->mem->sync() && !status) status = KCP_CUDA;
    if (stream) s->mem->end_stream(stream);
    if (comm && !ranks_apart()) s->traffic = comm->traffic;
    if (work && !status && !bare_workspaces) leftovers_keep(s, work, c->work_bytes);
    free_fenced(s, work, c->work_bytes, "the workspace");
    free_fenced(s, s->saved, s->saved_bytes, "the saved block");
    s->saved = NULL;
    s->status = status;
    /* For n/a returns success, so that the rank does not count as lost. */
    return status == KCP_NA ? KCP_OK : status;
}

int trial_launch(struct trial *t, char *why, size_t n)
{
    int status = t->stage->ranks
        ? ranks_run(t->mem, t->R, rank_body, t, why, n) : rank_body(NULL, t);
    for (int r = 0; r < t->R && !status; r++) status = t->rank[r].status;
    for (int r = 0; r < t->R && status == KCP_NA; r++)
        if (t->rank[r].lacks_forward) snprintf(why, n, "no forward supports this case");
    for (int r = 0; r < t->R && !status; r++)
        if (t->rank[r].why[0]) {
            snprintf(why, n, "rank %d %s", r, t->rank[r].why);
            status = KCP_BAD;
        }
    return status;
}

/* Returns 1 if this process has the arrays of rank r. Under a launcher a process has
 * the arrays of one rank. */
static int is_mine(int r) { return ranks_mine() < 0 || ranks_mine() == r; }

int trial_here(struct trial *t, char *why, size_t n)
{
    int status = KCP_OK;
    for (int r = 0; r < t->R && !status; r++) {
        if (t->stage->ranks && !is_mine(r)) continue;
        if (t->stage->ranks && ranks_apart() && ranks_mine() < 0) t->mem->gpu(r);
        t->rank[r].why[0] = 0;
        status = rank_args_send(&t->rank[r]);
    }
    if (!status) status = trial_launch(t, why, n);
    for (int r = 0; r < t->R && !status; r++)
        status = rank_args_fetch(&t->rank[r], why, n);
    return status;
}

int trial_run(struct trial *t, char *why, size_t n)
{
    int status = isolated_runs_trials() ? isolated_trial(t, why, n)
                                        : trial_here(t, why, n);
    for (int r = 0; r < t->R && !status; r++)
        status = rank_args_check(&t->rank[r], why, n);
    t->runs++;
    return status;
}

int trial_with(struct trial *t, const struct kcase *k, enum kcp_pass pass,
               const struct tensor_set *in, const struct tensor_set *want, char *why,
               size_t n)
{
    if (!t->plan) t->plan = case_plan(k, t->stage->ranks ? k->call.R : 1);
    if (!t->plan) return KCP_NO_MEMORY;
    const int status = trial_fill(t, k, t->plan, pass, in, want);
    return status ? status : trial_run(t, why, n);
}

int trial_case(struct trial *t, const struct kcase *k, enum kcp_pass pass,
               enum kcp_storage judged, char *why, size_t n)
{
    t->plan = case_plan(k, t->stage->ranks ? k->call.R : 1);
    t->expected = t->plan ? expected_of(t->stage, k, pass, judged, t->plan) : NULL;
    if (t->expected)
        return trial_with(t, k, pass, &t->expected->in, &t->expected->want, why, n);
    snprintf(why, n, "the reference failed");
    return KCP_BAD;
}

const struct memory *gpu_of_threads(void)
{
    return ranks_apart() || ranks_mine() >= 0 ? NULL : trial_memory(KCP_DEVICE);
}

const struct memory *memory_forced;

const struct memory *trial_memory(enum kcp_where where)
{
    if (memory_forced) return memory_forced;
    if (where == KCP_HOST) return &host_memory;
    if (!isolated_runs_trials()) return device_memory();
    return paths_device() ? &host_memory : NULL;
}
