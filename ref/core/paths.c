/* paths.c -- finds the first row of paths.def that supports a call.
 * Book: chapter 08, "Paths".
 *
 * A row's condition is C code, which function `holds` evaluates and kcp-check --paths
 * prints. */
#include "checked.h"
#include "moves.h"
#include "paths.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* paths.def is included three times: for rows, row numbers and conditions. paths.def
 * defines its macros in the same way each time, so C needs no #undef. */
#define TEXT(...) #__VA_ARGS__
#define KCP_PATH(name, stage, arch, storage, K, V, C, model, condition, kernel, format,\
                 geometry)                                                             \
    KCP_BRANCH(name, stage, arch, storage, K, V, C, model, condition, kernel, format,  \
               geometry, NULL)
#define KCP_BRANCH(name, stage, arch, storage, K, V, C, model, condition, kernel,      \
                   format, geometry, within)                                           \
    { #name, stage, arch, storage, K, V, C, model, TEXT(condition), kernel, format,    \
      geometry, within },
const struct kcp_path kcp_paths[] = {
#include "paths.def"
};
#undef KCP_PATH
#undef KCP_BRANCH
const int kcp_npaths = sizeof kcp_paths / sizeof *kcp_paths;

#define KCP_PATH(name, ...) ROW_##name,
#define KCP_BRANCH KCP_PATH
enum row {
#include "paths.def"
};
#undef KCP_PATH

#define KCP_PATH(name, stage, arch, storage, K, V, C, model, condition, ...)           \
    case ROW_##name: return condition;
static int holds(enum row row, const struct kcp_facts *f)
{
    KCP_FACTS(KCP_FACT_LOCAL)
    switch (row) {
#include "paths.def"
    }
    return 0;
}

/* The optional arrays that every path (row) of a stage supports. "+name" in a path's
 * geometry adds one array. A path supports no call with any other optional array. */
static const struct { const char *stage, *options; } takes_options[] = {
    { "08_forward", "A_log dt_bias h0" },
    { "13_backward", "A_log dt_bias h0 dht dA_log ddt_bias" },
    { "14_conv", "weight bias dweight dbias x0 xt dxt dx0" },
    { "15_scan", "drop active h0 o0 dht dot" },
    { "16_family", "a b omega h0 dht da db domega" },
};

/* Earlier names of kernels, for old records (bench/digest.py reads this table). */
static const struct { const char *stage, *old, *now; } aliases[] = {
    { "08_forward", "v3_records", "v3_prepare_scan" },
    { "13_backward", "v4_factors", "v4_scans_finish" },
    { "13_backward", "v3_records", "v2_stages" },
};

const char *kcp_path_alias(const char *stage, const char *kernel)
{
    for (size_t i = 0; kernel && i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i].stage, stage) && !strcmp(aliases[i].old, kernel))
            return aliases[i].now;
    return kernel;
}

const struct kcp_variant *kcp_path_kernel(const struct kcp_path *p)
{
    static const struct kcp_variant *known[sizeof kcp_paths / sizeof *kcp_paths];
    const struct kcp_variant *v = NULL;
    const int is_row = p >= kcp_paths && p < kcp_paths + kcp_npaths;
    if (is_row) v = __atomic_load_n(&known[p - kcp_paths], __ATOMIC_RELAXED);
    if (p && !v && kcp_variants(p->stage, p->kernel, &v, 1) && is_row)
        __atomic_store_n(&known[p - kcp_paths], v, __ATOMIC_RELAXED);
    return v;
}

/* Returns this kernel's first row, or NULL. Rows of paths precede branches. */
static const struct kcp_path *row_of(const char *stage, const char *kernel)
{
    for (const struct kcp_path *p = kcp_paths; p < kcp_paths + kcp_npaths; p++)
        if (!strcmp(p->stage, stage) && !strcmp(p->kernel, kernel)) return p;
    return NULL;
}

int kcp_path_format(const char *stage, const char *kernel)
{
    const struct kcp_path *p = row_of(stage, kernel);
    return p ? p->format : 0;
}

