/* inputs.c -- draws random inputs in five regimes, which determine how fast the state
 * decays.
 *
 * Book: chapter 19, and field notes "Inputs are part of the proof". Checked by:
 * tests/judge/self_cases.c.  Next: pipeline.c.
 *
 * LIVE: g = -|N|/T and beta is small, so that tokens of the first rank change outputs
 * of the last rank. STRONG: g = logsigmoid(N), so that the state decays within a rank.
 * SATURATED: g is close to -5, the bound of the bounded gate. TURNS: per channel and
 * token, g is either 0 or -5. SPREAD: g = -5 sigmoid(N). N is a standard normal random
 * number. A_log differs between heads. */
#include "judge.h"
#include "base/random.h"
#include "ref/sigmoid.h"
#include <math.h>
#include <string.h>

const char *const regime_name[] = { "live", "strong", "saturated", "turns", "spread" };

struct stream stream_of(uint64_t seed, const char *name)
{
    uint64_t h = 1469598103934665603u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return (struct stream){ random_mix(seed ^ random_mix(h)) + 0x9e3779b97f4a7c15u };
}

double uniform(struct stream *s)
{
    return random_uniform(&s->s);
}

double normal(struct stream *s)
{
    return random_normal(&s->s);
}

/* Draws g = log(alpha) <= 0 of one channel and token in the case's regime. */
static double decay(const struct kcase *k, struct stream *s)
{
    switch (k->regime) {
    case LIVE:   return -fabs(normal(s)) / (double)(k->call.T ? k->call.T : 1) - 1e-7;
    case STRONG: return -log1p(exp(-normal(s)));
    case TURNS:  return uniform(s) < .5 ? 0 : -5;
    case SPREAD: return -5 * sigmoid(normal(s));
    default:     return -5 * sigmoid(6 + normal(s));
    }
}

/* Returns the raw gate input that activation maps to g (inverse of eq:softplus). */
static double raw_gate(const struct kcase *k, double g, double A_log, double dt_bias)
{
    g = fmax(g, k->call.gate == KCP_GATE_BOUNDED ? k->call.lower_bound : g);
    if (k->call.gate != KCP_GATE_RAW) g = fmin(g, -1e-9);   /* no input gives g = 0 */
    switch (k->call.gate) {
    case KCP_GATE_SOFTPLUS: return log(expm1(-g / exp(A_log))) - dt_bias;
    case KCP_GATE_BOUNDED: {
        double p = fmin(g / k->call.lower_bound, 0.9995);
        return log(p / (1 - p)) / exp(A_log) - dt_bias;
    }
    default: return g;
    }
}

void fill_normal(struct tensor *t, uint64_t seed, double size)
{
    struct stream s = stream_of(seed, t->name);
    for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = size * normal(&s);
}

/* Draws A_log, which differs between heads, and dt_bias, both as in trained models;
 * then draws the raw gates. */
static void fill_gate(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    double *g = tensor_add(b, "g_raw", "T HV KG", KCP_ACTV, c)->p;
    double *A_log = NULL, *dt = NULL;
    struct stream s = stream_of(k->seed, "g_raw");
    if (c->gate != KCP_GATE_RAW) {
        const double most = c->gate == KCP_GATE_BOUNDED ? 0.5 : log(16);
        A_log = tensor_add(b, "A_log", "HV", KCP_ACC, c)->p;
        dt = tensor_add(b, "dt_bias", "HV KG", KCP_ACC, c)->p;
        for (int n = 0; n < c->HV; n++) A_log[n] = most * (n + uniform(&s)) / c->HV;
        for (int i = 0; i < c->HV * c->KG; i++)
            dt[i] = log(expm1(exp(log(1e-3) + log(100.) * uniform(&s))));
    }
    for (int64_t t = 0; t < c->T; t++)
        for (int n = 0; n < c->HV; n++)
            for (int i = 0; i < c->KG; i++) {
                const int at = n * c->KG + i;
                g[t * c->HV * c->KG + at] =
                    raw_gate(k, decay(k, &s), A_log ? A_log[n] : 0, dt ? dt[at] : 0);
            }
}

/* Draws beta: small in regime LIVE, but large for alike keys, so that L is large. */
static void fill_beta(struct tensor_set *b, const struct kcase *k)
{
    struct tensor *t = tensor_add(b, "beta_raw", "T HV", KCP_ACTV, &k->call);
    struct stream s = stream_of(k->seed, "beta_raw");
    double center = k->regime == LIVE ? -3 : 0;
    if (k->alike > 0) center = 3;
    for (int64_t i = 0; i < t->n; i++) {
        const double x = normal(&s) + center;
        double *beta = (double *)t->p + i;
        *beta = k->call.beta_form == KCP_BETA_RAW ? sigmoid(x) : x;
        if (k->exact_beta && i % 3) *beta = i % 3 == 1 ? 0 : 1;
    }
}

