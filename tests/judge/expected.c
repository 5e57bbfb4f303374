/* expected.c -- computes expected outputs and the effect of rounding inputs once more.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "trial.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The variants of a stage share most cases, so the expected outputs of a stage are
 * cached until the next stage. If the cache is full, new outputs replace `newest`. */
enum { MOST_CACHED = 4096 };
static struct { struct expected *x[MOST_CACHED]; int n; size_t bytes; } cache;
static struct expected newest, *current = &newest;

struct kcp_call call_of(const struct kcp_stage *s, const struct kcase *k,
                               const struct kcp_plan *p, int r, enum kcp_pass pass)
{
    struct kcp_call c = k->call;
    c.pass = pass;
    c.part = k->call.part ? k->call.part : KCP_LOCAL | KCP_REVERSE;
    c.r = r;
    c.plan = p;
    c.NS = p->ctx[r].NS;
    c.NC = p->ctx[r].NC;
    if (s->ranks) c.T = p->ctx[r].end - p->ctx[r].begin;
    else c.R = s->facts & KCP_FOLDS ? c.NS : 1;
    return c;
}

static double rms(const struct tensor *t)
{
    double s = 0;
    for (int64_t i = 0; t && i < t->n; i++)
        s += ((double *)t->p)[i] * ((double *)t->p)[i];
    return t && t->n ? sqrt(s / t->n) : 0;
}

/* G is the running sum of g in a chunk of C tokens, so a token's dg is the sum of dG
 * from this token on, and one wrong dG changes dg of all earlier tokens. So a sum of dg
 * has sqrt(2 C / 3) times the error of independent terms. Returns this factor. */
static double correlation(const struct kcp_call *c)
{
    return sqrt(fmax(1, 2.0 / 3 * fmin(c->C, (double)c->T)));
}

/* Returns the RMS over heads that dA_log would have if the signs of its terms were
 * random. With x = g_raw, dx = dg_raw and y = x + dt_bias, each number x adds dx * y to
 * dA_log or, for a softplus gate, dx * softplus(y) / sigmoid(y). */
static double rms_dA(const struct tensor_set *b, const struct kcp_call *c)
{
    const struct tensor *x = tensor_find(b, "g_raw"), *dt = tensor_find(b, "dt_bias");
    const struct tensor *dx = tensor_find(b, "dg_raw");
    const int64_t W = (int64_t)c->HV * c->KG;
    double sum = 0;
    for (int64_t i = 0; x && dx && i < dx->n; i++) {
        const double y = ((double *)x->p)[i] + (dt ? ((double *)dt->p)[i % W] : 0);
        double by = y;
        if (c->gate == KCP_GATE_SOFTPLUS && y < -30) by = 1;
        else if (c->gate == KCP_GATE_SOFTPLUS && y <= 30)
            by = log1p(exp(y)) * (1 + exp(-y));
        sum += pow(((double *)dx->p)[i] * by, 2);
    }
    return sqrt(sum / c->HV);
}

struct natural_sizes natural_sizes(const struct tensor_set *b,
                                   const struct kcp_call *c)
{
    struct natural_sizes x = { .rms_v = rms(tensor_find(b, "v")) };
    x.rms_sum = correlation(c) * sqrt((double)c->T) * rms(tensor_find(b, "dg_raw"));
    x.rms_dA = fmax(x.rms_sum * sqrt(c->KG), correlation(c) * rms_dA(b, c));
    return x;
}

/* Removes optional states from the set, so that variants get NULL. */
static void drop_states(struct tensor_set *b, const struct kcp_stage *s)
{
    static const char *const states[] = { "h_in", "h_start", "dh_out", "dh_end" };
    for (int i = 0; i < s->nfields; i++)
        for (int j = 0; j < 4; j++)
            if (s->fields[i].when == KCP_MAYBE && !strcmp(s->fields[i].name, states[j]))
                tensor_drop(b, states[j]);
}

static int is_field(const struct kcp_stage *s, const struct tensor *t, int outputs)
{
    const struct kcp_field *f = trial_field(s, 0);
    for (int i = 0; f; f = trial_field(s, ++i))
        if (!strcmp(f->name, t->name) && !(outputs && field_in(f))) return 1;
    return 0;
}

/* Removes the tensors that are no fields of the stage or, with `outputs`, no outputs.
 * So the cache stays small, and the next case reuses their memory. */