int kcp_path_knows(const char *stage, const char *kernel)
{
    const struct kcp_path *p = row_of(stage, kernel);
    return p && !p->within;
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

/* ---- the device */

/* Returns 90 for "sm_90a", 80 for "sm_80+", 0 for text that is not an architecture. */
static int arch_number(const char *text)
{
    char *end;
    if (strncmp(text, "sm_", 3) || !isdigit((unsigned char)text[3])) return 0;
    const long n = strtol(text + 3, &end, 10);
    const int whole = !*end || !strcmp(end, "a") || !strcmp(end, "+");
    return whole && n > 0 && n < 1000 ? (int)n : 0;
}

/* Returns the architecture in the environment variable KCP_ARCH, 0 if KCP_ARCH is not
 * set, -1 if the value is not an architecture. */
static int arch_forced(void)
{
    const char *text = getenv("KCP_ARCH");
    if (!text || !*text) return 0;
    const int arch = arch_number(text);
    if (!arch)
        kcp_notice("KCP_ARCH: found '%s', expected an architecture, such as sm_80",
                   text);
    return arch ? arch : -1;
}

struct kcp_device kcp_device_assumed(void)
{
    struct kcp_device d = { 90, 132, 232448, 1, 1 };
    const int forced = arch_forced();
    if (forced > 0) d.arch = forced;
    return d;
}

int kcp_device_here(struct kcp_device *d)
{
    const int forced = arch_forced();
    if (forced < 0) return KCP_BAD;
    const int status = kcp_gpu ? kcp_gpu->device_here(d) : KCP_NA;
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
        if (end == set) return 0;
        if (!strncmp(end, "..", 2)) high = strtoll(end + 2, &end, 10);
        if (low <= x && x <= high) return 1;
    }
    return 0;
}

static int takes_model(const char *set, int model)
{
    if (!strcmp(set, "any")) return 1;
    if (model < 0 || model >= KCP_MODELS) return 0;
    return has_word(set, kcp_models[model].name, " ");
}

/* ---- facts */

int kcp_plan_fits(const struct kcp_call *c)
{
    if (!c->plan || c->HV < 1 || c->V < 1 || c->K < 1 || c->C < 1) return 0;
    return c->r >= 0 && c->r < c->plan->R && c->NS == c->plan->ctx[c->r].NS;
}

static int64_t longest_chunks(const struct kcp_context *x, int C)
{
    int64_t most = 0;
    for (int s = 0; s < x->NS; s++) {
        const int64_t chunks = ((int64_t)x->cu[s + 1] - x->cu[s] + C - 1) / C;
        if (chunks > most) most = chunks;
    }
    return most;
}

struct kcp_facts kcp_facts_of(const struct kcp_call *c, const struct kcp_device *d)
{
    struct kcp_facts f = {
        .T = c->T, .N = c->N, .NS = c->NS, .NC = c->NC, .R = c->R, .H = c->H,
        .HV = c->HV, .K = c->K, .V = c->V, .C = c->C, .KG = c->KG, .D = c->D,
        .Wc = c->Wc, .blocks = c->blocks, .l2norm = c->l2norm, .reuse_M = c->reuse_M,
        .shift = c->shift, .strip_chunks = c->strip_chunks,
        .save_all = kcp_keeps_states(c),
        .sms = d ? d->sms : 0, .smem = d ? d->smem : 0, .kda = c->model == KCP_KDA,
        .bounded = c->gate == KCP_GATE_BOUNDED && c->lower_bound >= -5,
        .longest = c->NC,
        .states = kcp_saved_states(c) };
    struct kcp_launch x = { 0 };
    const struct kcp_device one = { .sms = 1 };
    if (kcp_gpu_launch) x = kcp_gpu_launch(c, d && d->sms > 0 ? d : &one);
    f.entire = x.entire; f.strips = x.strips; f.cut = x.cut; f.walk = x.walk;
    f.windows = x.windows; f.columns = x.columns; f.block_chunks = x.block_chunks;
    f.chains = x.chains; f.stage_strips = x.stage_strips; f.split = x.split;
    f.back_columns = x.back_columns; f.finish_pairs = x.finish_pairs;
    if (!kcp_plan_fits(c)) return f;
    f.crossing = c->plan->crossing;
    f.canonical = c->plan->L > 0;
    f.longest = longest_chunks(&c->plan->ctx[c->r], c->C);
    return f;
}

