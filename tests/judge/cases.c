/* cases.c -- draws the cases of a stage: a covering array, built greedily.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * An axis is a property of a case that can expose an error, e.g. lengths, number of
 * ranks or form (exchange algorithm). The short list contains every value of every
 * axis, and all pairs of a few axes, e.g. of ranks and form. The full list contains all
 * pairs of all axes. Drawing ends when 60 random cases add no new value or pair. */
#include "judge.h"
#include <stdlib.h>
#include <string.h>

#define MODEL_NAME(NAME, name, ...) #name,
const char *const model_name[] = { KCP_MODEL_LIST(MODEL_NAME) };
const char *const storage_name[] = { "f64", "f32", "bf16" };

enum axis { MODEL, REGIME, GATE, BETA, NORM, HEADS, SIZES, CHUNK, LENS, RANKS, FORM,
            CUTS,
            CANON, H0, DHT, LAYOUT, SAVE, REUSE, SCALE, ACT, WINDOW, SHIFT, WANT, WALK,
            MASKS, AXES };
static const int heads[][2] = { { 2, 2 }, { 1, 3 }, { 1, 1 }, { 2, 4 } };
static const int sizes[][2] = { { 16, 16 }, { 5, 7 }, { 32, 16 }, { 16, 48 }, { 8, 3 },
                                { 64, 64 }, { 128, 64 }, { 64, 128 } };
/* Sizes that tensor-core kernels support. */
static const int wide_sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                     { 128, 64 } };
/* K and V of cases_tall, for kernels named v1* or with "up to 256" in their record.
 * Case i has tall_sizes[i], tall_lens[i], HV > H, and value i of every other axis. */
static const int tall_sizes[][2] = { { 192, 16 }, { 144, 256 }, { 48, 208 },
                                     { 256, 240 } };
static const int tall_lens[] = { 0, 2, 9, 1 };
static const int chunk[] = { 64, 16, 64, 5, 32 };
static const int64_t lens[][8] = {              /* each row ends with -1 */
    { 150, 0, 70, -1 }, { 15, 16, 17, -1 }, { 63, 64, 65, -1 },
    { 0, 0, 210, 0, 33, 0, -1 },
    { 1, 1, 1, 40, 1, -1 }, { 1, -1 }, { 1025, -1 }, { 1023, -1 }, { 300, -1 },
    { 2, 129, 65, -1 } };
static const int ranks_[] = { 4, 2, 1, 3, 5, 8 }, canon[] = { 0, 64, 0, 24 };
static const int window[] = { 4, 1, 2, 9 };
#define LEN(a) (int)(sizeof(a) / sizeof *(a))
static const int values[AXES] = { 0, 3, 3, 3, 2, LEN(heads), LEN(sizes), LEN(chunk),
    LEN(lens), LEN(ranks_), KCP_FORMS, 6, LEN(canon), 2, 2, 2, 2, 2, 2, 2, LEN(window),
    4, 2,
    3, 4 };

static int spike(const struct kcp_stage *s) { return (s->facts & KCP_SPIKES) != 0; }

/* Returns 1 if the result of stage s depends on `axis`. */
static int matters(const struct kcp_stage *s, int axis)
{
    const int conv = (s->facts & KCP_CONVOLVES) != 0;
    if (axis == WALK || axis == MASKS) return spike(s);
    if (spike(s) && (axis == MODEL || axis == SCALE)) return 0;
    if (s->oracle && (axis == GATE || axis == BETA || axis == NORM ||
        axis == SAVE || axis == REUSE)) return 0;     /* inputs are already activated */
    if (axis == LENS || axis == CUTS || axis == CANON) return 1;
    if (axis == RANKS) return s->ranks;
    if (axis == H0) return 1;
    if (axis == ACT || axis == WINDOW || axis == SHIFT) return conv;
    if (axis == FORM || axis == SAVE || axis == REUSE) return s->ranks && !conv;
    return !conv;
}

/* Returns 1 if the list must contain all pairs of values of axes a and b or, for a ==
 * b, all values of axis a. Some mistakes need a pair: a wrong halo (rows of earlier
 * ranks) changes outputs only if shards are short and convolution windows are wide. */
static int is_required(const struct kcp_stage *s, int full, int a, int b)
{
    int core = 1 << REGIME | 1 << MODEL | 1 << GATE | 1 << CHUNK | 1 << HEADS;
    if (s->ranks) core = 1 << REGIME | 1 << RANKS | 1 << FORM | 1 << HEADS;
    if (!(s->facts & KCP_TAKES_LAYER)) core |= 1 << RANKS | 1 << FORM | 1 << MODEL;
    if (spike(s)) core = 1 << RANKS | 1 << FORM | 1 << MASKS | 1 << HEADS;
    if (s->facts & KCP_CONVOLVES)
        core = 1 << RANKS | 1 << WINDOW | 1 << LENS | 1 << CUTS;
    return a == b || full || ((core >> a & 1) && (core >> b & 1));
}

