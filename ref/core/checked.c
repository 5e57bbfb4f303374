/* checked.c -- checks the arguments of a call before a stage uses them.
 * Book: chapter 20.
 *
 * A stage's table of fields (stages/NN.def) lists the arrays with shapes, passes and
 * models, so one function checks the calls of all stages. Rules that a table cannot
 * express, e.g. that HV is a multiple of H, are code in this file. */
#include "checked.h"
#include "moves.h"
#include "paths.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages */
static _Thread_local char why[240];
static _Thread_local int inside;
static void (*_Atomic notices)(const char *line);

const char *kcp_why(void) { return why; }

int kcp_refuse(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return status;
}

const char *kcp_why_or(const char *name) { return why[0] ? why : name; }

void kcp_notices(void (*to)(const char *line)) { notices = to; }

void kcp_notice(const char *format, ...)
{
    void (*const to)(const char *) = notices;
    char line[320];
    va_list args;
    if (!to) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    to(line);
}

/* ---- sizes */
/* Returns 1 if the shape of some field of the stage contains the size `name`. */
static int has_letter(const struct kcp_stage *s, const char *name)
{
    for (int i = 0; i < s->nfields; i++)
        if (strstr(s->fields[i].shape, name) &&      /* faster than has_word */
            has_word(s->fields[i].shape, name, " +"))
            return 1;
    return 0;
}

static const struct kcp_field *field_of(const struct kcp_stage *s, const char *name)
{
    for (int i = 0; i < s->nfields; i++)
        if (!strcmp(s->fields[i].name, name)) return &s->fields[i];
    return NULL;
}

/* Returns 1 if call c of stage s uses the size `name`. */
static int size_counts(const struct kcp_stage *s, const struct kcp_call *c,
                       const char *name)
{
    if (!strcmp(name, "C")) return has_letter(s, "C") || field_of(s, "sc");
    if (!strcmp(name, "KG"))
        return has_letter(s, "KG") || !(s->facts & KCP_TAKES_LAYER);
    if (!strcmp(name, "Wc") && c->shift) return 0;
    return has_letter(s, name);
}

/* Checks the sizes that the stage uses (MEMBER_SIZE) or all options (MEMBER_OPTION). */
static int check_range(const struct kcp_stage *s, const struct kcp_call *c,
                       enum kcp_member_kind kind)
{
    for (int i = 0; i < kcp_nmembers; i++) {
        const struct kcp_member *x = &kcp_members[i];
        const int found = *(const int *)((const char *)c + x->at);
        if (x->kind != kind || (found >= x->least && found <= x->most)) continue;
        if (kind == MEMBER_OPTION || size_counts(s, c, x->name))
            return kcp_refuse(KCP_BAD, "%s: %s: found %d, expected %d to %d", s->name,
                              x->name, found, x->least, x->most);
    }
    return KCP_OK;
}

static int check_sizes(const struct kcp_stage *s, const struct kcp_call *c)
{
    if (c->T < 0 || (field_of(s, "cu") && c->T > INT_MAX))
        return kcp_refuse(KCP_BAD, "%s: T: found %lld, expected 0 to %lld", s->name,
                          (long long)c->T,
                          field_of(s, "cu") ? (long long)INT_MAX : LLONG_MAX);
    const int refused = check_range(s, c, MEMBER_SIZE);
    if (refused) return refused;
    if (c->H > 0 && c->HV % c->H && has_letter(s, "H") && has_letter(s, "HV"))
        return kcp_refuse(KCP_BAD, "%s: HV: found %d, expected a multiple of H, which "
                          "is %d", s->name, c->HV, c->H);
    if (c->KG != kcp_gates_of(c) && size_counts(s, c, "KG"))
        return kcp_refuse(KCP_BAD, "%s: KG: found %d, expected %d", s->name, c->KG,
                          kcp_gates_of(c));
    return KCP_OK;
}

/* ---- options */
/* Writes the names of the models that the stage supports to `out`: "kda, gdn". */
static void list_models(const struct kcp_stage *s, char *out, size_t n)
{
    out[0] = 0;
    for (int m = 0; m < KCP_MODELS; m++) {
        const size_t used = strlen(out);
        if (!kcp_stage_takes(s, m)) continue;
        snprintf(out + used, n - used, "%s%s", used ? ", " : "", kcp_models[m].name);
    }
}

