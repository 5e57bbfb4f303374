/* layer.c -- runs a layer from an application: chooses kernels, sizes buffers, checks
 * calls.
 * Book: chapter 08.
 *
 * For each stage, a layer names a kernel of the table of paths. A call searches the
 * table, starting at the first row of the named kernel, for a row that supports the
 * call, and runs that row's kernel. A call is checked before it queues work. */
#include "checked.h"
#include "moves.h"
#include "paths.h"
#include "ref.h"

#include <stdio.h>
#include <string.h>

#define REF(number, name)                                                             \
    static int run_##name(void *a) { return ref_##name(a); }                          \
    static const struct kcp_variant layer_##name = {                                  \
        number "_" #name, "ref", "reference", KCP_F64, KCP_HOST, "any", run_##name };
REF("08", forward) REF("13", backward) REF("14", conv) REF("15", scan) REF("16", family)

void kcp_layer_ref(struct kcp_layer *layer)
{
    if (!layer) return;
    *layer = (struct kcp_layer){ KCP_F64, KCP_HOST, &ref_mapops, &layer_forward,
                                 &layer_backward, &layer_conv, &layer_family,
                                 &layer_scan };
}

/* ---- choice of kernels */

/* Returns 1 if the kernel of path p can run on device d of this machine. If d is NULL
 * (no GPU), returns 1 if the kernel is linked. */
static int runs(const struct kcp_path *p, const struct kcp_device *d)
{
    char here[120];
    if (!d) return kcp_path_kernel(p) != NULL;
    kcp_path_here(p, d, here, sizeof here);
    return !strcmp(here, "here");
}

/* Returns the kernel of the stage's first row that can run on this machine and has the
 * kernel name `name` (NULL: any) and the format `format` (0: any). */
static const struct kcp_variant *first(const char *stage, enum kcp_storage storage,
                                       const char *name, int format,
                                       const struct kcp_device *d)
{
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        if (p->within || strcmp(p->stage, stage) || p->storage != storage) continue;
        if (name && strcmp(p->kernel, kcp_path_alias(stage, name))) continue;
        if ((!format || p->format == format) && runs(p, d)) return kcp_path_kernel(p);
    }
    return NULL;
}

/* Writes the forward kernels that kcp_layer_gpu accepts to `out`: " name name". */
static void list_forwards(enum kcp_storage storage, char *out, size_t n)
{
    const char *last = "";
    out[0] = 0;
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        if (!kcp_stage_is(p->stage, KCP_SAVES) || p->storage != storage) continue;
        if (p->within) continue;
        if (!strcmp(p->kernel, last) || !kcp_path_kernel(p)) continue;
        const size_t used = strlen(out);
        snprintf(out + used, n - used, " %s", p->kernel);
        last = p->kernel;
    }
}

//> layer-pair
int kcp_layer_gpu(struct kcp_layer *layer, enum kcp_storage storage, const char *name,
                  char *why, size_t n)
{
    struct kcp_device device;
    char known[160];
    if (!layer) return kcp_refuse(KCP_BAD, "layer: it is missing");
    const struct kcp_device *d = kcp_device_here(&device) ? NULL : &device;
    const struct kcp_variant *fw = first("08_forward", storage, name, 0,
                                         name ? NULL : d);
    const int format = fw ? kcp_path_format(fw->stage, fw->name) : 0;
    const struct kcp_variant *bw = first("13_backward", storage, name, format, NULL);
    if (!bw || !name) bw = first("13_backward", storage, NULL, format, name ? NULL : d);
    *layer = (struct kcp_layer){ storage, KCP_DEVICE,
                                 kcp_gpu ? kcp_gpu->mapops : NULL, fw, bw,
                                 first("14_conv", storage, NULL, 0, NULL),
                                 first("16_family", storage, NULL, 0, NULL),
                                 first("15_scan", storage, NULL, 0, NULL) };
    if (fw && bw && layer->conv) return KCP_OK;
    list_forwards(storage, known, sizeof known);
    if (why && known[0])
        snprintf(why, n, "found %s, expected one of%s", name ? name : "none", known);
    else if (why)
        snprintf(why, n, "this program has no GPU layer for this storage type");
    return known[0] ? KCP_BAD : KCP_NA;
}
//< layer-pair

