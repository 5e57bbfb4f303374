/* inputs.c -- draws random inputs in five regimes, which determine how fast the state
 * decays.
 * Book: chapter 19, and field notes "Inputs are part of the proof".
 *
 * g is the log of a decay, N is a standard normal random number, and T is the token
 * count. LIVE: g = -|N|/T and beta is small, so that tokens of the first rank change
 * outputs of the last rank. STRONG: g = logsigmoid(N), so that the state decays within
 * a rank. SATURATED: g is close to -5, the bound of the bounded gate. TURNS: per
 * channel and token, g is either 0 or -5. SPREAD: g = -5 * sigmoid(N). */
#include "judge.h"
#include "base/bf16.h"
#include "base/random.h"
#include "ref/sigmoid.h"
#include <math.h>
#include <string.h>

const char *const regime_name[] = { "live", "strong", "saturated", "alternate",
                                    "spread" };
const char *const deep_name[] = { "none", "first", "one", "half", "all" };

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

/* Returns 1 if gates of token t, value head n and channel i close: in one channel of
 * the first or last head and sequence that has tokens, in odd heads or in all heads. */
static int closes(const struct kcase *k, int64_t t, int n, int i)
{
    const struct kcp_call *c = &k->call;
    int last = c->N - 1, first = 0;
    while (last > 0 && k->cu[last] == k->cu[last + 1]) last--;
    while (first < last && k->cu[first] == k->cu[first + 1]) first++;
    if (k->deep == DEEP_FIRST)
        return n == 0 && i == 5 * c->KG / 8 && t < k->cu[first + 1];
    if (k->deep == DEEP_ONE)
        return n == c->HV - 1 && i == 5 * c->KG / 8 && t >= k->cu[last];
    return k->deep == DEEP_ALL || (k->deep == DEEP_HALF && n % 2);
}

/* A gate that closes is between 0 and -60 for about a third of the tokens, so that 16
 * tokens decay by much more than 2^-126, but adjacent tokens often by nothing. */
static double deep_decay(double g, struct stream *s)
{
    const double x = uniform(s);
    return x < .3 ? -200 * x : g;
}

/* Returns the raw gate input whose activation is g: inverts the gate of case k. */
static double raw_gate(const struct kcase *k, double g, double A_log, double dt_bias)
{
    g = fmax(g, k->call.gate == KCP_GATE_BOUNDED ? k->call.lower_bound : g);
    if (k->call.gate != KCP_GATE_RAW) g = fmin(g, -1e-9);   /* activation gives g < 0 */
    switch (k->call.gate) {
    case KCP_GATE_SOFTPLUS: return log(expm1(-g / exp(A_log))) - dt_bias;
    case KCP_GATE_BOUNDED: {
        double p = fmin(g / k->call.lower_bound, 0.9995);
        return log(p / (1 - p)) / exp(A_log) - dt_bias;
    }
    default: return g;
    }
}

static void fill_normal(struct tensor *t, uint64_t seed, double size)
{
    struct stream s = stream_of(seed, t->name);
    for (int64_t i = 0; i < t->n; i++) ((double *)t->p)[i] = size * normal(&s);
}

/* Steady gates are equal for all tokens, and their raw inputs are near 40 (dt_bias is
 * near -40), where numbers of type bf16 are 0.25 apart. So a kernel that rounds float32
 * gates to bf16 has other decays, and the errors of all tokens add up.
 *
 * Draws A_log, which differs between heads, and dt_bias, both with values as in trained
 * models. Then draws the raw gates. */
static void fill_gate(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    double *g = tensor_add(b, "g_raw", "T HV KG", KCP_G, c)->p;
    double *A_log = NULL, *dt = NULL;
    struct stream s = stream_of(k->seed, "g_raw"), deep = stream_of(k->seed, "deep");
    if (c->gate != KCP_GATE_RAW) {
        const double most = c->gate == KCP_GATE_BOUNDED ? 0.5 : log(16);
        A_log = tensor_add(b, "A_log", "HV", KCP_ACC, c)->p;
        dt = tensor_add(b, "dt_bias", "HV KG", KCP_ACC, c)->p;
        for (int n = 0; n < c->HV; n++) A_log[n] = most * (n + uniform(&s)) / c->HV;
        for (int i = 0; i < c->HV * c->KG; i++)
            dt[i] = log(expm1(exp(log(1e-3) + log(100.) * uniform(&s))))
                  - (k->steady ? 40 : 0);
    }
    for (int64_t t = 0; t < c->T; t++)
        for (int n = 0; n < c->HV; n++)
            for (int i = 0; i < c->KG; i++) {
                const int at = n * c->KG + i;
                double of_t = decay(k, &s);
                if (closes(k, t, n, i)) of_t = deep_decay(of_t, &deep);
                g[t * c->HV * c->KG + at] =
                    raw_gate(k, of_t, A_log ? A_log[n] : 0, dt ? dt[at] : 0);
            }
    const int64_t row = (int64_t)c->HV * c->KG;
    for (int64_t e = row; k->steady && e < c->T * row; e++) g[e] = g[e - row];
}

