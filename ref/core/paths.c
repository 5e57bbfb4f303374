/* paths.c -- the table of paths read: sets and conditions of a row against a call.
 *
 * Book: chapter 08, "Paths".  Checked by: tests/08_forward/paths.c.  Next: layer.c.
 *
 * A condition is text, so that a listing can show it and a test can parse all of them.
 * It is read anew at every call: some tens of words, microseconds on the host. */
#include "checked.h"
#include "paths.h"
#include "split.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KCP_PATH(name, stage, arch, storage, K, V, C, model, condition, kernel, format,\
                 geometry)                                                            \
    { name, stage, arch, storage, K, V, C, model, condition, kernel, format, geometry,\
      NULL },
#define KCP_BRANCH(name, stage, arch, storage, K, V, C, model, condition, kernel,     \
                   format, geometry, within)                                          \
    { name, stage, arch, storage, K, V, C, model, condition, kernel, format, geometry,\
      within },
#define KCP_ALIAS(stage, old, now)
const struct kcp_path kcp_paths[] = {
#include "paths.def"
};
#undef KCP_PATH
#undef KCP_BRANCH
#undef KCP_ALIAS
const int kcp_npaths = sizeof kcp_paths / sizeof *kcp_paths;

#define KCP_PATH(...)
#define KCP_BRANCH(...)
#define KCP_ALIAS(stage, old, now) { stage, old, now },
static const struct { const char *stage, *old, *now; } aliases[] = {
#include "paths.def"
};
#undef KCP_PATH
#undef KCP_BRANCH
#undef KCP_ALIAS

const char *kcp_path_alias(const char *stage, const char *kernel)
{
    for (size_t i = 0; kernel && i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i].stage, stage) && !strcmp(aliases[i].old, kernel))
            return aliases[i].now;
    return kernel;
}

int kcp_path_format(const char *stage, const char *kernel)
{
    for (int i = 0; i < kcp_npaths; i++)
        if (!strcmp(kcp_paths[i].stage, stage) && !strcmp(kcp_paths[i].kernel, kernel))
            return kcp_paths[i].format;
    return 0;
}

int kcp_path_knows(const char *stage, const char *kernel)
{
    for (int i = 0; i < kcp_npaths; i++)
        if (!kcp_paths[i].within && !strcmp(kcp_paths[i].stage, stage) &&
            !strcmp(kcp_paths[i].kernel, kernel))
            return 1;
    return 0;
}

int kcp_path_word(const struct kcp_path *p, const char *key, char *out, size_t n)
{
    const size_t len = strlen(key);
    for (const char *s = p->geometry; *s; s += strspn(s, " ")) {
        const size_t word = strcspn(s, " ");
        if (word > len && s[len] == '=' && !strncmp(s, key, len)) {
            snprintf(out, n, "%.*s", (int)(word - len - 1), s + len + 1);
            return (int)(word - len - 1);
        }
        s += word;
    }
    return 0;
}

/* ---- the device. Of programs with CUDA alone: cuda/host/device.cu. */
extern int cuda_device_here(struct kcp_device *d) __attribute__((weak));

/* "sm_90a" and "sm_80+": 90 and 80; 0: no such thing. */
static int arch_number(const char *text)
{
    char *end;
    if (strncmp(text, "sm_", 3) || !isdigit((unsigned char)text[3])) return 0;
    const long n = strtol(text + 3, &end, 10);
    const int whole = !*end || !strcmp(end, "a") || !strcmp(end, "+");
    return whole && n > 0 && n < 1000 ? (int)n : 0;
}

/* KCP_ARCH's, 0 where nothing was said; -1: it is none. */
static int arch_forced(void)
{
    const char *text = getenv("KCP_ARCH");
    if (!text || !*text) return 0;
    const int arch = arch_number(text);
    if (!arch)
        kcp_notice("KCP_ARCH: found '%s', expected an architecture, as sm_80", text);
    return arch ? arch : -1;
}

struct kcp_device kcp_device_assumed(void)
{
    struct kcp_device d = { KCP_MACHINE_ARCH, KCP_MACHINE_SMS, KCP_MACHINE_SMEM, 1, 1 };
    const int forced = arch_forced();
    if (forced > 0) d.arch = forced;
    return d;
}

int kcp_device_here(struct kcp_device *d)
{
    const int forced = arch_forced();
    if (forced < 0) return KCP_BAD;
    const int status = cuda_device_here ? cuda_device_here(d) : KCP_NA;
    if (!status && forced) d->arch = forced;
    return status;
}

