/* pipeline.c -- runs the chapters' references in order to compute inputs and outputs.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * A stage without ranks gets inputs computed by the references of earlier chapters, so
 * that w, kg and h are as in a layer. With independent random w, kg and h, states would
 * grow without bound. A stage with ranks is compared with the token recurrence, which
 * uses neither chunks nor ranks. */
#include "judge.h"
#include "base/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int run_stage(struct tensor_set *b, const char *stage, struct kcp_call *c,
                     enum kcp_pass pass)
{
    const struct kcp_stage *s = stage_find(stage);
    c->pass = pass;
    return s ? reference_run(b, s, c) : KCP_NA;
}

static int grid_add(struct tensor_set *b, const struct kcp_context *x,
                    const struct kcp_call *c)
{
    memcpy(tensor_add(b, "cu", "NS+1", KCP_I32, c)->p, x->cu, 4 * (x->NS + 1));
    memcpy(tensor_add(b, "cn", "NS+1", KCP_I32, c)->p, x->cn, 4 * (x->NS + 1));
    memcpy(tensor_add(b, "sc", "NC", KCP_I32, c)->p, x->sc, 4 * x->NC);
    return KCP_OK;
}

/* Sums the gradient of a parameter over segments (parts of sequences). */
static void add_parts(struct tensor_set *b, const struct kcp_call *c, const char *name,
                      const char *shape, const char *parts)
{
    const struct tensor *from = tensor_find(b, parts);
    struct tensor *to = from ? tensor_add(b, name, shape, KCP_ACC, c) : NULL;
    for (int64_t i = 0; to && i < to->n; i++) ((double *)to->p)[i] = 0;
    for (int64_t i = 0; to && i < from->n; i++)
        ((double *)to->p)[i % to->n] += ((double *)from->p)[i];
}

static void sum_parts(struct tensor_set *b, const struct kcp_call *c)
{
    add_parts(b, c, "dA_log", "HV", "dA_part");
    add_parts(b, c, "ddt_bias", "HV KG", "ddt_part");
}

/* Fills the state before (in backward, the gradient after) each segment. The first
 * (last) segment of a sequence gets the sequence's row of h0 (dht), or 0. In other
 * segments and, with uneven cuts, in the batch's first (last) segment, tensor `all`
 * (h_in, dh_out) gets random numbers, and tensor `own` (h_start, dh_end) gets 0. */
static void fill_states(struct tensor_set *b, const struct kcase *k,
                        const struct kcp_plan *p,
                        const struct kcp_call *c, const char *of_sequence,
                        const char *all, const char *own, int backward)
{
    double *any = tensor_add(b, all, "NS HV K V", KCP_ACC, c)->p;
    const struct tensor *t = tensor_find(b, of_sequence);
    double *begin = tensor_add(b, own, "NS HV K V", KCP_ACC, c)->p;
    const size_t n = (size_t)c->HV * c->K * c->V;
    struct stream s = stream_of(k->seed, all);
    for (int j = 0; j < c->NS; j++) {
        const struct kcp_segment *g = &p->seg[j];
        const int at = backward ? c->NS - 1 : 0;
        const int sure = backward ? g->last : g->first;
        const int from_elsewhere = !sure || (k->uneven && !k->L && j == at);
        const double *row = t ? (double *)t->p + g->n * n : NULL;
        for (size_t i = 0; i < n; i++) {
            begin[j * n + i] = !from_elsewhere && row ? row[i] : 0;
            any[j * n + i] = from_elsewhere ? .5 * normal(&s) : begin[j * n + i];
        }
    }
}

static void fill_marks(struct tensor_set *b, const struct kcase *k,
                       const struct kcp_call *c)
{
    static const int mixed[] = { 3, 1, 0, 2 };
    int *want = tensor_add(b, "want", "NS", KCP_I32, c)->p;
    int *range = tensor_add(b, "range", "2", KCP_I32, c)->p;
    for (int j = 0; j < c->NS; j++) want[j] = k->mixed_want ? mixed[j % 4] : 3;
    range[0] = k->id % 3 == 2 && c->NS > 1;         /* sometimes omits the first map */
    range[1] = k->id % 7 == 6 ? range[0] : c->NS;   /* sometimes an empty range */
}