static void drop_others(struct tensor_set *b, const struct kcp_stage *s, int outputs)
{
    for (int i = b->n - 1; i >= 0; i--)
        if (!is_field(s, &b->t[i], outputs)) tensor_drop(b, b->t[i].name);
}

/* Moves the stage's outputs from x->in to x->want, without a copy. Then removes what
 * was added to the first n tensors of x->in. */
static void take_outputs(struct expected *x, const struct kcp_stage *s, int n)
{
    for (int i = 0; i < x->in.n; i++) {
        struct tensor *t = &x->in.t[i], *to = &x->want.t[x->want.n];
        if (!is_field(s, t, 1)) continue;
        *to = *t;
        if (i < n) to->p = alloc_or_exit(tensor_bytes(t) + 8);    /* also an input */
        if (i < n) memcpy(to->p, t->p, tensor_bytes(t));
        else t->p = NULL;
        x->want.n++;
    }
    while (x->in.n > n) free(x->in.t[--x->in.n].p);
    if (source_of(s) != OF_LAYER) drop_others(&x->in, s, 0);
}

/* Applies tensor_disturb to each input. For bf16, tensor_disturb changes beta (fp32)
 * like a bf16 input, because kernels round A * diag(beta) of chapter 03 to bf16. */
static void round_once_more(struct tensor_set *in, const struct kcase *k,
                            enum kcp_storage judged)
{
    uint64_t seed = k->seed;
    for (int j = 0; j < in->n; j++) tensor_disturb(&in->t[j], k, judged, &seed);
}

/* Adds expected outputs to the inputs in `want`. The outputs come from the token
 * recurrence for a layer, from a run of the whole batch on one rank for stages 14 to
 * 16, and from the stage's reference for other stages. */
static int outputs_of(struct tensor_set *want, const struct kcp_stage *s,
                      const struct kcase *k, enum kcp_pass pass,
                      const struct kcp_plan *p)
{
    struct kcp_call c;
    switch (source_of(s)) {
    case OF_CONV:
    case OF_SPIKE:
    case OF_FAMILY: return pipeline_one_rank(want, s, k, pass);
    case OF_LAYER: return pipeline_oracle(want, k, pass == KCP_BACKWARD ||
                                       s->facts & KCP_LOADS);
    default:
        c = call_of(s, k, p, 0, pass);
        return reference_run(want, s, &c);
    }
}

/* Adds the inputs that earlier chapters (for stage 01, the token recurrence) compute,
 * rounded to type `judged`. */
static int inputs_before(struct tensor_set *in, const struct kcp_stage *s,
                         const struct kcase *k, enum kcp_pass pass,
                         enum kcp_storage judged)
{
    int status = KCP_OK;
    if (source_of(s) == OF_STEP) status = pipeline_oracle(in, k, pass == KCP_BACKWARD);
    else if (source_of(s) == OF_CHAPTERS) status = pipeline_chunks(in, k, s, pass);
    else return KCP_OK;
    tensor_set_round(in, &k->call, judged);
    if (k->no_states && source_of(s) == OF_CHAPTERS) drop_states(in, s);
    return status;
}

/* Returns the share of a state that remains at the last cut, or NaN if no sequence
 * crosses a cut. */
static double alive_of(const struct tensor_set *all, const struct kcp_stage *s,
                       const struct kcase *k, const struct kcp_plan *p)
{
    switch (source_of(s)) {
    case OF_SPIKE:
    case OF_FAMILY: return alive_state(all, s, k, p);
    case OF_STEP:
    case OF_LAYER: return alive_state(all, stage_find("01_step"), k, p);
    default: return NAN;
    }
}

/* Rounds the inputs once more, computes the outputs, and fills `to` with these outputs
 * minus the expected outputs. */
static int move_once(struct tensor_set *to, const struct kcase *k,
                     const struct kcp_plan *p)
{
    tensor_set_copy(to, &current->in);
    round_once_more(to, k, current->judged);
    const int status = source_of(current->stage) == OF_LAYER
        ? pipeline_disturbed(to, k, current->judged)
        : outputs_of(to, current->stage, &current->k, current->pass, p);
    if (!status && current->stage->facts & KCP_SUMS_GATES)
        pipeline_disturb(to, k, current->stage, current->pass, current->judged);
    drop_others(to, current->stage, 1);
    for (int j = 0; j < to->n && !status; j++) {
        const struct tensor *t = &to->t[j];
        const struct tensor *from = tensor_find(&current->want, t->name);
        if (!from || t->store == KCP_I32 || t->store == KCP_I64 || t->n != from->n)
            continue;
        for (int64_t i = 0; i < t->n; i++)
            ((double *)t->p)[i] -= ((const double *)from->p)[i];
    }
    return status;
}