/* ---- sets: "64 128", "1..256", "any"; "kda gdn" */
static int in_set(const char *set, int64_t x)
{
    if (!strcmp(set, "any")) return 1;
    for (char *end; *set; set = end + strspn(end, " ")) {
        const long long low = strtoll(set, &end, 10);
        long long high = low;
        if (end == set) return -1;
        if (!strncmp(end, "..", 2)) {
            set = end + 2;
            high = strtoll(set, &end, 10);
            if (end == set) return -1;
        }
        if (*end && *end != ' ') return -1;
        if (low <= x && x <= high) return 1;
    }
    return 0;
}

static const char *const models[] = { "kda", "gdn", "dplr", "gdn2", "gla" };
enum { MODELS = sizeof models / sizeof *models };

/* Is the word in the list? */
static int in_words(const char *list, const char *word)
{
    const size_t len = strlen(word);
    for (const char *s = list; *s; s += strspn(s, " ")) {
        const size_t n = strcspn(s, " ");
        if (n == len && !strncmp(s, word, n)) return 1;
        s += n;
    }
    return 0;
}

static int takes_model(const char *set, int model)
{
    if (!strcmp(set, "any")) return 1;
    return model >= 0 && model < MODELS && in_words(set, models[model]);
}

/* ---- facts: the words of a condition */
#define SIZE(name) { #name, offsetof(struct kcp_call, name) }
static const struct { const char *name; size_t at; } sizes[] = {
    SIZE(N), SIZE(NS), SIZE(NC), SIZE(R), SIZE(H), SIZE(HV), SIZE(K), SIZE(V), SIZE(C),
    SIZE(KG), SIZE(D), SIZE(Wc), SIZE(pass), SIZE(form), SIZE(blocks), SIZE(l2norm),
    SIZE(reuse_M), SIZE(shift), SIZE(strip_chunks) };

/* Where the rules of split.h cut this call. */
static void work_out_split(struct kcp_facts *f)
{
    const struct kcp_call *c = f->call;
    const int sms = f->device ? f->device->sms : 1;
    if (f->split_known) return;
    f->split_known = 1;
    f->windows = 1;
    if (!c->plan) return;
    const struct kcp_cut cut = kcp_cut_of(c, sms);
    f->strips = kcp_fused_strip(c, sms);
    f->walks = kcp_fused_walk(c, sms);
    f->chains = kcp_strips(c, c->plan->L ? 0 : f->strips) * c->HV;
    if (!cut.crossing && !f->strips && c->NC) f->windows = kcp_launches(&cut);
}

static int64_t exchange_kept(const struct kcp_call *a)
{
    const struct kcp_exchange x = {
        .form = a->form, .blocks = a->blocks, .reuse_M = 1,
        .HV = a->HV, .K = a->K, .V = a->V, .plan = a->plan, .comm = a->comm,
        .ops = a->ops, .stream = a->stream,
    };
    return (int64_t)kcp_exchange_kept(&x);
}

enum fact { SAVED, SAVE_ALL, LIGHT, ALIGNED, ALL_ALIGNED, CROSSING, ALONE, CANONICAL,
            STRIPS, CHAINS, WINDOWS, WALKS, JOBS, PIECES, SHARE, TURNS, SMS, SMEM, KDA,
            FORMAT, ACTV_BYTES, ACC_BYTES, STATES, EXCHANGE, FACTS };
static const char *const fact_name[FACTS] = {
    "saved", "save_all", "light", "aligned", "all_aligned", "crossing", "alone",
    "canonical", "strips", "chains", "windows", "walks", "jobs", "pieces", "share",
    "turns", "sms", "smem", "kda", "format", "actv", "acc", "states", "exchange" };

