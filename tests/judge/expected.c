/* expected.c -- what should come of a case: its inputs, and the references on them.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self.c.
 * Next: verdict.c.
 */
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Inputs and expected outputs of a case; kept for the next variant of the same case. */
static struct expected kept;

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
    else c.R = !strncmp(s->name, "07", 2) ? c.NS : 1;
    return c;
}

static double rms(const struct tensor *t)
{
    double s = 0;
    for (int64_t i = 0; t && i < t->n; i++)
        s += ((double *)t->p)[i] * ((double *)t->p)[i];
    return t && t->n ? sqrt(s / t->n) : 0;
}

/* A token's dg is a sum over the rest of its chunk, so what is off in one dG is off in
 * all dg before it: a sum of C such terms is sqrt(2 C / 3) times a random one. */
static double in_step(const struct kcp_call *c)
{
    return sqrt(fmax(1, 2.0 / 3 * fmin(c->C, (double)c->T)));
}

/* What tokens add to dA_log is dx (x + dt), of softplus dx softplus / sigmoid of that:
 * the RMS of a sum of them, as many as a head has, if their signs were random. */
static double rms_dA(const struct tensor_set *in, const struct tensor_set *want,
                     const struct kcp_call *c)
{
    const struct tensor *x = tensor_find(in, "g_raw"), *dt = tensor_find(in, "dt_bias");
    const struct tensor *dx = tensor_find(want, "dg_raw");
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

struct sizes_by_chance sizes_by_chance(const struct tensor_set *b,
                                       const struct kcp_call *c)
{
    struct sizes_by_chance x = { .rms_v = rms(tensor_find(b, "v")) };
    x.rms_sum = in_step(c) * sqrt((double)c->T) * rms(tensor_find(b, "dg_raw"));
    x.rms_dA = fmax(x.rms_sum * sqrt(c->KG), in_step(c) * rms_dA(b, b, c));
    return x;
}

/* States that may be NULL are. */
static void leave_out(struct tensor_set *b, const struct kcp_stage *s)
{
    static const char *const states[] = { "h_in", "h_start", "dh_out", "dh_end" };
    for (int i = 0; i < s->nfields; i++)
        for (int j = 0; j < 4; j++)
            if (s->fields[i].when == KCP_MAYBE && !strcmp(s->fields[i].name, states[j]))
                tensor_drop(b, states[j]);
}

/* Inputs, each off by up to half a place of its type; beta too, for a kernel in bf16
 * rounds A beta. */
static void round_once_more(struct tensor_set *in, const struct kcase *k,
                            enum kcp_storage judged)
{
    uint64_t seed = k->seed;
    for (int j = 0; j < in->n; j++)
        tensor_disturb(&in->t[j], k, judged, &seed);
}

/* What the reference of the stage makes of its inputs, which become its outputs too:
 * the oracle for the layer on ranks, one rank for the convolution. */
static int outputs_of(struct tensor_set *want, const struct kcp_stage *s,
                      const struct kcase *k, enum kcp_pass pass,
                      const struct kcp_plan *p)
{
    struct kcp_call c;
    switch (source_of(s)) {
    case OF_CONV: return pipeline_conv(want, k, pass);
    case OF_SPIKE:
    case OF_FAMILY: return pipeline_family(want, s, k, pass);
    case OF_LAYER: return pipeline_oracle(want, k, pass == KCP_BACKWARD ||
                                       !strncmp(s->name, "13", 2));
    default:
        c = call_of(s, k, p, 0, pass);
        return reference_run(want, s, &c);
    }
}

/* What the chapters before it leave a stage, rounded, becomes its inputs: of 01, which
 * has no state to begin with, from the whole recurrence. */
static int inputs_before(struct tensor_set *in, const struct kcp_stage *s,
                         const struct kcase *k, enum kcp_pass pass,
                         enum kcp_storage judged)
{
    int status = KCP_OK;
    if (source_of(s) == OF_STEP) status = pipeline_oracle(in, k, pass == KCP_BACKWARD);
    else if (source_of(s) == OF_CHAPTERS) status = pipeline_chunks(in, k);
    else return KCP_OK;
    tensor_set_round(in, judged);
    if (k->no_states && source_of(s) == OF_CHAPTERS) leave_out(in, s);
    return status;
}

/* How much is alive at the last cut; NaN where nothing crosses one. */
static double alive_of(const struct expected *x, const struct kcp_stage *s,
                       const struct kcase *k, const struct kcp_plan *p)
{
    switch (source_of(s)) {
    case OF_SPIKE: return alive_spike(&x->in, k, p);
    case OF_FAMILY: return alive_family(&x->in, s, k, p);
    case OF_STEP:
    case OF_LAYER: return alive_far(&x->want, k, p);
    default: return NAN;
    }
}

/* `to`: what comes of numbers rounded once more, less what should come. */
static int move_once(struct tensor_set *to, const struct kcase *k,
                     const struct kcp_plan *p)
{
    tensor_set_copy(to, &kept.in);
    round_once_more(to, k, kept.judged);
    const int status = source_of(kept.stage) == OF_LAYER
        ? pipeline_disturbed(to, k, kept.judged)
        : outputs_of(to, kept.stage, &kept.k, kept.pass, p);
    if (!status && !strncmp(kept.stage->name, "10", 2))
        pipeline_disturb(to, k, kept.stage, kept.pass, kept.judged);
    for (int j = 0; j < to->n && !status; j++) {
        const struct tensor *t = &to->t[j];
        const struct tensor *from = tensor_find(&kept.want, t->name);
        if (!from || t->store == KCP_I32 || t->store == KCP_I64 || t->n != from->n)
            continue;
        for (int64_t i = 0; i < t->n; i++)
            ((double *)t->p)[i] -= ((const double *)from->p)[i];
    }
    return status;
}

/* `kept.moved`: number by number the RMS of DRAWS such. One draw says little where an
 * output hangs on few numbers: eight of one gradient were between 2e-3 and 1.4e-2. */
enum { DRAWS = 8 };
static int find_moved(void)
{
    struct kcp_plan *p = case_plan(&kept.k, kept.stage->ranks ? kept.k.call.R : 1);
    struct kcase k = kept.k;
    int status = KCP_OK;
    for (int i = 0; i < DRAWS && !status; i++) {
        struct tensor_set one = { 0 };
        k.seed = kept.k.seed + 7919u * (unsigned)i;
        status = move_once(i ? &one : &kept.moved, &k, p);
        for (int j = 0; j < kept.moved.n && !status; j++) {
            const struct tensor *t = &kept.moved.t[j];
            const struct tensor *more = i ? tensor_find(&one, t->name) : t;
            if (!more || t->store == KCP_I32 || t->store == KCP_I64 || more->n != t->n)
                continue;
            double *sum = t->p;
            const double *x = more->p;
            for (int64_t e = 0; e < t->n; e++) {
                const double before = i ? sum[e] : 0;
                sum[e] = before + x[e] * x[e];
                if (i == DRAWS - 1) sum[e] = sqrt(sum[e] / DRAWS);
            }
        }
        tensor_set_free(&one);
    }
    kcp_plan_free(p);
    if (status) tensor_set_free(&kept.moved);
    return status;
}

const double *expected_moved(const char *field)
{
    const struct tensor *want = tensor_find(&kept.want, field);
    if (!kept.stage || !want || (!kept.moved.n && find_moved())) return NULL;
    const struct tensor *moved = tensor_find(&kept.moved, field);
    return moved && moved->n == want->n ? moved->p : NULL;
}

/* Inputs and outputs of a case, unless they are at hand. */
static int expect(const struct kcp_stage *s, const struct kcase *k, enum kcp_pass pass,
                  enum kcp_storage judged, const struct kcp_plan *p)
{
    const int same = kept.stage == s && kept.judged == judged && kept.pass == pass &&
                     !memcmp(&kept.k, k, sizeof *k);
    int status;
    if (same) return KCP_OK;
    tensor_set_free(&kept.in);
    tensor_set_free(&kept.want);
    tensor_set_free(&kept.moved);
    kept.stage = NULL;
    inputs_draw(&kept.in, k, s, judged);
    status = inputs_before(&kept.in, s, k, pass, judged);
    tensor_set_copy(&kept.want, &kept.in);
    if (!status) status = outputs_of(&kept.want, s, k, pass, p);
    kept.alive = status ? NAN : alive_of(&kept, s, k, p);
    kept.rms_v = rms(tensor_find(&kept.in, "v"));
    kept.rms_sum = in_step(&k->call) * sqrt((double)k->call.T)
                 * rms(tensor_find(&kept.want, "dg_raw"));
    kept.rms_dA = fmax(kept.rms_sum * sqrt(k->call.KG), in_step(&k->call)
                       * rms_dA(&kept.in, &kept.want, &k->call));
    kept.k = *k;
    kept.judged = judged;
    kept.pass = pass;
    if (!status) kept.stage = s;
    return status;
}

int expected_find(const struct kcp_stage *s, const struct kcase *k, enum kcp_pass pass,
                  enum kcp_storage judged, const struct kcp_plan *p,
                  const struct expected **x)
{
    const int status = expect(s, k, pass, judged, p);
    *x = status ? NULL : &kept;
    return status;
}

const struct expected *expected_of(const struct kcp_stage *s, const struct kcase *k,
                                   enum kcp_pass pass, enum kcp_storage judged,
                                   const struct kcp_plan *p)
{
    const struct expected *x;
    expected_find(s, k, pass, judged, p, &x);
    return x;
}

int has_backward(const struct kcp_stage *s)
{
    int backward = !strncmp(s->name, "07", 2);
    for (int i = 0; i < s->nfields; i++) backward |= s->fields[i].io == KCP_BOUT;
    return backward;
}