void kcp_layer_call(const struct kcp_layer *layer, struct kcp_call *call,
                    const struct kcp_plan *plan, struct kcp_comm *comm)
{
    if (!layer || !call || !plan) return;
    const int r = comm ? comm->r : 0;
    const struct kcp_context *x = &plan->ctx[r];
    call->T = x->end - x->begin;
    call->NS = x->NS;
    call->NC = x->NC;
    call->N = plan->N;
    call->C = plan->C;
    call->R = plan->R;
    call->r = r;
    call->plan = plan;
    call->comm = comm;
    call->ops = layer->ops;
}

/* ---- bytes */

/* Returns a query of the table of paths for variant v and this call. If args is NULL,
 * the query uses only sizes and options. */
static struct kcp_query query_of(const struct kcp_variant *v,
                                 const struct kcp_call *call, const void *args,
                                 struct kcp_device *d)
{
    const int there = v->where == KCP_DEVICE && !kcp_device_here(d);
    if (v->where == KCP_DEVICE && !there) *d = kcp_device_assumed();
    const struct kcp_query q = {
        .stage = v->stage, .storage = v->storage, .call = call, .args = args,
        .device = v->where == KCP_DEVICE ? d : NULL, .kernel = v->name, .saved = 1 };
    return q;
}

/* Returns the format of the saved block that forward writes for a call with these sizes
 * and options, or 0 if no row of paths.def supports the call. If `args` (of stage 13,
 * which reads the block) is given, the row must also support its arrays' alignment. */
static int format_left(const struct kcp_layer *layer, const struct kcp_call *call,
                       const void *args)
{
    const struct kcp_variant *v = layer->forward;
    struct kcp_device d;
    if (!kcp_path_knows(v->stage, v->name)) return 0;
    struct kcp_query q = query_of(v, call, args, &d);
    q.args_of = "13_backward";
    const struct kcp_path *p = kcp_path_find(&q, NULL, NULL, 0);
    return p ? p->format : 0;
}

size_t kcp_layer_saved(const struct kcp_layer *layer, const struct kcp_call *call)
{
    static const size_t bytes[] = { [KCP_F64] = 8, [KCP_F32] = 4, [KCP_BF16] = 2 };
    struct kcp_saved s;
    if (!layer || !layer->forward || kcp_check_sizes("08_forward", call)) return 0;
    struct kcp_call c = *call;
    c.ops = c.ops ? c.ops : layer->ops;
    const int format = format_left(layer, &c, NULL);
    const int status = kcp_saved_layout_of(
        &s, &c, format ? format : KCP_FORMAT_FACTORS, layer->forward->name,
        bytes[layer->storage], layer->storage == KCP_F64 ? 8 : 4);
    return status ? 0 : s.bytes;
}

/* ---- the kernel of a call */

/* Sends the notice `why` (path p runs instead of a better path) once per path. */
static void notice_once(const struct kcp_path *p, const char *why)
{
    static unsigned char printed[256];
    const int at = (int)(p - kcp_paths);
    if (!why[0] || at >= 256 || __atomic_exchange_n(&printed[at], 1, __ATOMIC_RELAXED))
        return;
    kcp_notice("%s", why);
}

/* Searches the rows after *at (if *at is NULL, from v's first row on) for a path that
 * supports this call. Returns the path's kernel, or NULL and the reason in `why`. If v
 * is a host kernel or has no rows, returns v. */
static const struct kcp_variant *choose(const struct kcp_layer *layer,
                                        const struct kcp_variant *v, const void *args,
                                        const struct kcp_path **at, char *why, size_t n)
{
    const struct kcp_call *call = args;
    const struct kcp_path *after = *at;
    struct kcp_device d;
    why[0] = 0;
    if (!kcp_path_knows(v->stage, v->name) || v->where == KCP_HOST)
        return after ? NULL : v;
    struct kcp_query q = query_of(v, call, args, &d);
    if (kcp_stage_is(v->stage, KCP_LOADS)) q.format = format_left(layer, call, args);
    else if (kcp_stage_is(v->stage, KCP_SAVES))
        q.saved = ((const struct kcp_forward *)args)->saved != NULL;
    if (after) q.format = after->format;
    *at = kcp_path_find(&q, after, why, n);
    if (*at) notice_once(*at, why);
    return kcp_path_kernel(*at);
}