static int64_t fact_of(struct kcp_facts *f, enum fact which)
{
    const struct kcp_call *c = f->call;
    const int sms = f->device ? f->device->sms : 1;
    if (which >= STRIPS && which <= WALKS) work_out_split(f);
    switch (which) {
    case SAVED: return f->saved;
    case SAVE_ALL: return c->save == KCP_SAVE_ALL;
    case LIGHT: return c->save == KCP_SAVE_LIGHT;
    case ALIGNED: return f->aligned > 0;
    case ALL_ALIGNED: return f->aligned > 1;
    case CROSSING: return c->plan && c->plan->crossing;
    case ALONE: return c->plan && kcp_alone(c);
    case CANONICAL: return c->plan && c->plan->L > 0;
    case STRIPS: return f->strips;
    case CHAINS: return f->chains;
    case WINDOWS: return f->windows;
    case WALKS: return f->walks != 0;
    case JOBS: return c->plan ? kcp_most_jobs(c) : 0;
    case PIECES: return c->plan ? kcp_pieces(c, sms) : c->NS;
    case SHARE:
        return c->plan ? kcp_prepare_share(kcp_most_prepared(c, sms), c->HV, sms) : 0;
    case TURNS: return kcp_finish_turns(c->NC, c->H, c->K, sms);
    case SMS: return f->device ? f->device->sms : 0;
    case SMEM: return f->device ? f->device->smem : 0;
    case KDA: return c->model == KCP_KDA;
    case FORMAT: return f->format;
    case ACTV_BYTES: return f->actv;
    case ACC_BYTES: return f->acc;
    case STATES: return kcp_saved_states(c);
    case EXCHANGE: return exchange_kept(c);
    default: return 0;
    }
}

/* ---- expressions, by descent: one function a rank of operators */
struct reader {
    const char *at;
    struct kcp_facts *f;
    int live;                          /* 0: read, but not worked out */
    const char *wrong;
};
static int64_t expression(struct reader *r, int rank);

static int64_t word(struct reader *r)
{
    size_t n = 0;
    const char *s = r->at;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    r->at += n;
    if (n == 1 && *s == 'T') return r->live ? r->f->call->T : 1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strlen(sizes[i].name) == n && !strncmp(sizes[i].name, s, n)) {
            int x = 1;
            if (r->live)
                memcpy(&x, (const char *)r->f->call + sizes[i].at, sizeof x);
            return x;
        }
    for (int i = 0; i < FACTS; i++)
        if (strlen(fact_name[i]) == n && !strncmp(fact_name[i], s, n))
            return r->live ? fact_of(r->f, (enum fact)i) : 1;
    r->wrong = s;
    return 0;
}

static int64_t operand(struct reader *r)
{
    char *end;
    int64_t x = 0;
    r->at += strspn(r->at, " ");
    if (*r->at == '!' || *r->at == '-') {
        const char sign = *r->at++;
        x = operand(r);
        return sign == '!' ? !x : -x;
    }
    if (*r->at == '(') {
        r->at++;
        x = expression(r, 0);
        r->at += strspn(r->at, " ");
        if (*r->at == ')') r->at++;
        else if (!r->wrong) r->wrong = r->at;
        return x;
    }
    if (isdigit((unsigned char)*r->at)) {
        x = strtoll(r->at, &end, 10);
        r->at = end;
        return x;
    }
    if (isalpha((unsigned char)*r->at)) return word(r);
    r->wrong = r->at;
    return 0;
}

/* Loosest first; where one is the beginning of another, the longer one stands first. */
static const struct { const char *sign; int rank; } operators[] = {
    { "||", 0 }, { "&&", 1 }, { "==", 2 }, { "!=", 2 }, { "<=", 3 }, { ">=", 3 },
    { "<", 3 }, { ">", 3 }, { "+", 4 }, { "-", 4 }, { "*", 5 }, { "/", 5 },
    { "%", 5 } };
enum { RANKS = 6, OPERATORS = sizeof operators / sizeof *operators };

static int operator_at(const struct reader *r, int rank)
{
    for (int i = 0; i < OPERATORS; i++)
        if (!strncmp(r->at, operators[i].sign, strlen(operators[i].sign)))
            return operators[i].rank == rank ? i : -1;
    return -1;
}

static int64_t apply(struct reader *r, const char *sign, int64_t x, int64_t y)
{
    const int divides = *sign == '/' || *sign == '%';
    int bad = divides && (!y || (y == -1 && x == INT64_MIN));
    int64_t z = 0;
    if (*sign == '+') bad = __builtin_add_overflow(x, y, &z);
    if (*sign == '-') bad = __builtin_sub_overflow(x, y, &z);
    if (*sign == '*') bad = __builtin_mul_overflow(x, y, &z);
    if (bad) {                         /* sizes that nobody has looked at may be any */
        if (r->live && !r->wrong) r->wrong = r->at;
        return 0;
    }
    switch (*sign) {
    case '|': return x || y;
    case '&': return x && y;
    case '=': return x == y;
    case '!': return x != y;
    case '<': return sign[1] ? x <= y : x < y;
    case '>': return sign[1] ? x >= y : x > y;
    case '/': return x / y;
    case '%': return x % y;
    default: return z;
    }
}