static void scale_row(double *x, int K, double length)
{
    double sum = 1e-30;
    for (int j = 0; j < K; j++) sum += x[j] * x[j];
    for (int j = 0; j < K; j++) x[j] *= length / sqrt(sum);
}

/* Makes rows of unit length; any two have a cosine near c. A row is sqrt(c) times a
 * unit vector, equal in all rows, plus sqrt(1 - c) times a random vector orthogonal
 * to it. */
static void make_alike(struct tensor *t, uint64_t seed, int K, double c)
{
    struct stream s = stream_of(seed, "alike");
    double (*x)[K] = t->p, common[K];
    for (int j = 0; j < K; j++) common[j] = normal(&s);
    scale_row(common, K, 1);
    for (int64_t i = 0; i < t->n / K; i++) {
        double along = 0;
        for (int j = 0; j < K; j++) along += x[i][j] * common[j];
        for (int j = 0; j < K; j++) x[i][j] -= along * common[j];
        scale_row(x[i], K, sqrt(1 - c));
        for (int j = 0; j < K; j++) x[i][j] += sqrt(c) * common[j];
    }
}

/* Multiplies rows by 0, by 1e4 or by random factors, as set in k. */
static void scale_rows(struct tensor *t, const struct kcase *k)
{
    const int K = k->call.K;
    struct stream s = stream_of(k->seed, t->name);
    double (*x)[K] = t->p;
    for (int64_t i = 0; i < t->n / K; i++) {
        double by = k->big && k->call.l2norm ? 1e4 : 1;
        if (k->plain_rows && !k->call.l2norm) by *= .2 + 1.1 * uniform(&s);
        if (k->null_rows && i % 7 == 3) by = 0;
        for (int j = 0; j < K; j++) x[i][j] *= by;
    }
}

void rows_unlike(struct tensor *t, const struct kcase *k, int alike)
{
    if (alike && k->alike > 0) make_alike(t, k->seed, k->call.K, k->alike);
    scale_rows(t, k);
}

void fill_rows(struct tensor *t, uint64_t seed, int K, int unit)
{
    fill_normal(t, seed, 1);
    double (*x)[K] = t->p;
    for (int64_t i = 0; unit && i < t->n / K; i++) {
        double s = 1e-30;
        for (int j = 0; j < K; j++) s += x[i][j] * x[i][j];
        for (int j = 0; j < K; j++) x[i][j] /= sqrt(s);
    }
}

double to_storage(double x, enum kcp_storage storage)
{
    if (storage == KCP_F64) return x;
    float f = (float)x;
    if (storage == KCP_BF16 && f == f) {        /* round to nearest, ties to even */
        uint32_t u;
        memcpy(&u, &f, 4);
        u += 0x7fff + ((u >> 16) & 1);
        u &= 0xffff0000u;
        memcpy(&f, &u, 4);
    }
    return f;
}

void tensor_set_round(struct tensor_set *b, enum kcp_storage storage)
{
    for (int i = 0; i < b->n; i++) {
        struct tensor *t = &b->t[i];
        if (t->store == KCP_I32 || t->store == KCP_I64 || storage == KCP_F64) continue;
        enum kcp_storage as = t->store == KCP_ACTV ? storage : KCP_F32;
        for (int64_t j = 0; j < t->n; j++)
            ((double *)t->p)[j] = to_storage(((double *)t->p)[j], as);
    }
}

static void draw_layer(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    const int unit = !c->l2norm;
    fill_rows(tensor_add(b, "q_raw", "T H K", KCP_ACTV, c), k->seed, c->K, unit);
    fill_rows(tensor_add(b, "k_raw", "T H K", KCP_ACTV, c), k->seed, c->K, unit);
    rows_unlike(tensor_find(b, "q_raw"), k, 0);
    rows_unlike(tensor_find(b, "k_raw"), k, 1);
    fill_normal(tensor_add(b, "v", "T HV V", KCP_ACTV, c), k->seed, k->big ? 1e4 : 1);
    fill_gate(b, k);
    fill_beta(b, k);
    fill_normal(tensor_add(b, "do_", "T HV V", KCP_ACTV, c), k->seed, 1);
    if (k->with_h0) fill_normal(tensor_add(b, "h0", "N HV K V", KCP_ACC, c), k->seed,
                                .5);
    if (k->with_dht)
        fill_normal(tensor_add(b, "dht", "N HV K V", KCP_ACC, c), k->seed, .5);
    memcpy(tensor_add(b, "cu_seqlens", "N+1", KCP_I64, c)->p, k->cu, 8 * (c->N + 1));
}