static int check_options(const struct kcp_stage *s, const struct kcp_call *c)
{
    char models[120];
    const int refused = check_range(s, c, MEMBER_OPTION);
    if (refused) return refused;
    list_models(s, models, sizeof models);
    if (!kcp_stage_takes(s, c->model))
        return kcp_refuse(KCP_BAD, "%s: model: found %s, expected one of %s", s->name,
                          kcp_models[c->model].name, models);
    if (s->facts & KCP_TWO_PARTS && !(c->part & (KCP_LOCAL | KCP_REVERSE)))
        return kcp_refuse(KCP_BAD, "%s: part: found %d, expected KCP_LOCAL, "
                          "KCP_REVERSE or both", s->name, c->part);
    if (!isfinite(c->scale))
        return kcp_refuse(KCP_BAD, "%s: scale: found %g, expected a number", s->name,
                          c->scale);
    const int bounded = field_of(s, "g_raw") && c->gate == KCP_GATE_BOUNDED;
    if (bounded && !(c->lower_bound >= -5 && c->lower_bound < 0))
        return kcp_refuse(KCP_BAD, "%s: lower_bound: found %g, expected -5 or more, "
                          "and less than 0", s->name, c->lower_bound);
    return KCP_OK;
}

/* ---- plan and communicator of calls with ranks */
static int check_plan(const struct kcp_stage *s, const struct kcp_call *c,
                      int without_grid)
{
    const struct kcp_plan *p = c->plan;
    if (!p) return kcp_refuse(KCP_BAD, "%s: the call has no plan", s->name);
    if (c->r < 0 || c->r >= p->R)
        return kcp_refuse(KCP_BAD, "%s: r: found %d, expected a rank of the plan, 0 to "
                          "%d", s->name, c->r, p->R - 1);
    const struct kcp_context *x = &p->ctx[c->r];
    const struct { const char *name; int64_t found, expected; } same[] = {
        { "R", c->R, p->R }, { "N", c->N, p->N }, { "T", c->T, x->end - x->begin },
        { "C", c->C, p->C }, { "NS", c->NS, x->NS }, { "NC", c->NC, x->NC },
    };
    for (size_t i = 0; i < (without_grid ? 3 : sizeof same / sizeof *same); i++)
        if (same[i].found != same[i].expected)
            return kcp_refuse(KCP_BAD, "%s: %s differs from the plan: found %lld, "
                              "expected %lld", s->name, same[i].name,
                              (long long)same[i].found, (long long)same[i].expected);
    return KCP_OK;
}

static int check_comm(const struct kcp_stage *s, const struct kcp_call *c)
{
    const int R = c->plan->R;
    if (R == 1 || (c->comm && c->comm->R == R && c->comm->r == c->r)) return KCP_OK;
    return kcp_refuse(KCP_BAD, "%s: comm: expected a communicator of %d ranks, as in "
                      "the plan, with r = %d", s->name, R, c->r);
}

int kcp_check_sizes(const char *stage, const struct kcp_call *c)
{
    const struct kcp_stage *s = kcp_stage_find(stage);
    if (!s || !c) return kcp_refuse(KCP_BAD, "%s: there are no arguments", stage);
    int refused = check_options(s, c);
    if (!refused) refused = check_sizes(s, c);
    return refused || !s->ranks ? refused : check_plan(s, c, 0);
}

/* ---- arrays */
/* Returns 1 if this call requires the array f although the table marks f as optional:
 * the weights of stage 14, unless `shift` is set. */
static int is_needed_here(const struct kcp_stage *s, const struct kcp_field *f,
                          const struct kcp_call *c)
{
    return s->facts & KCP_CONVOLVES && !strcmp(f->name, "weight") && !c->shift;
}

/* Returns 1 if this rank owns a row of h0 or ht. Then the rank needs the arrays with
 * one row per sequence, even if the rank has no tokens. */
static int owns_a_sequence(const struct kcp_call *c)
{
    const struct kcp_plan *p = c->plan;
    for (int n = 0; p && n < p->N; n++)
        if (p->h0_rank[n] == c->r || p->ht_rank[n] == c->r) return 1;
    return 0;
}

