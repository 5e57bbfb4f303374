/* case_text.c -- converts cases to the text that failures print, and text to cases.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "judge.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const gate_name[] = { "raw", "softplus", "bounded" };
const char *const beta_name[] = { "raw", "sigmoid", "sigmoid2" };
static const char *const types[] = { "q", "f64", "f32", "bf16", "f16" };
static const char *const layouts[] = { "kv", "vk" };
static const char *const saves[] = { "none", "all" };            /* none: recompute */
static const char *const acts[] = { "none", "silu" };
static const char *const owners[] = { "contiguous", "zigzag", "striped", "dealt" };
static const char *const walks[] = { "auto", "sequential", "blelloch" };

/* Integers, e.g. "HV=4". case_print omits a word whose number is the usual value. */
#define NUMBER(word, name, low, high, usual) \
    { word, offsetof(struct kcase, name), sizeof ((struct kcase *)0)->name, low, high, \
      usual }
static const struct { const char *word; size_t at, size; int64_t low, high, usual; }
numbers[] = {
    NUMBER("H=", call.H, 1, 1024, 0), NUMBER("HV=", call.HV, 1, 1024, 0),
    NUMBER("K=", call.K, 1, 1024, 0), NUMBER("V=", call.V, 1, 1024, 0),
    NUMBER("C=", call.C, 1, 256, 0), NUMBER("R=", call.R, 1, CASE_RANKS, 0),
    NUMBER("D=", call.D, 1, 65536, 5), NUMBER("Wc=", call.Wc, 1, 64, 4),
    NUMBER("strip=", call.strip_chunks, 0, 64, 0),
    NUMBER("blocks=", call.blocks, 0, 64, 0), NUMBER("part=", call.part, 0, 3, 0),
    NUMBER("masks=", masks, 0, 3, 0), NUMBER("L=", L, 1, INT32_MAX, 0),
    NUMBER("id=", id, 0, 99999, 0),       /* also selects e.g. a CUDA stream */
    NUMBER("seed=", seed, 0, INT64_MAX, -1) };
/* Enums. case_print writes `word` (may be empty) and then the value's name. */
static const struct { const char *word; size_t at; const char *const *name; int n; }
lists[] = {
    { "", offsetof(struct kcase, regime), regime_name, REGIMES },
    { "", offsetof(struct kcase, call.model), model_name, KCP_MODELS },
    { "", offsetof(struct kcase, call.form), kcp_form_names, KCP_FORMS },
    { "gate=", offsetof(struct kcase, call.gate), gate_name, 3 },
    { "beta=", offsetof(struct kcase, call.beta_form), beta_name, 3 },
    { "q=", offsetof(struct kcase, call.q_type), types, 5 },
    { "g=", offsetof(struct kcase, call.g_type), types, 5 },
    { "beta=", offsetof(struct kcase, call.beta_type), types, 5 },
    { "layout=", offsetof(struct kcase, call.layout), layouts, 2 },
    { "save=", offsetof(struct kcase, call.save), saves, 2 },
    { "act=", offsetof(struct kcase, call.act), acts, 2 },
    { "walk=", offsetof(struct kcase, call.walk), walks, 3 },
    { "deep=", offsetof(struct kcase, deep), deep_name, DEEPS },
    { "owners=", offsetof(struct kcase, spread), owners, 4 } };
#define LEN(a) (int)(sizeof(a) / sizeof *(a))

static const struct { const char *word; size_t at; } flags[] = {
#define FLAG(word, name) { word, offsetof(struct kcase, name) }
    FLAG("l2norm", call.l2norm), FLAG("reuse_M", call.reuse_M),
    FLAG("shift", call.shift), FLAG("h0", with_h0), FLAG("dht", with_dht),
    FLAG("mixed", mixed_want), FLAG("spike", spike), FLAG("exact", exact_beta),
    FLAG("null", null_rows), FLAG("plain", plain_rows), FLAG("steady", steady),
    FLAG("big", big),
    FLAG("no_states", no_states), FLAG("x0", with_x0), FLAG("dxt", with_dxt),
    FLAG("again", again) };

static int *int_at(const struct kcase *k, size_t at)
{
    return (int *)(void *)((char *)(uintptr_t)k + at);
}

static int64_t *long_at(const struct kcase *k, size_t at)
{
    return (int64_t *)(void *)int_at(k, at);
}