/* ---- a row and a call */

static int off_16(const void *p) { return ((uintptr_t)p & 15) != 0; }

/* Returns 2 if all arrays are aligned to 16 bytes, 1 if the raw inputs and the saved
 * block are aligned but another array is not, otherwise 0. Forward and backward read
 * the same raw inputs, so the result is 0 for both passes or for neither. */
static int aligned_of(const struct kcp_query *q)
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
    if (s && kcp_stage_is(of, KCP_SAVES))
        answer = off_16(((const struct kcp_forward *)q->args)->saved) ? 0 : answer;
    if (s && kcp_stage_is(of, KCP_LOADS))
        answer = off_16(((const struct kcp_backward *)q->args)->saved) ? 0 : answer;
    return answer;
}

static struct kcp_facts query_facts(const struct kcp_query *q)
{
    struct kcp_facts f = kcp_facts_of(q->call, q->device);
    f.saved = q->saved;
    const enum kcp_type q_type = kcp_type_of(q->call, KCP_ACTV, q->storage);
    const enum kcp_type g = kcp_type_of(q->call, KCP_G, q->storage);
    const enum kcp_type beta = kcp_type_of(q->call, KCP_BETA, q->storage);
    f.g_as_q = g == q_type;
    f.g_f32 = g == KCP_TYPE_F32;
    f.g_bf16 = g == KCP_TYPE_BF16;
    f.g_f16 = g == KCP_TYPE_F16;
    f.beta_as_q = beta == q_type;
    f.beta_f32 = beta == KCP_TYPE_F32;
    f.beta_bf16 = beta == KCP_TYPE_BF16;
    f.beta_f16 = beta == KCP_TYPE_F16;
    const int aligned = aligned_of(q);
    f.aligned = aligned > 0;
    f.all_aligned = aligned > 1;
    return f;
}

/* Returns 1 if the row supports every optional array that this call gives. The
 * reference supports all arrays. */
static int takes_inputs(const struct kcp_path *p, const struct kcp_query *q)
{
    const char *all = NULL;
    char more[24];
    for (size_t i = 0; i < sizeof takes_options / sizeof *takes_options; i++)
        if (!strcmp(takes_options[i].stage, p->stage)) all = takes_options[i].options;
    const struct kcp_stage *s = q->args && all ? kcp_stage_find(p->stage) : NULL;
    if (!s || !strcmp(p->kernel, "ref")) return 1;
    if (q->args_of && strcmp(q->args_of, p->stage)) return 1;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *field = &s->fields[i];
        const void *given = *(void *const *)((const char *)q->args + field->at);
        if (field->when != KCP_MAYBE || !given) continue;
        if (has_word(all, field->name, " ")) continue;
        snprintf(more, sizeof more, "+%s", field->name);
        if (!has_word(p->geometry, more, " ")) return 0;
    }
    return 1;
}

/* Returns 1 if the row's architecture fits this device. */
static int fits_arch(const struct kcp_path *p, const struct kcp_device *d)
{
    const int arch = arch_number(p->arch);
    if (!strcmp(p->arch, "host")) return !d;
    if (!d) return 0;
    return strchr(p->arch, '+') ? d->arch >= arch : d->arch == arch;
}

static int linked(const struct kcp_path *p)
{
    return !strcmp(p->kernel, "ref") || kcp_path_kernel(p);
}

/* Returns 1 if the row supports the type of q: the storage's type, or the type in the
 * row's geometry, e.g. "q=f16". */
static int takes_q(const struct kcp_path *p, const struct kcp_query *q)
{
    const enum kcp_type type = kcp_type_of(q->call, KCP_ACTV, q->storage);
    char word[8];
    if (kcp_path_word(p, "q", word, sizeof word))
        return !strcmp(word, kcp_type_name(type));
    return type == kcp_type_of_storage(q->storage);
}

/* Returns 1 if the row supports the call. This function does not check the
 * architecture, nor whether the kernel is linked. */