static int check_arrays(const struct kcp_stage *s, enum kcp_where where,
                        const void *args, const char *may_lack)
{
    const struct kcp_call *c = args;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        const void *p = *(void *const *)((const char *)args + f->at);
        const int64_t n = field_used(f, c) ? kcp_field_numbers(c, f) : 0;
        if (n < 0)
            return kcp_refuse(KCP_BAD, "%s: %s: an array of shape [%s] would be too "
                              "large", s->name, f->name, f->shape);
        const size_t width = f->store == KCP_I32 ? 4 : 8;
        if (p && n && where == KCP_HOST && (uintptr_t)p % width)
            return kcp_refuse(KCP_BAD, "%s: %s: its address is not a multiple of %zu "
                              "bytes", s->name, f->name, width);
        const int by_sequence = s->ranks && f->shape[0] == 'N' && f->shape[1] == ' ';
        if (p || !n || (f->when == KCP_MAYBE && !is_needed_here(s, f, c)) ||
            (s->ranks && c->T == 0 && !(by_sequence && owns_a_sequence(c))) ||
            has_word(may_lack, f->name, " "))
            continue;
        return kcp_refuse(KCP_BAD, "%s: %s: it is missing", s->name, f->name);
    }
    return KCP_OK;
}

/* ---- values of index arrays on the host */
static int wrong_index(const struct kcp_stage *s, const char *name, int64_t at,
                       int64_t found, int64_t expected)
{
    return kcp_refuse(KCP_BAD, "%s: %s[%lld]: found %lld, expected %lld", s->name, name,
                      (long long)at, (long long)found, (long long)expected);
}

/* Checks that the integers x [n+1], of 4 or 8 bytes, start at 0, do not decrease and
 * end at `last`. */
static int check_bounds(const struct kcp_stage *s, const char *name, const void *x,
                        int width, int64_t n, int64_t last)
{
    int64_t before = 0;
    for (int64_t i = 0; i <= n; i++) {
        int64_t v = 0;
        if (width == 4) v = ((const int32_t *)x)[i];
        else v = ((const int64_t *)x)[i];
        if (i == 0 && v != 0) return wrong_index(s, name, 0, v, 0);
        if (v < before)
            return kcp_refuse(KCP_BAD, "%s: %s[%lld]: less than the previous element",
                              s->name, name, (long long)i);
        if (i == n && v != last) return wrong_index(s, name, n, v, last);
        before = v;
    }
    return KCP_OK;
}

static const void *array_of(const struct kcp_stage *s, const void *args,
                            const char *name)
{
    const struct kcp_field *f = field_of(s, name);
    return f ? *(void *const *)((const char *)args + f->at) : NULL;
}

/* Checks that cn [s] is segment s's first chunk and sc [c] is chunk c's segment. */
static int check_grid(const struct kcp_stage *s, const void *args)
{
    const struct kcp_call *c = args;
    const int32_t *cu = array_of(s, args, "cu"), *cn = array_of(s, args, "cn");
    const int32_t *sc = array_of(s, args, "sc");
    if (!cu || !cn || (!sc && c->NC) || (s->ranks && !c->T)) return KCP_OK;
    const int refused = check_bounds(s, "cu", cu, 4, c->NS, c->T);
    if (refused) return refused;
    if (cn[0] != 0) return wrong_index(s, "cn", 0, cn[0], 0);
    for (int j = 0; j < c->NS; j++) {
        const int64_t len = (int64_t)cu[j + 1] - cu[j];
        const int64_t end = cn[j] + (len + c->C - 1) / c->C;
        if (cn[j + 1] != end) return wrong_index(s, "cn", j + 1, cn[j + 1], end);
        if (end > c->NC) return wrong_index(s, "cn", j + 1, end, c->NC);
        for (int64_t k = cn[j]; k < end; k++)
            if (sc[k] != j) return wrong_index(s, "sc", k, sc[k], j);
    }
    if (cn[c->NS] != c->NC) return wrong_index(s, "cn", c->NS, cn[c->NS], c->NC);
    if (s->ranks)
        for (int j = 0; j <= c->NS; j++) {
            const int expected = c->plan->ctx[c->r].cu[j];
            if (cu[j] != expected) return wrong_index(s, "cu", j, cu[j], expected);
        }
    return KCP_OK;
}

static int check_indices(const struct kcp_stage *s, const void *args)
{
    const struct kcp_call *c = args;
    const int64_t *cu_seqlens = array_of(s, args, "cu_seqlens");
    const int32_t *want = array_of(s, args, "want");
    const int32_t *range = array_of(s, args, "range");
    int refused = check_grid(s, args);
    if (!refused && cu_seqlens)
        refused = check_bounds(s, "cu_seqlens", cu_seqlens, 8, c->N, c->T);
    if (refused) return refused;
    for (int j = 0; want && j < c->NS; j++)
        if (want[j] & ~(KCP_WANT_H | KCP_WANT_M))
            return kcp_refuse(KCP_BAD, "%s: want[%d]: found %d, expected 0 to 3",
                              s->name, j, want[j]);
    if (range && range[0] < range[1] && (range[0] < 0 || range[1] > c->R))
        return kcp_refuse(KCP_BAD, "%s: range: found %d to %d, expected 0 to R, which "
                          "is %d", s->name, range[0], range[1], c->R);
    return KCP_OK;
}