/* Returns the mean logit of beta and of gates. This mean is negative in regime LIVE,
 * and large for alike keys, so that matrix L of chapter 03 is large. */
double mean_logit(const struct kcase *k)
{
    if (k->alike > 0) return 3;
    return k->regime == LIVE ? -3 : 0;
}

static void fill_beta(struct tensor_set *b, const struct kcase *k)
{
    struct tensor *t = tensor_add(b, "beta_raw", "T HV", KCP_BETA, &k->call);
    struct stream s = stream_of(k->seed, "beta_raw");
    for (int64_t i = 0; i < t->n; i++) {
        const double x = normal(&s) + mean_logit(k);
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

/* Makes rows of unit length. The cosine of the angle between any two rows is near c. A
 * row is sqrt(c) u + sqrt(1 - c) x, where all rows have the same unit vector u, and x
 * is a random unit vector orthogonal to u. */
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

/* Multiplies rows by 0, by 1e4 or by random factors, as case k requires. */
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

static double to_type(double x, enum kcp_type type)
{
    if (type == KCP_TYPE_F64) return x;
    const float f = (float)x;
    if (type == KCP_TYPE_F16) return f16_value(f16_of(f));
    return type == KCP_TYPE_BF16 && f == f ? bf16_value(bf16_of(f)) : f;
}

void tensor_set_round(struct tensor_set *b, const struct kcp_call *c,
                      enum kcp_storage storage)
{
    for (int i = 0; i < b->n; i++) {
        struct tensor *t = &b->t[i];
        const enum kcp_type type = kcp_type_of(c, t->store, storage);
        if (type == KCP_AS_Q || type == KCP_TYPE_F64) continue;    /* AS_Q: integers */
        for (int64_t j = 0; j < t->n; j++)
            ((double *)t->p)[j] = to_type(((double *)t->p)[j], type);
    }
}

double rms_apart(const double *a, const double *b, int64_t n)
{
    double off = 0, own = 0;
    for (int64_t e = 0; e < n; e++) {
        off += (a[e] - b[e]) * (a[e] - b[e]);
        own += b[e] * b[e];
    }
    return own > 0 ? sqrt(off / own) : sqrt(off);
}

double tensors_apart(const struct tensor_set *a, const struct tensor_set *b,
                     const char *name)
{
    const struct tensor *x = tensor_find(a, name), *y = tensor_find(b, name);
    return x && y && x->n == y->n ? rms_apart(x->p, y->p, x->n) : NAN;
}

struct tensor *add_normal(struct tensor_set *b, const struct kcase *k, const char *name,
                          const char *shape, enum kcp_store store, double size)
{
    struct tensor *t = tensor_add(b, name, shape, store, &k->call);
    fill_normal(t, k->seed, size);
    return t;
}

struct tensor *add_rows(struct tensor_set *b, const struct kcase *k, const char *name,
                        const char *shape, int unit, int alike)
{
    struct tensor *t = tensor_add(b, name, shape, KCP_ACTV, &k->call);
    const int K = k->call.K;
    fill_normal(t, k->seed, 1);
    for (int64_t i = 0; unit && i < t->n / K; i++)
        scale_row((double *)t->p + i * K, K, 1);
    if (alike && k->alike > 0) make_alike(t, k->seed, K, k->alike);
    scale_rows(t, k);
    return t;
}

void add_decays(struct tensor_set *b, const struct kcase *k, const char *name,
                enum kcp_store store)
{
    struct tensor *g = tensor_add(b, name, "T HV K", store, &k->call);
    struct stream s = stream_of(k->seed, "g");
    for (int64_t i = 0; i < g->n; i++) ((double *)g->p)[i] = decay(k, &s);
}

void add_states(struct tensor_set *b, const struct kcase *k)
{
    if (k->with_h0) add_normal(b, k, "h0", "N HV K V", KCP_ACC, .5);
    if (k->with_dht) add_normal(b, k, "dht", "N HV K V", KCP_ACC, .5);
}

static void draw_layer(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    add_rows(b, k, "q_raw", "T H K", !c->l2norm, 0);
    add_rows(b, k, "k_raw", "T H K", !c->l2norm, 1);
    add_normal(b, k, "v", "T HV V", KCP_ACTV, k->big ? 1e4 : 1);
    fill_gate(b, k);
    fill_beta(b, k);
    add_normal(b, k, "do_", "T HV V", KCP_ACTV, 1);
    add_states(b, k);
    memcpy(tensor_add(b, "cu_seqlens", "N+1", KCP_I64, c)->p, k->cu, 8 * (c->N + 1));
}

static void draw_conv(struct tensor_set *b, const struct kcase *k)
{
    add_normal(b, k, "x", "T D", KCP_ACTV, 1);
    add_normal(b, k, "dy", "T D", KCP_ACTV, 1);
    if (k->with_x0) add_normal(b, k, "x0", "N Wc-1 D", KCP_ACTV, 1);
    if (k->with_dxt) add_normal(b, k, "dxt", "N Wc-1 D", KCP_ACTV, 1);
    if (k->call.shift) return;
    add_normal(b, k, "weight", "D Wc", KCP_ACC, .5);
    if (k->with_h0) add_normal(b, k, "bias", "D", KCP_ACC, .5);
}

/* Stages 01 and 14 to 16 have their own inputs. Other stages have the inputs of a layer
 * if they run on several ranks, and otherwise outputs of earlier chapters. */
enum source source_of(const struct kcp_stage *s)
{
    if (s->facts & KCP_BY_TOKEN) return OF_STEP;
    if (s->facts & KCP_CONVOLVES) return OF_CONV;
    if (s->facts & KCP_SPIKES) return OF_SPIKE;
    if (s->oracle) return OF_FAMILY;
    return s->ranks ? OF_LAYER : OF_CHAPTERS;
}

/* Names of inputs that the functions above or family.c draw. */
static const char drawn[] = " A_log dt_bias h0 dht weight bias x0 dxt drop active o0 "
                            "dot g a b omega ";

/* For stages with several ranks, draws the inputs that `drawn` lacks, so that a new
 * field needs no code here: optional inputs, in cases with an even id, and inputs that
 * only some models read. */
static void draw_more(struct tensor_set *b, const struct kcase *k,
                      const struct kcp_stage *s)
{
    char name[32];
    for (int i = 0; i < s->nfields && s->ranks; i++) {
        const struct kcp_field *f = &s->fields[i];
        const int here = (f->when == KCP_MAYBE && k->id % 2 == 0) ||
            (f->when == KCP_BY_MODEL && kcp_model_reads(k->call.model, f->name));
        snprintf(name, sizeof name, " %s ", f->name);
        if (field_in(f) && here && !strstr(drawn, name))
            add_normal(b, k, f->name, f->shape, f->store, 1);
    }
}

int inputs_draw(struct tensor_set *b, const struct kcase *k, const struct kcp_stage *s,
                enum kcp_storage storage)
{
    switch (source_of(s)) {
    case OF_CONV: draw_conv(b, k); break;
    case OF_SPIKE: spike_draw(b, k); break;
    case OF_FAMILY: family_draw(b, k); break;
    default: draw_layer(b, k);
    }
    draw_more(b, k, s);
    tensor_set_round(b, &k->call, storage);
    return KCP_OK;
}

/* Some words of a case's text have no effect in some stages: chapter 14 has no keys,
 * chapters 15 and 16 read gates after activation, and GLA has neither beta nor b. */
const char *inputs_ignore(const struct kcp_stage *s, const struct kcase *k)
{
    const enum source from = source_of(s);
    const int beta = from != OF_FAMILY || kcp_model_reads(k->call.model, "b");
    const struct { const char *word; int is, reads; } words[] = {
        { "alike", k->alike > 0, from != OF_CONV },
        { "exact", k->exact_beta, from != OF_CONV && beta },
        { "null", k->null_rows, from != OF_CONV },
        { "plain", k->plain_rows, from != OF_CONV },
        { "steady", k->steady, from == OF_LAYER || from == OF_CHAPTERS },
        { "deep", k->deep, from == OF_LAYER || from == OF_CHAPTERS },
        { "big", k->big, from != OF_CONV },
        { "lb", k->call.lower_bound != -5,
          from != OF_CONV && from != OF_SPIKE && from != OF_FAMILY } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].is && !words[i].reads) return words[i].word;
    return NULL;
}