/* Returns the name of the launch that the call runs on path p. */
static const char *launch_of(const struct kcp_variant *v, const void *args,
                             const struct kcp_path *p)
{
    struct kcp_device d;
    struct kcp_query q = query_of(v, args, args, &d);
    if (kcp_stage_is(v->stage, KCP_SAVES))
        q.saved = ((const struct kcp_forward *)args)->saved != NULL;
    return kcp_path_launch(p, &q);
}

const char *kcp_layer_path(const struct kcp_layer *layer, const void *args,
                           int backward)
{
    const struct kcp_variant *v = NULL;
    const struct kcp_path *p = NULL;
    char why[200];
    if (layer) v = backward ? layer->backward : layer->forward;
    if (!v || kcp_check_sizes(v->stage, args)) return NULL;
    choose(layer, v, args, &p, why, sizeof why);
    return p ? launch_of(v, args, p) : NULL;
}

static size_t work(const struct kcp_layer *layer, const struct kcp_variant *v,
                   const void *args)
{
    const struct kcp_path *p = NULL;
    char why[200];
    if (!v || kcp_check_sizes(v->stage, args)) return 0;
    const struct kcp_variant *k = choose(layer, v, args, &p, why, sizeof why);
    return k && k->work ? k->work(args) : 0;
}

/* Defines kcp_layer_NAME_work. */
#define WORK(name)                                                                     \
    size_t kcp_layer_##name##_work(const struct kcp_layer *layer,                      \
                                   const struct kcp_##name *a)                         \
    {                                                                                  \
        return layer ? work(layer, layer->name, a) : 0;                                \
    }
WORK(forward) WORK(backward) WORK(conv) WORK(family) WORK(scan)

/* Saved initial states are fp32, or double in the references. */
size_t kcp_layer_family_kept(const struct kcp_layer *layer, const struct kcp_call *call)
{
    if (!layer || !layer->family || kcp_check_sizes("16_family", call)) return 0;
    const size_t state = (size_t)call->HV * (size_t)call->K * (size_t)call->V;
    return (size_t)kcp_saved_states(call) * state *
           (layer->storage == KCP_F64 ? sizeof(double) : sizeof(float));
}

/* ---- calls */

/* A kernel may reject a call for a reason that its row's condition cannot express,
 * so this function runs the rows' kernels in order until one does not return KCP_NA.
 * All these rows have the same format of the saved block. *ran is the last kernel. */
static int first_that_takes(const struct kcp_layer *layer, const struct kcp_variant *v,
                            void *args, const struct kcp_variant **ran, char *none,
                            size_t n)
{
    const struct kcp_path *p = NULL;
    int status = KCP_NA;
    while (status == KCP_NA) {
        const struct kcp_variant *k = *ran = choose(layer, v, args, &p, none, n);
        if (!k) break;
        status = k->run(args);
        if (!p) break;
    }
    return status;
}

/* Returns a message for a failure for which kcp_why() is empty. */
static const char *reason(int status, const struct kcp_variant *v, const char *none)
{
    if (status == KCP_NA) return none[0] ? none : v->shapes;
    if (status == KCP_BAD) return "work is too short";
    if (status == KCP_NO_MEMORY) return "out of memory";
    return "a CUDA call failed";
}