/* Draws one more random rounding of the inputs, and adds the squared changes of the
 * outputs to current->sums. One draw is not enough for an output that depends on few
 * numbers: in eight draws the change of one gradient was 2e-3 to 1.4e-2. */
static int add_draw(const struct kcp_plan *p)
{
    struct tensor_set one = { 0 };
    struct kcase k = current->k;
    k.seed += 7919u * (unsigned)current->draws;
    const int status = move_once(&one, &k, p);
    if (!current->draws) tensor_set_copy(&current->sums, &one);
    for (int j = 0; j < current->sums.n && !status; j++) {
        const struct tensor *t = &current->sums.t[j];
        const struct tensor *more = tensor_find(&one, t->name);
        if (!more || t->store == KCP_I32 || t->store == KCP_I64 || more->n != t->n)
            continue;
        double *sum = t->p;
        const double *x = more->p;
        for (int64_t e = 0; e < t->n; e++)
            sum[e] = (current->draws ? sum[e] : 0) + x[e] * x[e];
    }
    tensor_set_free(&one);
    current->draws++;
    return status;
}

/* Sets current->moved to sqrt(current->sums / MOVED_DRAWS) after `draws` draws. */
static int find_moved(int draws)
{
    const int R = current->stage->ranks ? current->k.call.R : 1;
    struct kcp_plan *p = case_plan(&current->k, R);
    int status = p ? KCP_OK : KCP_NO_MEMORY;
    while (!status && current->draws < draws) status = add_draw(p);
    kcp_plan_free(p);
    tensor_set_free(&current->moved);
    tensor_set_copy(&current->moved, &current->sums);
    for (int j = 0; j < current->moved.n && !status; j++) {
        const struct tensor *t = &current->moved.t[j];
        if (t->store == KCP_I32 || t->store == KCP_I64) continue;
        for (int64_t e = 0; e < t->n; e++)
            ((double *)t->p)[e] = sqrt(((double *)t->p)[e] / MOVED_DRAWS);
    }
    if (status) current->draws = -1;
    return status;
}

const double *expected_moved(const char *field, int draws)
{
    const struct tensor *want = tensor_find(&current->want, field);
    if (!current->stage || !want || current->draws < 0) return NULL;
    if (current->draws < draws && find_moved(draws)) return NULL;
    const struct tensor *moved = tensor_find(&current->moved, field);
    return moved && moved->n == want->n ? moved->p : NULL;
}

static void expected_free(struct expected *x)
{
    tensor_set_free(&x->in);
    tensor_set_free(&x->want);
    tensor_set_free(&x->sums);
    tensor_set_free(&x->moved);
}

static int is_expected_of(const struct expected *x, const struct kcp_stage *s,
                          const struct kcase *k, enum kcp_pass pass,
                          enum kcp_storage judged)
{
    return x->stage == s && x->judged == judged && x->pass == pass &&
           !memcmp(&x->k, k, sizeof *k);
}

/* Returns NULL if the reference fails. */
static struct expected *expected_make(const struct kcp_stage *s, const struct kcase *k,
                                      enum kcp_pass pass, enum kcp_storage judged,
                                      const struct kcp_plan *p)
{
    struct expected *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    inputs_draw(&x->in, k, s, judged);
    int status = inputs_before(&x->in, s, k, pass, judged);
    const int inputs = x->in.n;
    if (!status) status = outputs_of(&x->in, s, k, pass, p);
    x->alive = status ? NAN : alive_of(&x->in, s, k, p);
    x->sizes = natural_sizes(&x->in, &k->call);
    take_outputs(x, s, inputs);
    x->k = *k;
    x->judged = judged;
    x->pass = pass;
    x->stage = s;
    if (!status) return x;
    expected_free(x);
    free(x);
    return NULL;
}

static size_t bytes_of(const struct expected *x)
{
    const struct tensor_set *const sets[] = { &x->in, &x->want, &x->sums, &x->moved };
    size_t n = 0;
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < sets[j]->n; i++) n += 8 * (size_t)sets[j]->t[i].n;
    return n;
}