/* Adds the inputs of chapter 17: decay = exp2(G_last) per chunk, head and channel. For
 * GDN also adds kg, so that both models have the same inputs. */
static void fill_ladder(struct tensor_set *b, const struct kcp_call *c,
                        const struct kcp_context *x)
{
    const int H = c->H, HV = c->HV, K = c->K, KG = c->KG, gdn = c->model == KCP_GDN;
    const double (*G)[HV][KG] = tensor_find(b, "G")->p;
    const double (*k)[H][K] = tensor_find(b, "k")->p;
    double (*decay)[HV][K] = tensor_add(b, "decay", "NC HV K", KCP_ACC, c)->p;
    double (*kg)[HV][K] = NULL;
    if (gdn) kg = tensor_add(b, "kg", "T HV K", KCP_ACTV, c)->p;
    for (int j = 0; j < c->NC; j++) {
        const int s = x->sc[j], t0 = x->cu[s] + (j - x->cn[s]) * c->C;
        const int t1 = t0 + c->C < x->cu[s + 1] ? t0 + c->C : x->cu[s + 1];
        for (int n = 0; n < HV; n++)
            for (int i = 0; i < K; i++) {
                const double *last = G[t1 - 1][n];
                decay[j][n][i] = exp2(last[KG > 1 ? i : 0]);
                for (int t = t0; gdn && t < t1; t++)
                    kg[t][n][i] = k[t][n / (HV / H)][i] * exp2(last[0] - G[t][n][0]);
            }
    }
}

/* Computes the maps of all segments, because chapter 07 composes all of them. */
static int make_all_maps(struct tensor_set *b, struct kcp_call *c)
{
    int *want = tensor_find(b, "want")->p;
    int *kept = alloc_or_exit(4 * (size_t)c->NS + 4);
    memcpy(kept, want, 4 * (size_t)c->NS);
    for (int j = 0; j < c->NS; j++) want[j] = 3;
    const int status = run_stage(b, "05_affine", c, KCP_FORWARD);
    const struct tensor *map = tensor_find(b, "map");
    if (!status && map)
        memcpy(tensor_add(b, "maps", "R HV K V+K", KCP_MAP, c)->p, map->p, 8 * map->n);
    memcpy(want, kept, 4 * (size_t)c->NS);
    free(kept);
    return status;
}

/* Runs chapters 02, 03, 04, 05, 09, 11, 10, then 02 backward, on the segments of one
 * rank. Stops before pass `pass` of stage `end` (04 if `end` is 17), or runs all
 * chapters if `end` is NULL. If the case's part is KCP_REVERSE, also runs `end`. If
 * `after` is not NULL, calls `after` after each stage. */
static int chunk_stages(struct tensor_set *b, const struct kcase *k,
                        const struct kcp_stage *end, enum kcp_pass pass,
                        void (*after)(struct tensor_set *, const struct kcase *,
                                      const struct kcp_stage *, enum kcp_pass,
                                      enum kcp_storage), enum kcp_storage storage)
{
    struct kcp_call c = k->call;
    struct kcp_plan *p = case_plan(k, 1);
    int status = KCP_OK;
    if (!p) return KCP_NO_MEMORY;
    c.R = c.NS = p->ctx[0].NS;
    c.NC = p->ctx[0].NC;
    grid_add(b, &p->ctx[0], &c);
    fill_states(b, k, p, &c, "h0", "h_in", "h_start", 0);
    fill_states(b, k, p, &c, "dht", "dh_out", "dh_end", 1);
    fill_marks(b, k, &c);
    const struct tensor *kept = tensor_add(b, "h_kept_in", "1 HV K V", KCP_ACC, &c);
    memcpy(kept->p, tensor_find(b, "h_in")->p, 8 * (size_t)c.HV * c.K * c.V);

