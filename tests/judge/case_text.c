/* case_text.c -- converts cases to and from text, which failures print and --case
 * reads.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/judge/self_cases.c.
 * Next: check.c. */
#include "judge.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const gate_name[] = { "raw", "softplus", "bounded" };
const char *const beta_name[] = { "raw", "sigmoid", "sigmoid2" };
static const char *const layouts[] = { "kv", "vk" };
static const char *const saves[] = { "none", "all", "light" };  /* none: recompute */
static const char *const acts[] = { "none", "silu" };
static const char *const owners[] = { "", "zigzag", "striped", "dealt" };
static const char *const walks[] = { "auto", "sequential", "blelloch" };

/* Integer fields of the call, printed as "HV=4" unless they have the usual value. */
static const struct { const char *word; size_t at; int low, high, usual; }
numbers[] = {
    { "H=", offsetof(struct kcp_call, H), 1, 1024, 0 },
    { "HV=", offsetof(struct kcp_call, HV), 1, 1024, 0 },
    { "K=", offsetof(struct kcp_call, K), 1, 1024, 0 },
    { "V=", offsetof(struct kcp_call, V), 1, 1024, 0 },
    { "C=", offsetof(struct kcp_call, C), 1, 256, 0 },
    { "R=", offsetof(struct kcp_call, R), 1, CASE_RANKS, 0 },
    { "D=", offsetof(struct kcp_call, D), 1, 65536, 5 },
    { "Wc=", offsetof(struct kcp_call, Wc), 1, 64, 4 },
    { "strip=", offsetof(struct kcp_call, strip_chunks), 0, 64, 0 },
    { "blocks=", offsetof(struct kcp_call, blocks), 0, 64, 0 },
    { "part=", offsetof(struct kcp_call, part), 0, 3, 0 } };
/* Enum fields of the call, printed as `word` (may be empty) and the value's name. */
static const struct { const char *word; size_t at; const char *const *name; int n; }
lists[] = {
    { "", offsetof(struct kcp_call, model), model_name, 5 },
    { "", offsetof(struct kcp_call, form), kcp_form_names, KCP_FORMS },
    { "gate=", offsetof(struct kcp_call, gate), gate_name, 3 },
    { "beta=", offsetof(struct kcp_call, beta_form), beta_name, 3 },
    { "layout=", offsetof(struct kcp_call, layout), layouts, 2 },
    { "save=", offsetof(struct kcp_call, save), saves, 3 },
    { "act=", offsetof(struct kcp_call, act), acts, 2 },
    { "walk=", offsetof(struct kcp_call, walk), walks, 3 } };
#define LEN(a) (int)(sizeof(a) / sizeof *(a))

static int *int_at(struct kcp_call *c, size_t at) { return (int *)((char *)c + at); }

static const struct { const char *word; size_t at; } flags[] = {
#define IN_CALL(name) { #name, offsetof(struct kcase, call) + \
                               offsetof(struct kcp_call, name) }
#define IN_CASE(word, name) { word, offsetof(struct kcase, name) }
    IN_CALL(l2norm), IN_CALL(reuse_M), IN_CALL(shift), IN_CASE("h0", with_h0),
    IN_CASE("dht", with_dht), IN_CASE("mixed", mixed_want), IN_CASE("spike", spike),
    IN_CASE("exact", exact_beta), IN_CASE("null", null_rows),
    IN_CASE("plain", plain_rows), IN_CASE("big", big), IN_CASE("no_states", no_states),
    IN_CASE("x0", with_x0), IN_CASE("dxt", with_dxt), IN_CASE("again", again) };

/* Prints x with nine digits, or with seventeen if nine digits do not read back as x. */
static const char *real_text(double x, char text[40])
{
    snprintf(text, 40, "%.9g", x);
    if (strtod(text, NULL) != x) snprintf(text, 40, "%.17g", x);
    return text;
}

