/* run.c -- times variants, and layers on ranks with each exchange algorithm (form).
 * Book: chapter 18.
 *
 * With --ranks, every time is the maximum over the ranks. A rank waits in the exchange
 * for slower ranks, so the exchange's time includes their delays. */
#include "bench.h"
#include "core/paths.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* Returns the forward variant that saves the data for backward variant v: the variant
 * with v's name or, if there is none, the newest that saves in the format of v. */
static const struct kcp_variant *writer_of(const struct kcp_variant *v)
{
    const int format = kcp_path_format(v->stage, v->name);
    const struct kcp_variant *all[64], *fw;
    if (kcp_variants("08_forward", v->name, &fw, 1)) return fw;
    for (int j = kcp_variants("08_forward", NULL, all, 64) - 1; j >= 0; j--)
        if (all[j]->where == KCP_DEVICE && all[j]->storage == v->storage
            && kcp_path_format("08_forward", all[j]->name) == format)
            return all[j];
    return NULL;
}

/* Returns the size of the data that forward saves, in the format of variant v. */
static size_t block_bytes(const struct kcp_forward *f, const struct kcp_variant *v)
{
    struct kcp_saved of;
    const int format = kcp_path_format(v->stage, v->name);
    const int bad = kcp_saved_layout_of(&of, (const struct kcp_call *)f, format,
                                        v->name, v->storage == KCP_BF16 ? 2 : 4, 4);
    return bad ? kcp_saved_bytes(f) : of.bytes;
}

/* Allocates what forward saves for backward: in stage 16 states, in stage 08 a block of
 * x->saved bytes. For stage 13, runs stage 08, which fills that block. */
static int save_forward(struct runner *x, const struct kcp_variant *v,
                        const struct kcp_stage *st, char *args)
{
    struct kcp_forward *f = (void *)args;
    if (st->facts & KCP_SAVES) {
        f->saved_bytes = x->saved = block_bytes(f, v);
        f->saved = device_add(&x->tensors, "saved", f->saved_bytes);
        return f->saved ? KCP_OK : KCP_NO_MEMORY;
    }
    if (st->facts & KCP_KEEPS) {
        const struct kcp_call *c = &x->call;
        const size_t state = sizeof(float) * c->HV * c->K * (size_t)c->V;
        ((struct kcp_family *)(void *)args)->h_kept =
            device_add(&x->tensors, "h_kept_16", kcp_saved_states(c) * state);
        return KCP_OK;
    }
    if (st->facts & (KCP_CONVOLVES | KCP_SPIKES)) return KCP_OK;
    if (!(st->facts & KCP_LOADS)) return KCP_NA;
    const struct kcp_variant *fw = writer_of(v);
    const int e = fw ? runner_once(x, stage_find("08_forward"), fw) : KCP_NA;
    struct kcp_backward *k = (void *)args;
    k->saved = device_find(&x->tensors, "saved");
    k->saved_bytes = e ? 0 : x->saved;
    return e;
}

/* Allocates the variant's workspace; the caller frees *work. */
static int prepare(const struct kcp_variant *v, char *args, void **work)
{
    struct kcp_call *c = (struct kcp_call *)args;
    *work = NULL;
    c->work_bytes = v->work ? v->work(args) : 0;
    if (c->work_bytes && cudaMalloc(work, c->work_bytes)) return KCP_NO_MEMORY;
    c->work = *work;
    return KCP_OK;
}

int runner_once(struct runner *x, const struct kcp_stage *st,
                const struct kcp_variant *v)
{
    void *work = NULL;
    char *args = args_of(x, st, &x->call, KCP_BF16);
    int e = args ? KCP_OK : KCP_NO_MEMORY;
    if (!e && st->ranks) e = save_forward(x, v, st, args);
    if (!e) e = prepare(v, args, &work);
    if (!e) e = v->run(args);
    if (!e && cudaDeviceSynchronize()) e = KCP_CUDA;
    cudaFree(work);
    free(args);
    return e;
}

/* ---- the time without messages: the least that overlapped messages could reach */

static int no_gather(struct kcp_comm *comm, const void *mine, void *all, size_t bytes,
                     struct CUstream_st *stream)
{
    return KCP_OK;
}

static int no_send(struct kcp_comm *comm, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    return KCP_OK;
}

static int no_recv(struct kcp_comm *comm, void *data, size_t bytes, int from,
                   struct CUstream_st *stream)
{
    return no_send(comm, data, bytes, from, stream);
}

static int no_group(struct kcp_comm *comm, int begin)
{
    return KCP_OK;
}

struct unsent_call {
    struct kcp_comm *comm;
    const struct kcp_variant *v;
    void *args;
};

/* Runs the call with communication stubbed out, so kernels read stale states. */
static int run_unsent(void *arg)
{
    const struct unsent_call *c = arg;
    const struct kcp_comm kept = *c->comm;
    c->comm->all_gather = no_gather;
    c->comm->send = no_send;
    c->comm->recv = no_recv;
    c->comm->group = no_group;
    const int e = c->v->run(c->args);
    c->comm->all_gather = kept.all_gather;
    c->comm->send = kept.send;
    c->comm->recv = kept.recv;
    c->comm->group = kept.group;
    return e;
}