    c.part = KCP_LOCAL | KCP_REVERSE;
    if (end == stage_find("17")) end = stage_find("04");     /* 17 scans like 04 */
    static const struct {
        const char *stage;
        enum kcp_pass pass;
        int (*before)(struct tensor_set *b, struct kcp_call *c);
    } walk[] = {
        { "02_gate", KCP_FORWARD, NULL }, { "03_wy", KCP_FORWARD, NULL },
        { "04_chunk", KCP_FORWARD, NULL }, { "05_affine", KCP_FORWARD, make_all_maps },
        { "09_chunk_backward", KCP_FORWARD, NULL },
        { "11_merge_backward", KCP_FORWARD, NULL },
        { "10_wy_backward", KCP_FORWARD, NULL }, { "02_gate", KCP_BACKWARD, NULL },
    };
    for (size_t i = 0; i < sizeof walk / sizeof *walk && !status; i++) {
        /* Part KCP_REVERSE of 09 reads what part KCP_LOCAL of 09 writes. */
        const int here = stage_find(walk[i].stage) == end && walk[i].pass == pass;
        if (here && k->call.part != KCP_REVERSE) break;
        if (walk[i].before) status = walk[i].before(b, &c);
        if (!status) status = run_stage(b, walk[i].stage, &c, walk[i].pass);
        if (!status && after)
            after(b, k, stage_find(walk[i].stage), walk[i].pass, storage);
        if (here) break;
    }
    if (!status && tensor_find(b, "G")) fill_ladder(b, &c, &p->ctx[0]);
    kcp_plan_free(p);
    return status;
}

int pipeline_chunks(struct tensor_set *b, const struct kcase *k,
                    const struct kcp_stage *end, enum kcp_pass pass)
{
    return chunk_stages(b, k, end, pass, NULL, KCP_F64);
}

void tensor_disturb(struct tensor *t, const struct kcase *k, enum kcp_storage storage,
                    uint64_t *seed)
{
    const int logits = !strcmp(t->name, "beta_raw") &&
                       k->call.beta_form != KCP_BETA_RAW;
    const int beta = !strcmp(t->name, "beta") && storage == KCP_BF16;
    const enum kcp_type type = kcp_type_of(&k->call, t->store, storage);
    int place = beta || type == KCP_TYPE_BF16 ? -9 : -24;
    /* kernels of bf16 storage round q, k, v, o and gradients of f16 to bf16 */
    if (type == KCP_TYPE_F16) place = t->store == KCP_ACTV ? -9 : -12;
    if (t->store == KCP_I32 || t->store == KCP_I64) return;
    for (int64_t i = 0; i < t->n; i++) {
        double *x = (double *)t->p + i;
        const double by = ldexp(2 * random_uniform(seed) - 1, place);
        *x += logits ? by * (1 + exp(*x)) : by * *x;
    }
}

/* A token's dG is a sum of products q * dq and k * dk over one channel (KDA) or all
 * channels (GDN). Returns the sum of the squares of these products. */
static double terms_of(const struct tensor_set *b, const struct kcp_call *c, int64_t t,
                       int64_t gate)
{
    static const char *const pair[][2] = { { "q", "dq" }, { "k", "dk" } };
    const int n = (int)(gate / c->KG) / (c->HV / c->H), all = c->KG == 1;
    const int first = all ? 0 : (int)(gate % c->KG);
    const int end = all ? c->K : first + 1;
    double sum = 0;
    for (int i = 0; i < 2; i++) {
        const struct tensor *x = tensor_find(b, pair[i][0]);
        const struct tensor *dx = tensor_find(b, pair[i][1]);
        for (int d = first; d < end && x && dx; d++) {
            const int64_t at = (t * c->H + n) * c->K + d;
            sum += pow(((double *)x->p)[at] * ((double *)dx->p)[at], 2);
        }
    }
    return sum;
}

/* Changes dg as rounding would change dg. G is the running sum of g in a chunk, so a
 * token's dg is the sum of dG from this token to the end of the chunk. Each dG has a
 * rounding error, which stays in the sum even if the values of dG cancel. */