/* The cache may use 1/32 of the machine's memory, but at least 64 MiB and at most 4
 * GiB, because several judges may run concurrently. */
static size_t most_bytes(void)
{
    const double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return (size_t)fmin(fmax(all / 32, 64 << 20), (double)((size_t)4 << 30));
}

static int cache_is_full(void)
{
    return cache.n == MOST_CACHED || cache.bytes >= most_bytes();
}

static struct expected *cache_find(const struct kcp_stage *s, const struct kcase *k,
                                   enum kcp_pass pass, enum kcp_storage judged)
{
    for (int i = 0; i < cache.n; i++)
        if (is_expected_of(cache.x[i], s, k, pass, judged)) return cache.x[i];
    return is_expected_of(&newest, s, k, pass, judged) ? &newest : NULL;
}

/* Takes x, which the caller has allocated. */
static struct expected *cache_add(struct expected *x)
{
    if (!cache_is_full()) {
        cache.bytes += bytes_of(x);
        cache.x[cache.n++] = x;
        return x;
    }
    expected_free(&newest);
    newest = *x;
    free(x);
    return &newest;
}

/* Removes the outputs of stages other than s. If the cache is half full, also removes
 * the outputs of storage types other than `judged`. */
static void cache_begin(const struct kcp_stage *s, enum kcp_storage judged)
{
    const int is_tight = cache.bytes > most_bytes() / 2;
    int n = 0;
    cache.bytes = 0;
    current = &newest;
    for (int i = 0; i < cache.n; i++) {
        struct expected *x = cache.x[i];
        if (x->stage != s || (is_tight && x->judged != judged)) {
            expected_free(x);
            free(x);
            continue;
        }
        cache.bytes += bytes_of(x);
        cache.x[n++] = x;
    }
    cache.n = n;
}

/* ---- expected outputs of a list of cases, computed on at most eight cores */
static struct {
    const struct kcp_stage *s;
    const struct kcase *list;
    enum kcp_storage judged;
    int next, n;                         /* next: index of a pass; n: number of cases */
    pthread_mutex_t lock;
} todo = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int take_todo(const struct kcase **k, enum kcp_pass *pass)
{
    const int passes = 1 + has_backward(todo.s);
    int found = 0;
    pthread_mutex_lock(&todo.lock);
    while (!found && todo.next < todo.n * passes && !cache_is_full()) {
        *k = &todo.list[todo.next / passes];
        *pass = todo.next++ % passes ? KCP_BACKWARD : KCP_FORWARD;
        found = !cache_find(todo.s, *k, *pass, todo.judged);
    }
    pthread_mutex_unlock(&todo.lock);
    return found;
}

static void *make_todo(void *unused)
{
    const struct kcase *k;
    enum kcp_pass pass;
    while (take_todo(&k, &pass)) {
        struct kcp_plan *p = case_plan(k, todo.s->ranks ? k->call.R : 1);
        struct expected *x = p ? expected_make(todo.s, k, pass, todo.judged, p) : NULL;
        kcp_plan_free(p);
        pthread_mutex_lock(&todo.lock);
        if (x) cache_add(x);
        pthread_mutex_unlock(&todo.lock);
    }
    return unused;
}

void expected_ahead(const struct kcp_stage *s, const struct kcase *list, int n,
                    enum kcp_storage judged)
{
    enum { MOST_CORES = 8 };
    pthread_t thread[MOST_CORES];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    cache_begin(s, judged);
    todo.s = s;
    todo.list = list;
    todo.judged = judged;
    todo.next = 0;
    todo.n = n;
    for (int i = 1; i < cores && i < MOST_CORES && n > 1; i++)
        started += !pthread_create(&thread[started], NULL, make_todo, NULL);
    make_todo(NULL);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
}

const struct expected *expected_of(const struct kcp_stage *s, const struct kcase *k,
                                   enum kcp_pass pass, enum kcp_storage judged,
                                   const struct kcp_plan *p)
{
    struct expected *found = cache_find(s, k, pass, judged);
    struct expected *made = found ? NULL : expected_make(s, k, pass, judged, p);
    if (made) found = cache_add(made);
    if (found) current = found;
    return found;
}

int has_backward(const struct kcp_stage *s)
{
    int backward = (s->facts & KCP_FOLDS) != 0;
    for (int i = 0; i < s->nfields; i++) backward |= s->fields[i].io == KCP_BOUT;
    return backward;
}