static int takes(const struct kcp_path *p, const struct kcp_query *q,
                 const struct kcp_facts *f)
{
    const struct kcp_call *c = q->call;
    if (strcmp(p->stage, q->stage) || p->storage != q->storage) return 0;
    if (q->format && p->format != q->format) return 0;
    if (!in_set(p->K, c->K) || !in_set(p->V, c->V) || !in_set(p->C, c->C)) return 0;
    if (!takes_model(p->model, (int)c->model) || !takes_q(p, q)) return 0;
    return holds((enum row)(p - kcp_paths), f) && takes_inputs(p, q);
}

/* Writes to `why` that no row supports the call. If a row would support the call with g
 * and beta of q's type, names this row. */
static void none_takes(const struct kcp_query *q, char *why, size_t n)
{
    const struct kcp_call *c = q->call;
    struct kcp_call alike = *c;
    struct kcp_query other = *q;
    const enum kcp_type q_type = kcp_type_of(c, KCP_ACTV, q->storage);
    const enum kcp_type g = kcp_type_of(c, KCP_G, q->storage);
    const enum kcp_type beta = kcp_type_of(c, KCP_BETA, q->storage);
    int at = snprintf(why, n, "%s: no path takes K = %d, V = %d, C = %d%s", q->stage,
                      c->K, c->V, c->C,
                      q->format ? " and a saved block of this format" : "");
    const int own = q_type == kcp_type_of_storage(q->storage);
    if ((own && g == q_type && beta == q_type) || at < 0 || (size_t)at >= n) return;
    at += snprintf(why + at, n - (size_t)at, ", with q of type %s, g %s, beta %s",
                   kcp_type_name(q_type), kcp_type_name(g), kcp_type_name(beta));
    alike.g_type = alike.beta_type = KCP_AS_Q;
    if (!own) return;
    other.call = &alike;
    const struct kcp_path *p = kcp_path_find(&other, NULL, NULL, 0);
    if (p && (size_t)at < n)
        snprintf(why + at, n - (size_t)at, "; path %s takes g and beta of q's type",
                 p->name);
}

/* Returns the first row that supports the call, and sets *best to 0 if a better row
 * cannot run here, which `why` names. */
static const struct kcp_path *search_rows(const struct kcp_query *q,
                                          const struct kcp_facts *f,
                                          const struct kcp_path *after, char *why,
                                          size_t n, int *best)
{
    const struct kcp_path *better = NULL;
    char here[120];
    if (q->device && !q->device->code) {
        if (why)
            snprintf(why, n, "this program has no code for sm_%d: build it with "
                     "make ARCH=sm_%d",
                     q->device->arch, q->device->arch);
        return NULL;
    }
    const struct kcp_path *p = q->kernel ? row_of(q->stage, q->kernel) : NULL;
    if (after) p = after + 1;
    for (p = p ? p : kcp_paths; p < kcp_paths + kcp_npaths; p++) {
        if (p->within || (q->only && strcmp(p->kernel, q->kernel))) continue;
        if (!q->device != !strcmp(p->arch, "host")) continue;
        if (!takes(p, q, f)) continue;
        if (fits_arch(p, q->device) && (q->unlinked || linked(p))) {
            if (better && why) {
                kcp_path_here(better, q->device, here, sizeof here);
                snprintf(why, n, "%s: path %s is %s; path %s (%s) runs instead",
                         p->stage, better->name, here, p->name, p->kernel);
            }
            *best = !better;
            return p;
        }
        better = better ? better : p;
    }
    if (why) none_takes(q, why, n);
    return NULL;
}

/* Everything that a search depends on. There are no gaps between members. */
struct search {
    char stage[24], kernel[40];
    struct kcp_facts facts;
    int64_t numbers[15];
    uint64_t given;                /* bits of the optional arrays */
};