/* Returns KCP_BAD if n valid convolutions cannot run together. */
static int check_together(void *const *args, int n)
{
    for (int i = 1; i < n; i++) {
        const struct kcp_call *a = args[i], *b = args[0];
        if (a->plan != b->plan || a->comm != b->comm || a->pass != b->pass ||
            a->stream != b->stream)
            return kcp_refuse(KCP_BAD, "14_conv: call %d of %d has another 'plan', "
                              "'comm', 'pass' or 'stream' than call 0", i, n);
        for (int j = 0; j < i; j++) {
            const struct kcp_call *other = args[j];
            const uintptr_t x = (uintptr_t)a->work, y = (uintptr_t)other->work;
            if (x < y + other->work_bytes && y < x + a->work_bytes)
                return kcp_refuse(KCP_BAD, "14_conv: the workspaces 'work' of call %d "
                                  "and call %d overlap: give each call a separate "
                                  "one", i, j);
        }
    }
    return KCP_OK;
}

/* The references read every array as double. */
static int check_double(const struct kcp_layer *layer, const struct kcp_variant *v,
                        const struct kcp_call *c)
{
    const struct { const char *name; enum kcp_type type; } row[] = {
        { "q_type", c->q_type }, { "g_type", c->g_type }, { "beta_type", c->beta_type }
    };
    for (int i = 0; i < 3 && layer->storage == KCP_F64; i++)
        if (row[i].type > KCP_TYPE_F64)
            return kcp_refuse(KCP_BAD, "%s: %s: found %s, expected q or f64, because "
                              "the references read double", v->stage, row[i].name,
                              kcp_type_name(row[i].type));
    return KCP_OK;
}

/* Runs n calls with one launch if possible, otherwise one call after another. */
static int run_calls(const struct kcp_layer *layer, const struct kcp_variant *v,
                     void *const *args, int n, const struct kcp_variant **ran,
                     char *none, size_t size)
{
    int status = KCP_NA;
    if (n > 1 && v->run_many) status = v->run_many(args, n);
    if (status != KCP_NA) return status;
    status = KCP_OK;
    for (int i = 0; i < n && !status; i++)
        status = first_that_takes(layer, v, args[i], ran, none, size);
    return status;
}

/* What the checks and the choice of a kernel read in a call of one rank on a GPU. Of an
 * address they read whether it is NULL and whether it is aligned. */
enum { SIZES = offsetof(struct kcp_call, plan), KNOWN = 4 };
struct known {
    const struct kcp_variant *kernel;    /* which ran this call; NULL in a key */
    size_t need;                         /* bytes of the saved block; 0 in a key */
    const struct kcp_variant *v, *forward;
    uint64_t plan, device, null, odd;
    unsigned char sizes[SIZES];
};

/* Fills the key of a call. Returns 0 if calls like this one are not cached. */
static int key_of(struct known *key, const struct kcp_layer *layer,
                  const struct kcp_variant *v, const void *args, const void *saved)
{
    const struct kcp_call *c = args;
    const struct kcp_plan *plan = c && v->where == KCP_DEVICE ? c->plan : NULL;
    const struct kcp_stage *s = plan ? kcp_stage_find(v->stage) : NULL;
    struct kcp_device d;
    if (!s || !s->ranks || s->nfields > 62 || plan->R != 1 || !plan->digest ||
        kcp_device_here(&d))
        return 0;
    memset(key, 0, sizeof *key);
    key->v = v;
    key->forward = layer->forward;
    key->plan = plan->digest;
    key->device = (uint64_t)d.arch << 48 | (uint64_t)d.bandwidth << 24;
    key->device |= (uint64_t)d.sms;
    memcpy(key->sizes, c, SIZES);
    for (int i = 0; i <= s->nfields; i++) {
        const void *p = saved;
        if (i < s->nfields) p = *(void *const *)((const char *)args + s->fields[i].at);
        key->null |= (uint64_t)!p << i;
        key->odd |= (uint64_t)((uintptr_t)p % 16 != 0) << i;
    }
    return 1;
}

/* Each thread caches its last calls that ran. A call with the same key passes the same
 * checks and runs the same kernel. */
static _Thread_local struct known known[KNOWN];
static _Thread_local int next_known;

static const struct known *find_known(const struct known *key)
{
    const size_t at = offsetof(struct known, v);
    for (int i = 0; i < KNOWN; i++)
        if (!memcmp((char *)&known[i] + at, (const char *)key + at, sizeof *key - at))
            return &known[i];
    return NULL;
}