/* ---- the check of a call */
static int check(const struct kcp_stage *s, enum kcp_where where, const void *args,
                 const char *may_lack)
{
    const struct kcp_call *c = args;
    int refused = check_options(s, c);
    if (!refused) refused = check_sizes(s, c);
    if (!refused && s->ranks) refused = check_plan(s, c, has_word(may_lack, "cu", " "));
    if (!refused && s->ranks) refused = check_comm(s, c);
    if (!refused && s->facts & KCP_LOADS && !((const struct kcp_backward *)args)->saved)
        refused = kcp_refuse(KCP_BAD, "%s: saved: it is missing", s->name);
    if (!refused) refused = check_arrays(s, where, args, may_lack);
    if (!refused && where == KCP_HOST && !has_word(may_lack, "cu", " "))
        refused = check_indices(s, args);
    return refused;
}

int kcp_check_call(const char *stage, enum kcp_where where, const void *args)
{
    const struct kcp_stage *s = stage ? kcp_stage_find(stage) : NULL;
    if (!s)
        return kcp_refuse(KCP_BAD, "'%.40s': there is no stage of this name",
                          stage ? stage : "");
    if (!args) return kcp_refuse(KCP_BAD, "%s: there are no arguments", s->name);
    return check(s, where, args, NULL);
}

void kcp_checked_enter(void) { inside++; }
void kcp_checked_leave(void) { inside--; }

int kcp_begin(const char *stage, enum kcp_where where, const void *args,
              const char *may_lack)
{
    const struct kcp_stage *s = kcp_stage_find(stage);
    const struct kcp_call *c = args;
    if (inside) return KCP_OK;
    if (!c) return kcp_refuse(KCP_BAD, "%s: there are no arguments", stage);
    why[0] = 0;
    if (s->ranks && !kcp_moves)
        return kcp_refuse(KCP_BAD, "%s: comm/ is not linked", stage);
    const int refused = check(s, where, args, may_lack);
    if (refused && s->ranks && c->comm && c->comm->fail)
        c->comm->fail(c->comm, refused, why);
    if (refused || !s->ranks || c->plan->R < 2) return refused;
    return kcp_moves->agree(s, args);
}

/* Rejects a call whose q, gates or beta a variant would read as another type. The rows
 * of a kernel in the table of paths name the types that the kernel supports. */
static int check_types(const struct kcp_variant *v, const struct kcp_call *c)
{
    const struct kcp_stage *s = kcp_stage_find(v->stage);
    const enum kcp_type own = kcp_type_of_storage(v->storage);
    static const struct { enum kcp_store store; const char *name, *what; } row[] = {
        { KCP_ACTV, "q", "its storage" }, { KCP_G, "g", "the type of q" },
        { KCP_BETA, "beta", "the type of q" } };
    if (!s || kcp_path_knows(v->stage, v->name)) return KCP_OK;
    for (int i = 0; i < (v->types || !field_of(s, "g_raw") ? 1 : 3); i++) {
        const enum kcp_type type = kcp_type_of(c, row[i].store, v->storage);
        if (type != own)
            return kcp_refuse(KCP_NA, "%s %s: %s_type: found %s, expected %s, %s",
                              v->stage, v->name, row[i].name, kcp_type_name(type),
                              kcp_type_name(own), row[i].what);
    }
    return KCP_OK;
}

int kcp_checked_run(const struct kcp_variant *v, void *args)
{
    const int is_outermost = !inside;
    if (!v || !args) return kcp_refuse(KCP_BAD, "the variant or args is NULL");
    int refused = kcp_begin(v->stage, v->where, args, NULL);
    if (!refused) refused = check_types(v, args);
    if (refused) return refused;
    kcp_checked_enter();
    const int status = v->run(args);
    kcp_checked_leave();
    if (status && is_outermost && !why[0])
        kcp_refuse(status, "%s %s: returned status %d; supports %s", v->stage, v->name,
                   status, v->shapes);
    return status;
}