static void disturb_sums(struct tensor *dg, const struct tensor_set *b,
                         const struct kcase *k, enum kcp_storage storage,
                         uint64_t *seed)
{
    const struct tensor *cu = tensor_find(b, "cu");
    const int64_t W = (int64_t)k->call.HV * k->call.KG, C = k->call.C;
    const int *at = cu->p, place = storage == KCP_BF16 ? -9 : -24;
    for (int s = 0; s + 1 < cu->n; s++)
        for (int64_t w = 0; w < W; w++) {
            double *x = (double *)dg->p + w, off = 0, next = 0;
            for (int64_t t = at[s + 1] - 1; t >= at[s]; t--) {
                const int last = t + 1 == at[s + 1] || (t + 1 - at[s]) % C == 0;
                if (last) off = next = 0;
                const double dG = x[t * W] - next;
                const double size = sqrt(dG * dG + terms_of(b, &k->call, t, w));
                next = x[t * W];
                off += size * ldexp(2 * random_uniform(seed) - 1, place);
                x[t * W] += off;
            }
        }
}

void pipeline_disturb(struct tensor_set *b, const struct kcase *k,
                      const struct kcp_stage *s, enum kcp_pass pass,
                      enum kcp_storage storage)
{
    uint64_t seed = k->seed + (unsigned char)s->name[1] + 100u * pass;
    struct kcp_call c = k->call;
    c.pass = pass;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        struct tensor *t = field_in(f) ? NULL : tensor_find(b, f->name);
        if (!t || !field_used(f, &c)) continue;
        if (!strcmp(f->name, "dg")) disturb_sums(t, b, k, storage, &seed);
        else tensor_disturb(t, k, storage, &seed);
    }
}

/* Returns the gate of token t of a sequence, from the sums G of its chunk. */
static double gate_at(const double *G, int64_t W, int64_t C, int64_t t)
{
    return G[t * W] - (t % C ? G[(t - 1) * W] : 0);
}

/* Like pipeline_disturb, for a case whose ranks cut sequences. A rank's first chunk
 * starts at the rank's first token, not at a multiple of C. There G, an fp32 sum of the
 * gates since the chunk's start, is at most the sum over the last C tokens, and has a
 * rounding error of 2^-24 of that sum. For gates that close, G is about -800, and this
 * error changes exp2(G_i - G_j) of adjacent tokens by 3e-5. */
static void disturb_cut(struct tensor_set *b, const struct kcase *k,
                        const struct kcp_stage *s, enum kcp_pass pass,
                        enum kcp_storage storage)
{
    const struct tensor *cu = tensor_find(b, "cu"), *of = tensor_find(b, "G");
    const int of_gates = s == stage_find("02_gate") && pass == KCP_FORWARD && of;
    const int64_t W = (int64_t)k->call.HV * k->call.KG, C = k->call.C;
    const int *at = cu->p;
    uint64_t seed = k->seed + 2;
    for (int j = 0; of_gates && j + 1 < cu->n; j++)
        for (int64_t w = 0; w < W; w++) {
            double *G = (double *)of->p + at[j] * W + w, sum = 0;
            const int64_t n = at[j + 1] - at[j];
            for (int64_t t = n - 1; t >= 0 && t >= n - C; t--)
                sum += gate_at(G, W, C, t);
            for (int64_t t = n - 1; t >= 0; t--) {
                const double gate = gate_at(G, W, C, t);
                G[t * W] += sum * ldexp(2 * random_uniform(&seed) - 1, -24);
                sum += (t >= C ? gate_at(G, W, C, t - C) : 0) - gate;
            }
        }
    pipeline_disturb(b, k, s, pass, storage);
}

/* Fills tensor `name`, which has one state per sequence, from the states of segments. A
 * sequence without tokens gets the sequence's row of tensor `given`, or 0. */
static void states_of_sequences(struct tensor_set *b, const struct kcp_plan *p,
                                const struct kcp_call *c, const char *name,
                                const char *by_segment, const char *given)
{
    struct tensor *to = tensor_add(b, name, "N HV K V", KCP_ACC, c);
    const struct tensor *from = tensor_find(b, by_segment);
    const struct tensor *whole = tensor_find(b, given);
    const size_t n = (size_t)c->HV * c->K * c->V;
    if (whole) memcpy(to->p, whole->p, 8 * (size_t)to->n);
    else memset(to->p, 0, 8 * (size_t)to->n);
    for (int j = 0; from && j < p->S; j++)
        memcpy((double *)to->p + (size_t)p->seg[j].n * n, (double *)from->p + j * n,
               8 * n);
}