static int64_t expression(struct reader *r, int rank)
{
    if (rank == RANKS) return operand(r);
    int64_t x = expression(r, rank + 1);
    for (;;) {
        r->at += strspn(r->at, " ");
        const int i = r->wrong ? -1 : operator_at(r, rank);
        if (i < 0) return x;
        const char *sign = operators[i].sign;
        const int live = r->live;
        if ((*sign == '|' && x) || (*sign == '&' && !x)) r->live = 0;
        r->at += strlen(sign);
        const int64_t y = expression(r, rank + 1);
        r->live = live;
        x = apply(r, sign, x, y);
    }
}

static int evaluate(const char *text, struct kcp_facts *f, int live, int64_t *value,
                    char *why, size_t n)
{
    struct reader r = { text, f, live, NULL };
    *value = expression(&r, 0);
    r.at += strspn(r.at, " ");
    if (!r.wrong && *r.at) r.wrong = r.at;
    if (r.wrong && why)
        snprintf(why, n, "found '%.20s' in '%s', expected a number, a fact or an "
                 "operator",
                 r.wrong, text);
    return r.wrong != NULL;
}

int kcp_expression(const char *text, struct kcp_facts *f, int64_t *value, char *why,
                   size_t n)
{
    return evaluate(text, f, 1, value, why, n);
}

/* ---- a row and a call */

static int off_16(const void *p) { return ((uintptr_t)p & 15) != 0; }

/* 0: a raw row or the block lies off 16 bytes; 1: another array does; 2: none. Raw rows
 * are what both passes read, so that both find the same answer. */
static int aligned_of(const struct kcp_ask *q)
{
    static const char *const raw[] = { "q_raw", "k_raw", "v", "g_raw" };
    const char *of = q->args_of ? q->args_of : q->stage;
    const struct kcp_stage *s = q->args ? kcp_stage_find(of) : NULL;
    int answer = 2;
    for (int i = 0; s && i < s->nfields; i++) {
        const void *p = *(void *const *)((const char *)q->args + s->fields[i].at);
        if (!off_16(p)) continue;
        answer = answer > 1 ? 1 : answer;
        for (int j = 0; j < 4; j++)
            if (!strcmp(s->fields[i].name, raw[j])) answer = 0;
    }
    if (s && !strcmp(of, "08_forward"))
        answer = off_16(((const struct kcp_forward *)q->args)->saved) ? 0 : answer;
    if (s && !strcmp(of, "13_backward"))
        answer = off_16(((const struct kcp_backward *)q->args)->saved) ? 0 : answer;
    return answer;
}

static struct kcp_facts facts_of(const struct kcp_ask *q)
{
    const struct kcp_facts f = { .call = q->call, .device = q->device,
                                 .saved = q->saved, .aligned = aligned_of(q) };
    return f;
}

/* The row's architecture is this device's. */
static int fits_arch(const struct kcp_path *p, const struct kcp_device *d)
{
    const int arch = arch_number(p->arch);
    if (!strcmp(p->arch, "host")) return !d;
    if (!d) return 0;
    return strchr(p->arch, '+') ? d->arch >= arch : d->arch == arch;
}

static int linked(const struct kcp_path *p)
{
    const struct kcp_variant *v;
    return !strcmp(p->kernel, "ref") || kcp_variants(p->stage, p->kernel, &v, 1) > 0;
}

/* All but the architecture, and whether the kernel is here. */
static int takes(const struct kcp_path *p, const struct kcp_ask *q, struct kcp_facts *f)
{
    const struct kcp_call *c = q->call;
    int64_t value = 0;
    if (strcmp(p->stage, q->stage) || p->storage != q->storage) return 0;
    if (q->format && p->format != q->format) return 0;
    if (in_set(p->K, c->K) < 1 || in_set(p->V, c->V) < 1 || in_set(p->C, c->C) < 1)
        return 0;
    if (!takes_model(p->model, (int)c->model)) return 0;
    return !kcp_expression(p->condition, f, &value, NULL, 0) && value;
}

static int first_row(const struct kcp_ask *q)
{
    for (int i = 0; q->kernel && i < kcp_npaths; i++)
        if (!strcmp(kcp_paths[i].stage, q->stage) &&
            !strcmp(kcp_paths[i].kernel, q->kernel))
            return i;
    return 0;
}