/* Prints x with nine digits, or with seventeen if nine do not determine x exactly. */
static const char *real_text(double x, char text[40])
{
    snprintf(text, 40, "%.9g", x);
    if (strtod(text, NULL) != x) snprintf(text, 40, "%.17g", x);
    return text;
}

void case_print(const struct kcase *k, char *buf, size_t n)
{
    const struct kcp_call *c = &k->call;
    char real[40];
    int at = 0;
#define ADD(...) at += at < (int)n ? snprintf(buf + at, n - at, __VA_ARGS__) : 0
    for (int i = 0; i < LEN(lists); i++) {
        const int x = *int_at(k, lists[i].at);
        const int always = i < 2 || (lists[i].name == kcp_form_names && c->R > 1);
        if (always || x) ADD("%s%s%s", i ? " " : "", lists[i].word, lists[i].name[x]);
    }
    for (int i = 0; i < LEN(numbers); i++) {
        const int64_t x = numbers[i].size == 8 ? *long_at(k, numbers[i].at)
                                               : *int_at(k, numbers[i].at);
        if (x != numbers[i].usual) ADD(" %s%lld", numbers[i].word, (long long)x);
    }
    if (k->alike != 0) ADD(" alike=%s", real_text(k->alike, real));
    if (c->lower_bound != -5) ADD(" lb=%s", real_text(c->lower_bound, real));
    if (c->scale != case_scale(c->K)) ADD(" scale=%s", real_text(c->scale, real));
    for (int i = 0; i < c->N; i++)
        ADD("%s%lld", i ? "," : " lengths=", (long long)(k->cu[i + 1] - k->cu[i]));
    for (int i = 0; i < LEN(flags); i++)
        if (*int_at(k, flags[i].at)) ADD(" %s", flags[i].word);
    for (int r = 0; k->uneven && r <= c->R; r++)
        ADD("%s%lld", r ? "," : " cuts=", (long long)k->cuts[r]);
#undef ADD
}

static int whole(const char *s, long long low, long long high, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(s, &end, 10);
    return *s && !*end && !errno && *out >= low && *out <= high;
}

static int real(const char *s, double low, double high, double *out)
{
    char *end;
    *out = strtod(s, &end);
    return *s && !*end && *out >= low && *out <= high;
}

/* Reads at most `max` numbers from text like "64,0,17". Returns the count, or -1. */
static int read_numbers(char *s, int64_t *out, int max)
{
    int n = 0;
    for (char *next; s; s = next, n++) {
        long long x;
        next = strchr(s, ',');
        if (next) *next++ = 0;
        if (n == max || !whole(s, 0, INT32_MAX, &x)) return -1;
        out[n] = x;
    }
    return n;
}

/* Words for `cuts=`: all cuts are ends of sequences; then one rank is also empty; or
 * the last cut is inside a sequence, if a sequence on the last rank has two tokens. */
enum { ENDS = 1, ENDS_EMPTY, ENDS_INSIDE };
static const char *const ends_name[] = { "", "ends", "ends_empty", "ends_inside" };

static void cut_at_ends(struct kcase *k, int how)
{
    const struct kcp_call *c = &k->call;
    const int R = c->R;
    for (int r = 0, n = 0; r <= R; r++) {
        while (k->cu[n] < r * c->T / R) n++;
        k->cuts[r] = k->cu[n];
    }
    if (how == ENDS_EMPTY) k->cuts[R - 1] = R > 2 ? k->cuts[R - 2] : c->T;
    for (int n = 0; how == ENDS_INSIDE && n < c->N; n++)
        if (k->cu[n] >= k->cuts[R - 1] && k->cu[n + 1] - k->cu[n] > 1) {
            k->cuts[R - 1] = (k->cu[n] + k->cu[n + 1]) / 2;
            break;
        }
}