/* If the layer's layout is [V,K], transposes states to or from the chapters' [K,V]. */
static void turn_states(struct tensor_set *b, const struct kcp_call *c,
                        const char *name, int rows, int columns)
{
    const struct tensor *t = tensor_find(b, name);
    const size_t n = (size_t)c->K * c->V;
    double *one = t && c->layout == KCP_VK ? alloc_or_exit(8 * n) : NULL;
    for (int64_t at = 0; one && at < t->n; at += n) {
        double *x = (double *)t->p + at;
        memcpy(one, x, 8 * n);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) x[j * rows + i] = one[i * columns + j];
    }
    free(one);
}

int pipeline_disturbed(struct tensor_set *b, const struct kcase *k,
                       enum kcp_storage storage)
{
    const struct kcp_call *c = &k->call;
    struct kcase one = *k;
    one.call.R = 1;
    one.uneven = 0;
    one.L = 0;
    one.mixed_want = 0;
    turn_states(b, c, "h0", c->V, c->K);
    turn_states(b, c, "dht", c->V, c->K);
    struct kcp_plan *p = case_plan(&one, 1);
    int status = KCP_NO_MEMORY;
    if (p)
        status = chunk_stages(b, &one, NULL, KCP_FORWARD,
                              k->call.R > 1 ? disturb_cut : pipeline_disturb, storage);
    if (!status) {
        states_of_sequences(b, p, &one.call, "ht", "h_out", "h0");
        states_of_sequences(b, p, &one.call, "dh0", "dh_in", "dht");
        turn_states(b, c, "ht", c->K, c->V);
        turn_states(b, c, "dh0", c->K, c->V);
        sum_parts(b, &one.call);
    }
    kcp_plan_free(p);
    return status;
}

/* Runs the token recurrence on the whole batch: chapters 02 and 01, and with `backward`
 * also their backward passes. */
int pipeline_oracle(struct tensor_set *b, const struct kcase *k, int backward)
{
    struct kcp_call c = k->call;
    const int *zero = (int[]){ 0, (int)c.T };
    c.R = c.NS = 1;
    c.NC = (int)((c.T + c.C - 1) / c.C);
    memcpy(tensor_add(b, "cu", "NS+1", KCP_I32, &c)->p, zero, 8);
    int *cn = tensor_add(b, "cn", "NS+1", KCP_I32, &c)->p;
    cn[0] = 0;
    cn[1] = c.NC;
    struct tensor *sc = tensor_add(b, "sc", "NC", KCP_I32, &c);
    memset(sc->p, 0, 4 * sc->n);
    int status = run_stage(b, "02_gate", &c, KCP_FORWARD);
    if (!status) status = run_stage(b, "01_step", &c, KCP_FORWARD);
    if (status || !backward) return status;
    status = run_stage(b, "01_step", &c, KCP_BACKWARD);
    if (!status) status = run_stage(b, "02_gate", &c, KCP_BACKWARD);
    if (!status) sum_parts(b, &c);
    return status;
}

int pipeline_one_rank(struct tensor_set *b, const struct kcp_stage *s,
                      const struct kcase *k, enum kcp_pass pass)
{
    struct kcp_plan *p = case_plan(k, 1);
    struct kcp_stage oracle = *s;
    struct kcp_call c = k->call;
    if (!p) return KCP_NO_MEMORY;
    if (s->oracle) oracle.ref = s->oracle;
    c.pass = pass;
    c.R = 1;
    c.r = 0;
    c.plan = p;
    c.NS = p->ctx[0].NS;
    c.NC = p->ctx[0].NC;
    grid_add(b, &p->ctx[0], &c);
    const int status = reference_run(b, &oracle, &c);
    kcp_plan_free(p);
    return status;
}