/* Returns 0 if `x` cannot represent the query. */
static int search_of(struct search *x, const struct kcp_query *q,
                     const struct kcp_facts *f, const struct kcp_path *after)
{
    const struct kcp_device *d = q->device;
    const char *of = q->args_of ? q->args_of : q->stage;
    const struct kcp_stage *s = q->args ? kcp_stage_find(of) : NULL;
    const int own = !q->args_of || !strcmp(q->args_of, q->stage);
    *x = (struct search){ .facts = *f, .numbers = {
        q->storage, kcp_type_of(q->call, KCP_ACTV, q->storage), q->only, q->saved,
        q->format, q->unlinked, own, q->call->model, d != NULL, d ? d->arch : 0,
        d ? d->sms : 0, d ? d->smem : 0, d ? d->code : 0, d ? d->assumed : 0,
        after ? after - kcp_paths + 1 : 0 } };
    const char *kernel = q->kernel ? q->kernel : "";
    if (strlen(q->stage) >= sizeof x->stage || strlen(kernel) >= sizeof x->kernel ||
        (s && s->nfields > 64))
        return 0;
    strcpy(x->stage, q->stage);
    strcpy(x->kernel, kernel);
    for (int i = 0; s && i < s->nfields; i++)
        if (s->fields[i].when == KCP_MAYBE)
            x->given |= (uint64_t)(*(void *const *)((const char *)q->args +
                                                    s->fields[i].at) != NULL) << i;
    return 1;
}

/* Each thread caches its last searches, because a call of a layer makes up to six.
 * A search that writes `why` is not cached. */
enum { SEARCHES = 8 };

const struct kcp_path *kcp_path_find(const struct kcp_query *q,
                                     const struct kcp_path *after, char *why, size_t n)
{
    static _Thread_local struct search last[SEARCHES];
    static _Thread_local const struct kcp_path *found[SEARCHES];
    static _Thread_local int next;
    const struct kcp_facts f = query_facts(q);
    struct search x;
    int best = 0;
    const int fits = search_of(&x, q, &f, after);
    if (why) why[0] = 0;
    for (int i = 0; fits && i < SEARCHES; i++)
        if (found[i] && !memcmp(&last[i], &x, sizeof x)) return found[i];
    const struct kcp_path *p = search_rows(q, &f, after, why, n, &best);
    if (p && best && fits) {
        last[next] = x;
        found[next] = p;
        next = (next + 1) % SEARCHES;
    }
    return p;
}

int kcp_path_branches(const struct kcp_path *branch, const struct kcp_path *row,
                      const struct kcp_query *q)
{
    const struct kcp_facts f = query_facts(q);
    const char *kernel = row ? row->kernel : q->kernel;
    if (!branch->within || !kernel || strcmp(branch->kernel, kernel)) return 0;
    if (!row && kcp_path_knows(q->stage, kernel)) return 0;
    if (branch->within[0] && (!row || strcmp(branch->within, row->name))) return 0;
    return fits_arch(branch, q->device) && takes(branch, q, &f);
}

const char *kcp_path_launch(const struct kcp_path *row, const struct kcp_query *q)
{
    for (int i = 0; i < kcp_npaths && !kcp_path_is_plain(row); i++) {
        const struct kcp_path *p = &kcp_paths[i];
        if (p->within && !strcmp(p->within, row->name) && kcp_path_branches(p, row, q))
            return p->name;
    }
    return row->name;
}

const struct kcp_path *kcp_path_of(const char *stage, const char *kernel,
                                   enum kcp_storage storage, const void *args)
{
    struct kcp_device d;
    const struct kcp_query q = {
        .stage = stage, .storage = storage, .call = args, .args = args, .device = &d,
        .kernel = kernel, .only = 1,
        .saved = !kcp_stage_is(stage, KCP_SAVES) ||
                 ((const struct kcp_forward *)args)->saved };
    return kcp_device_here(&d) ? NULL : kcp_path_find(&q, NULL, NULL, 0);
}

void kcp_path_here(const struct kcp_path *p, const struct kcp_device *d, char *out,
                   size_t n)
{
    if (!linked(p)) snprintf(out, n, "not here: %s is not in this program", p->kernel);
    else if (!strcmp(p->arch, "host")) snprintf(out, n, "here");
    else if (!d || d->assumed) snprintf(out, n, "not here: no GPU");
    else if (!fits_arch(p, d)) snprintf(out, n, "not here: the GPU is sm_%d", d->arch);
    else if (!d->code) snprintf(out, n, "not here: no code for sm_%d", d->arch);
    else snprintf(out, n, "here");
}