int models_of(const struct kcp_stage *s, enum kcp_model *out)
{
    const int layer = s->facts & KCP_TAKES_LAYER;
    int n = 0;
    for (int m = 0; m < (s->facts & KCP_SPIKES ? 1 : KCP_MODELS); m++)
        if (kcp_stage_takes(s, m) && (!layer || kcp_models[m].kind == KCP_LAYER))
            out[n++] = m;
    return n;
}

void models_text(const struct kcp_stage *s, const char *between, char *out, size_t n)
{
    enum kcp_model models[KCP_MODELS];
    const int of_stage = models_of(s, models);
    out[0] = 0;
    for (int i = 0; i < of_stage; i++)
        snprintf(out + strlen(out), n - strlen(out), "%s%s", i ? between : "",
                 model_name[models[i]]);
}

static int values_of(const struct kcp_stage *s, int axis)
{
    enum kcp_model models[KCP_MODELS];
    if (axis == CUTS && !s->ranks) return 3;      /* there is one rank */
    return axis == MODEL ? models_of(s, models) : values[axis];
}

#define MOST 10
typedef unsigned char covered[AXES][MOST][AXES][MOST];

static int gain(const struct kcp_stage *s, int full, covered seen, const int *row,
                int mark)
{
    int fresh = 0;
    for (int a = 0; a < AXES; a++)
        for (int b = a; b < AXES; b++) {
            if (!matters(s, a) || !matters(s, b)) continue;
            if (!is_required(s, full, a, b)) continue;
            fresh += !seen[a][row[a]][b][row[b]];
            if (mark) seen[a][row[a]][b][row[b]] = 1;
        }
    return fresh;
}

static void draw_cuts(struct kcase *k, int kind, struct stream *s)
{
    const int R = k->call.R;
    const int64_t T = k->call.T;
    k->uneven = kind == 1 || kind == 2;
    k->spread = kind > 2 ? kind - 3 + KCP_ZIGZAG : KCP_CONTIGUOUS;
    for (int r = 0; r <= R; r++) k->cuts[r] = r == R ? T : r * T / R;
    for (int r = 1; k->uneven && r < R; r++)
        k->cuts[r] = (int64_t)(uniform(s) * (T + 1));
    for (int i = 1; i < R; i++)                                  /* sort the cuts */
        for (int j = i; j > 1 && k->cuts[j - 1] > k->cuts[j]; j--) {
            int64_t x = k->cuts[j];
            k->cuts[j] = k->cuts[j - 1];
            k->cuts[j - 1] = x;
        }
    if (kind == 2 && R > 2) k->cuts[R / 2 + 1] = k->cuts[R / 2]; /* one rank is empty */
}

double case_scale(int K)
{
    double x = 1;
    for (int i = 0; i < 60; i++) x = .5 * (x + 1 / (K * x));
    return x;
}

/* Returns the number of channels of a case of chapter 14: 5, 6, a multiple of 8 (16
 * bytes in bf16), or 1032, which is more than a CUDA block has threads. Long sequences
 * get few channels, because the reference is slow. */
static int channels(const struct kcp_call *c, int id)
{
    static const int odd[] = { 5, 16, 40, 8 }, shifted[] = { 6, 16 };
    if (c->shift) return shifted[id % 2];
    return c->T < 200 && id % 8 == 3 ? 1032 : odd[id % 4];
}

static void case_of(struct kcase *k, int id, const int *row,
                    const struct kcp_stage *stage,
                    uint64_t seed, int R, int wide)
{
    struct kcp_call *c = &k->call;
    memset(k, 0, sizeof *k);
    k->id = id + wide * 1000;
    k->seed = seed * 1000003u + k->id;
    k->regime = row[REGIME];
    /* Cases for tensor-core sizes (`wide`) have several tokens, because the dbeta of a
     * single token is one dot product, which is ill-conditioned in bf16. */
    const int64_t *length = lens[wide && row[LENS] == 5 ? 4 : row[LENS]];
    for (; length[c->N] >= 0; c->N++) k->cu[c->N + 1] = k->cu[c->N] + length[c->N];
    c->T = k->cu[c->N];
    const int *size = sizes[row[SIZES]];
    if (wide) size = wide == 2 ? tall_sizes[id % 4] : wide_sizes[row[SIZES] % 4];
    const int slow = c->T > 400 && size[0] * size[1] > 1024;  /* references take long */
    if (slow && !wide) size = sizes[0];
    /* Chapter 15 multiplies two maps per token, so long cases get small K and V. */
    if (spike(stage) && !wide && c->T > 100 && size[0] * size[1] > 64 * 64)
        size = sizes[5];
    enum kcp_model models[KCP_MODELS];
    models_of(stage, models);
    c->model = models[row[MODEL]];
    c->gate = row[GATE];
    c->beta_form = row[BETA];
    c->l2norm = row[NORM];
    c->H = slow && wide ? 1 : heads[row[HEADS]][0];
    c->HV = slow && wide ? 1 : heads[row[HEADS]][1];
    c->K = size[0];
    c->V = size[1];
    c->C = wide ? 64 : chunk[row[CHUNK]];
    c->KG = kcp_gates_of(c);
    c->R = R > 0 ? R : ranks_[row[RANKS]];
    c->form = row[FORM];
    c->layout = row[LAYOUT];
    if (row[SAVE]) c->save = KCP_SAVE_ALL;
    c->reuse_M = row[REUSE];
    c->scale = row[SCALE] ? 0.3 : 0;
    c->lower_bound = -5;
    c->strip_chunks = id % 3;
    c->act = row[ACT];
    c->Wc = window[row[WINDOW]];
    c->shift = row[SHIFT] == 3;
    c->D = channels(c, id);
    k->with_h0 = row[H0];
    k->with_dht = row[DHT];
    k->mixed_want = row[WANT];
    k->L = canon[row[CANON]];
    k->masks = row[MASKS];
    c->walk = row[WALK];
    k->spike = spike(stage);
    if (c->shift) {
        c->Wc = 2;
        c->act = KCP_ACT_NONE;
    }
    if (c->scale == 0) c->scale = case_scale(c->K);
    struct stream s = stream_of(k->seed, "cuts");
    draw_cuts(k, row[CUTS], &s);
}