/* Sets *ncuts to the number of cuts, or *ends to one of the words above. */
static int read_word(struct kcase *k, char *word, int *ncuts, int *ends)
{
    struct kcp_call *c = &k->call;
    char *value = strchr(word, '=');
    const size_t n = value ? (size_t)(value - word) + 1 : 0;
    long long x;
    value = value ? value + 1 : word;
    for (int i = 0; i < LEN(numbers); i++)
        if (n && strlen(numbers[i].word) == n && !strncmp(word, numbers[i].word, n)) {
            if (!whole(value, numbers[i].low, numbers[i].high, &x)) return 0;
            if (numbers[i].size == 8) *long_at(k, numbers[i].at) = x;
            else *int_at(k, numbers[i].at) = (int)x;
            return 1;
        }
    for (int i = 0; i < LEN(lists); i++)
        for (int j = 0; j < lists[i].n; j++)
            if (strlen(lists[i].word) == n && !strncmp(word, lists[i].word, n) &&
                !strcmp(value, lists[i].name[j])) {
                *int_at(k, lists[i].at) = j;
                return 1;
            }
    for (int i = 0; i < LEN(flags) && !n; i++)
        if (!strcmp(word, flags[i].word)) return *int_at(k, flags[i].at) = 1;
    if (!n) return 0;
    if (!strncmp(word, "lengths=", n)) {
        int64_t length[MOST_SEQUENCES];
        const int count = read_numbers(value, length, MOST_SEQUENCES);
        for (int i = 0; i < count; i++) k->cu[i + 1] = k->cu[i] + length[i];
        if (count < 1) return 0;
        c->N = count;
        c->T = k->cu[count];
        return 1;
    }
    if (!strncmp(word, "cuts=", n)) {
        for (int i = ENDS; i <= ENDS_INSIDE; i++)
            if (!strcmp(value, ends_name[i])) {
                *ends = i;
                return 1;
            }
        *ncuts = read_numbers(value, k->cuts, CASE_RANKS + 1);
        return *ncuts > 1;
    }
    if (!strncmp(word, "alike=", n)) return real(value, 0, 1, &k->alike);
    if (!strncmp(word, "lb=", n)) return real(value, -5, -1e-3, &c->lower_bound);
    if (strncmp(word, "scale=", n)) return 0;
    return real(value, -1e30, 1e30, &c->scale) && c->scale != 0;
}

/* Maximum number of chunks per case, to limit memory: a plan has one row per chunk. */
enum { PIECES = 1 << 20 };

int case_parse(const char *text, struct kcase *k, char *why, size_t n)
{
    struct kcp_call *c = &k->call;
    char copy[1024], *rest = NULL;
    int ncuts = 0, ends = 0;
    memset(k, 0, sizeof *k);
    c->H = c->R = 1;
    c->K = c->V = 16;
    c->C = 64;
    c->D = 5;
    c->Wc = 4;
    c->lower_bound = -5;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        char word[256];
        snprintf(word, sizeof word, "%s", w);
        if (!read_word(k, w, &ncuts, &ends)) {
            snprintf(why, n, "%s", word);
            return 1;
        }
    }
    if (!c->HV) c->HV = c->H;
    if (!c->N) {
        c->N = 1;
        c->T = k->cu[1] = 64;
    }
    if (c->scale == 0) c->scale = case_scale(c->K);
    c->KG = kcp_gates_of(c);
    k->uneven = ncuts > 0;
    if (ncuts && c->R == 1) c->R = ncuts - 1;
    for (int r = 0; !ncuts && r <= c->R; r++) k->cuts[r] = r * c->T / c->R;
    if (ends && c->R > 1 && c->R <= CASE_RANKS) {
        cut_at_ends(k, ends);
        k->uneven = 1;
    }
    if (c->HV % c->H) {
        snprintf(why, n, "HV=%d is no multiple of H=%d", c->HV, c->H);
        return 1;
    }
    if (ncuts && ncuts != c->R + 1) {
        snprintf(why, n, "R=%d: %d numbers in cuts=, expected R + 1", c->R, ncuts);
        return 1;
    }
    const int64_t step = k->L && k->L < c->C ? k->L : c->C;
    if (c->T / step > PIECES) {
        snprintf(why, n, "%lld tokens in chunks of %lld: more than %d chunks",
                 (long long)c->T, (long long)step, PIECES);
        return 1;
    }
    struct kcp_plan *p;
    const char *wrong = "no memory";
    const int64_t *cuts = k->uneven ? k->cuts : NULL;
    if (kcp_plan_make(&p, c->N, k->cu, c->R, cuts, k->L, c->C, c->Wc, &wrong)) {
        snprintf(why, n, "cuts: %s", wrong);
        return 1;
    }
    kcp_plan_free(p);
    return 0;
}

int cases_parse(const char *text, struct kcase *k, int max, char *why, size_t n)
{
    char copy[4096], *rest = NULL;
    int count = 0;
    snprintf(why, n, "%s", text);
    if (strlen(text) >= sizeof copy) return 0;
    strcpy(copy, text);
    for (char *w = strtok_r(copy, ";", &rest); w; w = strtok_r(NULL, ";", &rest))
        if (count == max || case_parse(w, &k[count++], why, n)) return 0;
    return count;
}