/* Draws decays g and states of chapter 16 as in a layer; family.c draws the rest. */
static void draw_family(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    struct tensor *g = tensor_add(b, "g", "T HV K", KCP_ACC, c);
    struct stream s = stream_of(k->seed, "g");
    for (int64_t i = 0; i < g->n; i++) ((double *)g->p)[i] = decay(k, &s);
    if (k->with_h0) fill_normal(tensor_add(b, "h0", "N HV K V", KCP_ACC, c), k->seed,
                                .5);
    if (k->with_dht)
        fill_normal(tensor_add(b, "dht", "N HV K V", KCP_ACC, c), k->seed, .5);
    family_draw(b, k);
}

static void draw_conv(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    fill_normal(tensor_add(b, "x", "T D", KCP_ACTV, c), k->seed, 1);
    fill_normal(tensor_add(b, "dy", "T D", KCP_ACTV, c), k->seed, 1);
    if (k->with_x0) fill_normal(tensor_add(b, "x0", "N Wc-1 D", KCP_ACTV, c), k->seed,
                                1);
    if (k->with_dxt)
        fill_normal(tensor_add(b, "dxt", "N Wc-1 D", KCP_ACTV, c), k->seed, 1);
    if (c->shift) return;
    fill_normal(tensor_add(b, "weight", "D Wc", KCP_ACC, c), k->seed, .5);
    if (k->with_h0) fill_normal(tensor_add(b, "bias", "D", KCP_ACC, c), k->seed, .5);
}

static void draw_spike(struct tensor_set *b, const struct kcase *k)
{
    struct tensor *g = tensor_add(b, "alpha_base", "T HV K", KCP_ACTV, &k->call);
    struct stream s = stream_of(k->seed, "g");
    for (int64_t i = 0; i < g->n; i++) ((double *)g->p)[i] = decay(k, &s);
    spike_draw(b, k);
}

/* A stage with ranks has the inputs of a layer. A stage without ranks has outputs of
 * earlier chapters as inputs. */
enum source source_of(const struct kcp_stage *s)
{
    if (!strncmp(s->name, "01", 2)) return OF_STEP;
    if (!strncmp(s->name, "14", 2)) return OF_CONV;
    if (!strncmp(s->name, "15", 2)) return OF_SPIKE;
    if (s->oracle) return OF_FAMILY;
    return s->ranks ? OF_LAYER : OF_CHAPTERS;
}

/* Names of optional inputs that the functions above draw if the case requests them. */
static const char drawn[] = " A_log dt_bias h0 dht weight bias x0 dxt drop active o0 "
                            "dot a b omega ";

/* In cases with an even id, draws all other optional inputs of stages with ranks, also
 * of fields that do not exist yet. */
static void draw_more(struct tensor_set *b, const struct kcase *k,
                      const struct kcp_stage *s)
{
    char name[32];
    for (int i = 0; i < s->nfields && s->ranks && k->id % 2 == 0; i++) {
        const struct kcp_field *f = &s->fields[i];
        snprintf(name, sizeof name, " %s ", f->name);
        if (field_in(f) && f->when == KCP_MAYBE && !strstr(drawn, name))
            fill_normal(tensor_add(b, f->name, f->shape, f->store, &k->call), k->seed,
                        1);
    }
}

int inputs_draw(struct tensor_set *b, const struct kcase *k, const struct kcp_stage *s,
                enum kcp_storage storage)
{
    switch (source_of(s)) {
    case OF_CONV: draw_conv(b, k); break;
    case OF_SPIKE: draw_spike(b, k); break;
    case OF_FAMILY: draw_family(b, k); break;
    default: draw_layer(b, k);
    }
    draw_more(b, k, s);
    tensor_set_round(b, storage);
    return KCP_OK;
}

/* Chapter 14 has no keys, 15 and 16 read gates after activation, and GLA has no
 * beta. */
const char *inputs_ignore(const struct kcp_stage *s, const struct kcase *k)
{
    const enum source from = source_of(s);
    const int gla = from == OF_FAMILY && k->call.model == KCP_GLA;
    const struct { const char *word; int is, reads; } words[] = {
        { "alike", k->alike > 0, from != OF_CONV },
        { "exact", k->exact_beta, from != OF_CONV && !gla },
        { "null", k->null_rows, from != OF_CONV },
        { "plain", k->plain_rows, from != OF_CONV },
        { "big", k->big, from != OF_CONV },
        { "lb", k->call.lower_bound != -5,
          from != OF_CONV && from != OF_SPIKE && from != OF_FAMILY } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].is && !words[i].reads) return words[i].word;
    return NULL;
}