static int run_known(const struct known *k, void *args)
{
    kcp_refuse(KCP_OK, "%s", "");            /* clears kcp_why() */
    kcp_checked_enter();
    const int status = k->kernel->run(args);
    kcp_checked_leave();
    return status;
}

/* Adds a message if kcp_why() is empty, and marks the communicator. Returns status. */
static int failed(int status, const struct kcp_variant *v, const struct kcp_call *c,
                  const char *none)
{
    char other[160] = "";
    int rank = 0;
    const int by_other = status == KCP_COMM && c->comm &&
                         c->comm->lost(c->comm, &rank, other, sizeof other);
    if (by_other) kcp_refuse(status, "%s: rank %d: %s", v->stage, rank, other);
    if (!kcp_why()[0]) kcp_refuse(status, "%s: %s", v->stage, reason(status, v, none));
    if (status != KCP_COMM && c->comm) c->comm->fail(c->comm, status, kcp_why());
    return status;
}

/* Checks n calls, compares the calls of all ranks, then runs each call with the first
 * row that supports the call. `saved` is the saved block of a single call, or NULL. */
static int run_layer(const struct kcp_layer *layer, const struct kcp_variant *v,
                     void *const *args, int n, const void *saved, size_t saved_bytes)
{
    const struct kcp_call *c = args[0];
    const struct kcp_variant *ran = NULL;
    char none[200] = "";
    struct known key;
    if (!v) return kcp_refuse(KCP_BAD, "the layer has no kernel for this call: make "
                              "the layer with kcp_layer_ref or kcp_layer_gpu");
    const int cached = n == 1 && key_of(&key, layer, v, c, saved);
    const struct known *k = cached ? find_known(&key) : NULL;
    int status = k && k->need <= saved_bytes ? run_known(k, args[0]) : KCP_NA;
    if (status != KCP_NA) return status ? failed(status, v, c, none) : KCP_OK;
    for (int i = 0; i < n; i++) {
        const int refused = kcp_begin(v->stage, v->where, args[i], NULL);
        if (refused) return refused;
    }
    status = check_together(args, n);
    if (!status) status = check_double(layer, v, c);
    const size_t need = saved ? kcp_layer_saved(layer, c) : 0;
    if (need > saved_bytes)
        status = kcp_refuse(KCP_BAD, "%s: saved_bytes: the saved block is too short, "
                            "found %zu bytes, expected %zu bytes", v->stage,
                            saved_bytes, need);
    kcp_checked_enter();
    if (!status) status = run_calls(layer, v, args, n, &ran, none, sizeof none);
    kcp_checked_leave();
    if (!status && cached && !k) {
        key.kernel = ran;
        key.need = need;
        known[next_known] = key;
        next_known = (next_known + 1) % KNOWN;
    }
    return status ? failed(status, v, c, none) : KCP_OK;
}

/* Defines kcp_layer_NAME. */
#define RUN(name, saved, saved_bytes)                                                  \
    int kcp_layer_##name(const struct kcp_layer *layer, struct kcp_##name *a)          \
    {                                                                                  \
        if (!layer || !a)                                                              \
            return kcp_refuse(KCP_BAD, #name ": no layer, or no arguments");           \
        return run_layer(layer, layer->name, (void *[]){ a }, 1, saved, saved_bytes);  \
    }
RUN(forward, a->saved, a->saved_bytes)
RUN(backward, a->saved, a->saved_bytes)
RUN(conv, NULL, 0)
RUN(family, NULL, 0)
RUN(scan, NULL, 0)

int kcp_layer_convs(const struct kcp_layer *layer, struct kcp_conv *const *a, int n)
{
    void *args[KCP_CONVS];
    if (!layer || !a || n < 1 || n > KCP_CONVS)
        return kcp_refuse(KCP_BAD, "convs: no layer, no arguments, or n is not 1 to %d",
                          KCP_CONVS);
    for (int i = 0; i < n; i++) args[i] = a[i];
    return run_layer(layer, layer->conv, args, n, NULL, 0);
}