const struct kcp_path *kcp_path_find(const struct kcp_ask *q,
                                     const struct kcp_path *after, char *why, size_t n)
{
    struct kcp_facts f = facts_of(q);
    const struct kcp_path *better = NULL;
    char here[120];
    if (why) why[0] = 0;
    if (q->device && !q->device->code) {
        if (why)
            snprintf(why, n, "this program has no code for sm_%d: make ARCH=sm_%d",
                     q->device->arch, q->device->arch);
        return NULL;
    }
    for (int i = after ? (int)(after - kcp_paths) + 1 : first_row(q); i < kcp_npaths;
         i++) {
        const struct kcp_path *p = &kcp_paths[i];
        if (p->within || (q->only && strcmp(p->kernel, q->kernel))) continue;
        if (!q->device != !strcmp(p->arch, "host")) continue;
        if (!takes(p, q, &f)) continue;
        if (fits_arch(p, q->device) && (q->unlinked || linked(p))) {
            if (better && why) {
                kcp_path_here(better, q->device, here, sizeof here);
                snprintf(why, n, "%s: path %s is %s; the generic %s (%s) runs",
                         p->stage, better->name, here, p->name, p->kernel);
            }
            return p;
        }
        better = better ? better : p;
    }
    if (why)
        snprintf(why, n, "%s: no path takes K %d, V %d, C %d%s", q->stage, q->call->K,
                 q->call->V, q->call->C, q->format ? " and this format of block" : "");
    return NULL;
}

int kcp_path_branches(const struct kcp_path *branch, const struct kcp_path *row,
                      const struct kcp_ask *q)
{
    struct kcp_facts f = facts_of(q);
    const char *kernel = row ? row->kernel : q->kernel;
    if (!branch->within || !kernel || strcmp(branch->kernel, kernel)) return 0;
    if (!row && kcp_path_knows(q->stage, kernel)) return 0;
    if (branch->within[0] && (!row || strcmp(branch->within, row->name))) return 0;
    return fits_arch(branch, q->device) && takes(branch, q, &f);
}

const struct kcp_path *kcp_path_of(const char *stage, const char *kernel,
                                   enum kcp_storage storage, const void *args)
{
    struct kcp_device d;
    const struct kcp_ask q = {
        .stage = stage, .storage = storage, .call = args, .args = args, .device = &d,
        .kernel = kernel, .only = 1,
        .saved = strcmp(stage, "08_forward") ||
                 ((const struct kcp_forward *)args)->saved };
    return kcp_device_here(&d) ? NULL : kcp_path_find(&q, NULL, NULL, 0);
}

void kcp_path_here(const struct kcp_path *p, const struct kcp_device *d, char *out,
                   size_t n)
{
    if (!linked(p))
        snprintf(out, n, "not here: %s is not in this program", p->kernel);
    else if (!strcmp(p->arch, "host"))
        snprintf(out, n, "here");
    else if (!d || d->assumed)
        snprintf(out, n, "not here: no GPU");
    else if (!fits_arch(p, d))
        snprintf(out, n, "not here: the GPU is sm_%d", d->arch);
    else if (!d->code)
        snprintf(out, n, "not here: no code for sm_%d", d->arch);
    else
        snprintf(out, n, "here");
}

int kcp_path_parses(const struct kcp_path *p, char *why, size_t n)
{
    const char *const sets[] = { p->K, p->V, p->C };
    struct kcp_facts none = { 0 };
    int64_t value;
    for (int i = 0; i < 3; i++)
        if (in_set(sets[i], -1) < 0) {
            snprintf(why, n, "%s: found '%s', expected numbers, a..b or any", p->name,
                     sets[i]);
            return 1;
        }
    for (const char *s = p->model; strcmp(p->model, "any") && *s; s += strspn(s, " ")) {
        const size_t len = strcspn(s, " ");
        int known = 0;
        for (int i = 0; i < MODELS; i++)
            known |= strlen(models[i]) == len && !strncmp(models[i], s, len);
        if (!known) {
            snprintf(why, n, "%s: found model '%.*s'", p->name, (int)len, s);
            return 1;
        }
        s += len;
    }
    if (strcmp(p->arch, "host") && !arch_number(p->arch)) {
        snprintf(why, n, "%s: found '%s', expected host or sm_NN", p->name, p->arch);
        return 1;
    }
    return evaluate(p->condition, &none, 0, &value, why, n);
}