/* Times the call without messages and the real call, alternately. */
static int time_unsent(struct runner *x, const struct kcp_variant *v, char *args,
                       struct times *t)
{
    struct unsent_call c = { x->call.comm, v, args };
    struct alternated both[2] = { { run_unsent, &c, 0 }, { v->run, args, 0 } };
    if (c.comm->R == 1) return KCP_OK;
    const int e = time_alternately(both, x->call.stream, x->b->warmup, x->b->iters);
    t->unsent = both[0].us;
    t->unsent_beside = both[1].us;
    return e;
}

int runner_variant(struct runner *x, const struct kcp_stage *st,
                   const struct kcp_variant *v)
{
    const struct bench *b = x->b;
    int status = KCP_NA;
    for (int pass = 0; pass <= has_pass(st); pass++) {
        struct kcp_call c = x->call;
        struct times t;
        void *work = NULL;
        c.pass = pass;
        x->saved = 0;
        if (st->facts & KCP_FOLDS) c.R = c.NS;
        if (st->facts & KCP_CONVOLVES) {
            c.D = c.HV * c.V;
            c.Wc = CONV_WIDTH;
            c.act = KCP_ACT_SILU;
        }
        char *args = args_of(x, st, &c, v->storage);
        int e = args ? KCP_OK : KCP_NO_MEMORY;
        if (!e && st->ranks && !(x->b->unsaved && st->facts & KCP_SAVES))
            e = save_forward(x, v, st, args);
        if (!e) e = prepare(v, args, &work);
        if (!e) e = time_calls(v->run, args, c.stream, b->warmup, b->iters, &t);
        if (!e && b->replay)
            e = time_replays(v->run, args, c.stream, b->warmup, b->iters, &t);
        if (!e && b->unsent) e = time_unsent(x, v, args, &t);
        if (!e) e = slowest(x, &t);
        struct judged j = { .outcome = NA };
        if (!e && b->judge) e = judge_timed(x, st, v, args, &j);
        if (!e) {
            x->work = ((const struct kcp_call *)(const void *)args)->work_bytes;
            print_row(x, st, v, &c, &t, &j);
            if (!x->world->r) x->b->wrong += j.outcome == FAIL;
        } else if (e != KCP_NA && x->world->r == 0)
            printf("%-18s%-9s%-22s status %d\n", st->name, "", v->name, e);
        cudaFree(work);
        free(args);
        if (e == KCP_CUDA || e == KCP_COMM || (e && e != KCP_NA && x->world->R > 1))
            return e;
        if (e != KCP_NA) status = KCP_OK;
    }
    return status;
}

/* For stage 13 without --variant, chooses a kernel that reads the format in which the
 * layer's forward kernel saves. */
const struct kcp_variant *runner_choice(const struct runner *x,
                                        const struct kcp_stage *st)
{
    const struct kcp_variant *v[64];
    struct kcp_device d;
    const int is_backward = (st->facts & KCP_LOADS) != 0;
    const int n = x->b->variant ? kcp_variants(st->name, x->b->variant, v, 64) : 0;
    for (int j = n - 1; j >= 0; j--)
        if (v[j]->where == KCP_DEVICE && v[j]->storage == KCP_BF16) return v[j];
    if (x->b->variant || kcp_device_here(&d)) return NULL;
    struct kcp_query q = { .stage = is_backward ? "08_forward" : st->name,
                         .storage = KCP_BF16, .call = &x->call, .device = &d,
                         .saved = !x->b->unsaved };
    const struct kcp_path *p = kcp_path_find(&q, NULL, NULL, 0);
    if (is_backward && p) {
        q.stage = st->name;
        q.format = p->format;
        p = kcp_path_find(&q, NULL, NULL, 0);
    }
    return p && kcp_variants(st->name, p->kernel, v, 64) ? v[0] : NULL;
}

/* Times one exchange algorithm. */
static int one_form(struct runner *x, const struct kcp_stage *st,
                    const struct kcp_variant *v, const char *form)
{
    if (x->b->forms && !has_word(x->b->forms, form, ",")) return KCP_OK;
    x->form = form;
    const int e = runner_variant(x, st, v);
    x->form = NULL;
    fflush(stdout);
    return e == KCP_NA ? KCP_OK : e;
}

int runner_layers(struct runner *x)
{
    const int facts = kcp_models[x->call.model].kind == KCP_FAMILY
        ? KCP_KEEPS : KCP_SAVES | KCP_LOADS;
    int e = KCP_OK;
    if (x->world->r == 0) print_header(x);
    for (int s = 0; s < kcp_nstages && !e; s++) {
        const struct kcp_stage *st = &kcp_stages[s];
        if (!(st->facts & facts)) continue;
        const struct kcp_variant *v =
            bench_selects(x->b, st) ? runner_choice(x, st) : NULL;
        for (int form = 0; form < KCP_FORMS && !e && v; form++) {
            if (!x->b->forms && x->call.R == 1 && form) continue;
            x->call.form = form;
            e = one_form(x, st, v, kcp_form_names[form]);
        }
    }
    return e;
}