void case_print(const struct kcase *k, char *buf, size_t n)
{
    struct kcase copy = *k;
    struct kcp_call *c = &copy.call;
    char real[40];
    int at = snprintf(buf, n, "%s", regime_name[k->regime]);
#define ADD(...) at += at < (int)n ? snprintf(buf + at, n - at, __VA_ARGS__) : 0
    for (int i = 0; i < LEN(lists); i++)
        if (!i || (i == 1 && c->R > 1) || *int_at(c, lists[i].at))
            ADD(" %s%s", lists[i].word, lists[i].name[*int_at(c, lists[i].at)]);
    for (int i = 0; i < LEN(numbers); i++)
        if (*int_at(c, numbers[i].at) != numbers[i].usual)
            ADD(" %s%d", numbers[i].word, *int_at(c, numbers[i].at));
    for (int i = 0; i < c->N; i++)
        ADD("%s%lld", i ? "," : " lengths=", (long long)(k->cu[i + 1] - k->cu[i]));
    for (int i = 0; i < LEN(flags); i++)
        if (*(const int *)((const char *)k + flags[i].at)) ADD(" %s", flags[i].word);
    for (int r = 0; k->uneven && r <= c->R; r++)
        ADD("%s%lld", r ? "," : " cuts=", (long long)k->cuts[r]);
    if (k->spread) ADD(" owners=%s", owners[k->spread]);
    if (k->masks) ADD(" masks=%d", k->masks);
    if (k->L) ADD(" L=%lld", (long long)k->L);
    if (k->alike != 0) ADD(" alike=%s", real_text(k->alike, real));
    if (c->lower_bound != -5) ADD(" lb=%s", real_text(c->lower_bound, real));
    if (c->scale != case_scale(c->K)) ADD(" scale=%s", real_text(c->scale, real));
    if (k->id) ADD(" id=%d", k->id);           /* id selects ranges, streams, layers */
    ADD(" seed=%llu", (unsigned long long)k->seed);
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

static int read_word(struct kcase *k, char *word, int *ncuts)
{
    struct kcp_call *c = &k->call;
    char *value = strchr(word, '=');
    const size_t n = value ? (size_t)(value - word) + 1 : 0;
    long long x;
    value = value ? value + 1 : word;
    for (int i = 0; i < LEN(numbers); i++)
        if (n && strlen(numbers[i].word) == n && !strncmp(word, numbers[i].word, n)) {
            if (!whole(value, numbers[i].low, numbers[i].high, &x)) return 0;
            *int_at(c, numbers[i].at) = (int)x;
            return 1;
        }
    for (int i = 0; i < LEN(lists); i++)
        for (int j = 0; j < lists[i].n; j++)
            if (strlen(lists[i].word) == n && !strncmp(word, lists[i].word, n) &&
                !strcmp(value, lists[i].name[j])) {
                *int_at(c, lists[i].at) = j;
                return 1;
            }
    for (int j = 0; j < REGIMES && !n; j++)
        if (!strcmp(word, regime_name[j])) {
            k->regime = j;
            return 1;
        }
    for (int i = 0; i < LEN(flags) && !n; i++)
        if (!strcmp(word, flags[i].word)) {
            *(int *)((char *)k + flags[i].at) = 1;
            return 1;
        }
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
        *ncuts = read_numbers(value, k->cuts, CASE_RANKS + 1);
        return *ncuts > 1;
    }
    for (int j = 1; j < LEN(owners) && !strncmp(word, "owners=", n); j++)
        if (!strcmp(value, owners[j])) {
            k->spread = j;
            return 1;
        }
    const struct { const char *word; long long low, high; } longs[] = {
        { "L=", 1, INT32_MAX }, { "masks=", 0, 3 }, { "id=", 0, 99999 },
        { "seed=", 0, INT64_MAX } };
    for (int i = 0; i < LEN(longs); i++) {
        if (strncmp(word, longs[i].word, n)) continue;
        if (!whole(value, longs[i].low, longs[i].high, &x)) return 0;
        if (i == 0) k->L = x;
        if (i == 1) k->masks = (int)x;
        if (i == 2) k->id = (int)x;
        if (i == 3) k->seed = (uint64_t)x;
        return 1;
    }
    if (!strncmp(word, "alike=", n)) return real(value, 0, 1, &k->alike);
    if (!strncmp(word, "lb=", n)) return real(value, -5, -1e-3, &c->lower_bound);
    if (strncmp(word, "scale=", n)) return 0;
    return real(value, -1e30, 1e30, &c->scale) && c->scale != 0;
}

/* Maximum number of chunks per case, because a plan has tables with a row per chunk. */
enum { PIECES = 1 << 20 };

/* Parses a case from words in any order. Omitted options get default values. Returns 0,
 * or 1 with the error in `why`. */
int case_parse(const char *text, struct kcase *k, char *why, size_t n)
{
    struct kcp_call *c = &k->call;
    char copy[1024], *rest = NULL;
    int ncuts = 0;
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
        if (!read_word(k, w, &ncuts)) {
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
    c->KG = c->model == KCP_GDN ? 1 : c->K;
    k->uneven = ncuts > 0;
    if (ncuts && c->R == 1) c->R = ncuts - 1;
    for (int r = 0; !ncuts && r <= c->R; r++) k->cuts[r] = r * c->T / c->R;
    if (c->HV % c->H) {
        snprintf(why, n, "HV=%d, H=%d", c->HV, c->H);
        return 1;
    }
    if (ncuts && ncuts != c->R + 1) {
        snprintf(why, n, "R=%d and %d cuts", c->R, ncuts);
        return 1;
    }
    const int64_t step = k->L && k->L < c->C ? k->L : c->C;
    if (c->T / step > PIECES) {
        snprintf(why, n, "%lld tokens in pieces of %lld (over %d pieces)",
                 (long long)c->T, (long long)step, PIECES);
        return 1;
    }
    struct kcp_plan *p;
    const char *wrong = "no memory";
    if (kcp_plan_make(&p, c->N, k->cu, c->R, ncuts ? k->cuts : NULL, k->L, c->C, c->Wc,
                      &wrong)) {
        snprintf(why, n, "cuts: %s", wrong);
        return 1;
    }
    kcp_plan_free(p);
    return 0;
}

/* Parses cases separated by semicolons. Returns the number of cases, or 0 with the
 * error in `why`. */
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