struct kcase *cases_make(const struct kcp_stage *s, int full, int wide, uint64_t seed,
                         int ranks, int *n)
{
    struct kcase *list = NULL;
    unsigned char (*seen)[MOST][AXES][MOST] = calloc(1, sizeof(covered));
    struct stream rnd = stream_of(seed, s->name);
    for (*n = 0; seen && *n < 400;) {
        int best[AXES] = { 0 }, best_gain = 0;
        for (int tries = 0; tries < (*n ? 60 : 1); tries++) {   /* case 0 is all 0 */
            int row[AXES] = { 0 };
            for (int a = 0; *n && a < AXES; a++)
                if (matters(s, a)) row[a] = (int)(uniform(&rnd) * values_of(s, a));
            int g = gain(s, full, seen, row, 0);
            if (g > best_gain) {
                best_gain = g;
                memcpy(best, row, sizeof best);
            }
        }
        if (!best_gain) break;
        gain(s, full, seen, best, 1);
        struct kcase *more = realloc(list, (*n + 1) * sizeof *list);
        if (!more) break;
        list = more;
        case_of(&list[*n], *n, best, s, seed, s->ranks ? ranks : 1, wide);
        ++*n;
    }
    free(seen);
    return list;
}

struct kcase *cases_tall(const struct kcp_stage *s, uint64_t seed, int ranks, int *n)
{
    struct kcase *list = malloc(4 * sizeof *list);
    for (*n = 0; list && *n < 4; ++*n) {
        int row[AXES] = { 0 };
        for (int a = 0; a < AXES; a++)
            if (matters(s, a)) row[a] = *n % values_of(s, a);
        row[LENS] = tall_lens[*n];
        row[HEADS] = *n % 2 ? 3 : 1;
        case_of(&list[*n], *n, row, s, seed, s->ranks ? ranks : 1, 2);
    }
    return list;
}

/* Draws random token ranges and owner ranks. A rank may own several ranges or none. */
static int deal(const struct kcase *k, int R, struct kcp_owners *o)
{
    struct stream s = stream_of(k->seed, "owners");
    const int B = 3 * R + 2;
    o->bound = malloc(sizeof *o->bound * (size_t)(B + 1));
    o->owner = malloc(sizeof *o->owner * (size_t)B);
    if (!o->bound || !o->owner) return KCP_NO_MEMORY;
    o->B = B;
    for (int b = 0; b <= B; b++) {
        int i = b;
        const int64_t at = b == B ? k->call.T : (int64_t)(uniform(&s) * k->call.T);
        for (; i > 0 && o->bound[i - 1] > at; i--) o->bound[i] = o->bound[i - 1];
        o->bound[i] = b ? at : 0;
    }
    for (int b = 0; b < B; b++) o->owner[b] = (int)(uniform(&s) * R);
    return KCP_OK;
}

/* Fills *o with the rank that owns each token range, for a case that sets `spread`. */
static int case_owners(const struct kcase *k, int R, struct kcp_owners *o,
                       const char **why)
{
    *o = (struct kcp_owners){ 0 };
    if (k->spread == DEALT) return deal(k, R, o);
    return kcp_owners_make(o, k->spread, k->call.N, k->cu, R, STRIPE, why);
}

struct kcp_plan *case_plan(const struct kcase *k, int R)
{
    struct kcp_plan *p = NULL;
    struct kcp_owners o = { 0 };
    const char *why = "";
    const struct kcp_call *c = &k->call;
    int err = KCP_OK;
    if (k->spread) {
        err = case_owners(k, R, &o, &why);
        if (!err) err = kcp_plan_owned(&p, c->N, k->cu, R, &o, k->L, c->C, c->Wc, &why);
    } else
        err = kcp_plan_make(&p, c->N, k->cu, R, k->uneven && R > 1 ? k->cuts : NULL,
                            k->L, c->C, c->Wc, &why);
    if (err) fprintf(stderr, "judge: cannot make a plan for case %d: %s\n", k->id, why);
    kcp_owners_free(&o);
    return p;
}
