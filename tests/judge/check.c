/* check.c -- how far a slice of a tensor is from what it should be (sec:accuracy).
 *
 * Book: chapter 19, and CONTRIBUTING.md.  Checked by: tests/judge/self_limits.c.
 * Next: trial.c.
 *
 * error = RMS(x - ref) / max(RMS(ref), 1e-6 natural), per tensor, rank and head.
 * NaN and Inf always fail; what the reference did not touch must be untouched.
 */
#include "judge.h"
#include <math.h>
#include <string.h>

const char *const outcome_name[] = { "ok", "MARGINAL", "FAIL", "n/a", "skip" };

static int one_of(const char *name, const char *list)
{
    const size_t n = strlen(name);
    for (const char *s = strstr(list, name); s; s = strstr(s + 1, name))
        if ((s == list || s[-1] == ' ') && (s[n] == ' ' || !s[n])) return 1;
    return 0;
}

static int is_state(const char *f)
{
    return one_of(f, "o v_new u S map maps h h_out h_in h_back h_kept ht ot");
}

/* Alike keys in bf16: with beta up to 1 the limits hold, but for dv and dbeta
 * beyond a cosine of 0.9; with beta up to 2, which doubles them already, dbeta has
 * more; and beyond 0.9 there I + L itself is ill-conditioned: twice what is known of
 * others. (There fp32 has four times its own: L is a sum of K products, rounded.)
 * Chapters 15 and 16 have dv and dbeta under other names. Inputs rounded to bf16 once
 * move DPLR's da, GDN-2's domega and db, and 15's dbeta_base by 1e-2 where keys are
 * the same, as they move dv. DPLR's db they move by 2e-3 alone; yet 16 v2_tiles is off
 * by 1.4e-2 on an H200, at a cosine of 0.9 too (v1_stages keeps to 8e-3 there). */
static double alike_limit(const struct slice *s, double limit, int twice)
{
    const int erase = !strcmp(s->field->name, "db") && s->call->model == KCP_GDN2;
    const int beta = erase || one_of(s->field->name, "dbeta dbeta_raw dbeta_base");
    const int v = one_of(s->field->name, "dv da domega");
    const int db = !erase && !strcmp(s->field->name, "db");
    if (twice && s->alike > 0.9) return fmax(limit, 0.4);
    if (beta && (twice || s->alike > 0.9)) return 6e-2;
    if (db && s->alike >= 0.9) return 3e-2;
    return v && s->alike > 0.9 ? 3e-2 : limit;
}

/* The table of sec:accuracy, by field name and by what is judged. GDN-2's b is a gate,
 * and db the analogue of dbeta: one dot product with the state a token and channel,
 * behind every rounding of both passes (chapter 16 has the sizes). */
double tolerance(const struct slice *s, int is_M)
{
    static const double state[] = { 1e-12, 1e-5, 5e-3 }, grad[] = { 1e-11, 1e-5, 8e-3 },
                        gates[] = { 1e-11, 1e-4, 2e-2 },
                        whole[] = { 1e-12, 1e-5, 6e-3 };
    const char *f = s->field->name;
    const enum kcp_storage as = s->judged;
    const int twice = as == KCP_BF16 && s->call->beta_form == KCP_BETA_SIGMOID2;
    const double *row = state;
    if (is_M) return as == KCP_F64 ? 1e-12 : 1e-5;
    if (one_of(f, "dg dbeta dg_raw dbeta_raw dA_part ddt_part dA_log ddt_bias dspike "
                  "dalpha_base dbeta_base dW_alpha dw_beta")) row = gates;
    else if (!strcmp(f, "db") && s->call->model == KCP_GDN2) row = gates;
    else if (f[0] == 'd') row = grad;
    else if (!strncmp(s->stage->name, "08", 2)) row = whole;
    else if (one_of(f, "g G beta rstd_q rstd_k") && as == KCP_BF16) return 1e-5;
    const double limit = row[as] * (twice ? 2 : 1);
    if (as == KCP_F32 && s->call->beta_form == KCP_BETA_SIGMOID2 && s->alike > 0.9)
        return 4 * limit;
    return as == KCP_BF16 && s->alike > 0 ? alike_limit(s, limit, twice) : limit;
}

/* The slice seen as [outer][heads][inner]; a map's columns are checked in two parts. */
struct view { int64_t outer, heads, inner, from, to; int is_M; };

static struct view view_of(const struct slice *s, int part)
{
    struct view w = { 1, 1, 1, 0, 0, part };
    const char *shape = s->field->shape;
    int axis = -1, i = 0;
    for (const char *p = shape; *p; i++) {
        size_t len = strcspn(p, " ");
        if (axis < 0 && ((len == 2 && !strncmp(p, "HV", 2)) || (len == 1 && *p == 'H')))
            axis = i;
        p += len + (p[len] == ' ');
    }
    for (i = 0; i < s->nd; i++)
        if (axis < 0 || i < axis) w.outer *= s->dim[i];
        else if (i == axis) w.heads = s->dim[i];
        else w.inner *= s->dim[i];
    w.to = w.inner;
    if (s->field->store == KCP_MAP) {
        w.from = part ? s->call->V : 0;
        w.to = part ? s->call->V + s->call->K : s->call->V;
    }
    return w;
}

/* Columns of a map repeat every V+K; elsewhere the whole inner block counts. */
static int inside(const struct slice *s, const struct view *w, int64_t i)
{
    if (s->field->store != KCP_MAP) return 1;
    const int64_t column = i % (s->call->V + s->call->K);
    return column >= w->from && column < w->to;
}

static int untouched(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u == ~(uint64_t)0;
}

static double rms_head(const struct slice *s, const struct view *w, const double *x,
                       int64_t outer, int64_t head)           /* head < 0: all */
{
    const int64_t first = head < 0 ? 0 : head;
    const int64_t end = head < 0 ? w->heads : head + 1;
    double sum = 0;
    int64_t n = 0;
    for (int64_t a = 0; a < outer; a++)
        for (int64_t h = first; h < end; h++)
            for (int64_t i = 0; i < w->inner; i++) {
                const double y = x[(a * w->heads + h) * w->inner + i];
                if (!inside(s, w, i) || untouched(y)) continue;
                sum += y * y;
                n++;
            }
    return n ? sqrt(sum / n) : 0;
}

static double natural(const struct slice *s, const struct view *w, int64_t outer)
{
    if (w->is_M) return 1 / sqrt(s->call->K);
    if (is_state(s->field->name) && s->rms_v > 0) return s->rms_v;
    return rms_head(s, w, s->all, outer, -1);
}

/* "[12][0][3]": element at, by its global indices. */
static int index_of(const struct slice *s, int64_t at, char *text, size_t n)
{
    int64_t index[4] = { 0 };
    char *p = text;
    for (int d = s->nd - 1; d >= 0; d--) {
        index[d] = at % s->dim[d];
        at /= s->dim[d];
    }
    const struct kcp_plan *plan = s->call->plan;
    index[0] += s->first;
    if (plan && plan->scattered && plan->R > 1 && s->field->shape[0] == 'T')
        index[0] = kcp_plan_token(plan, index[0]);
    for (int d = 0; d < s->nd; d++)
        p += snprintf(p, text + n - p, "[%lld]", (long long)index[d]);
    return (int)(p - text);
}

/* at is the worst element, first the first that is further off than the mean may be. */
static void note(struct worst *w, const struct slice *s, const struct view *v,
                 double err,
                 double tol, int64_t head, int64_t at, int64_t first, int nan)
{
    if (!(err / tol > w->err / w->tol) && w->tol > 0 && !(nan && !w->nan)) return;
    w->err = err;
    w->tol = tol;
    w->rank = s->rank;
    w->head = (int)head;
    w->nan = nan;
    w->of_forward = s->of_forward;
    w->got = s->got[at];
    w->want = s->want[at];
    const char *name = s->field->name;
    if (s->field->store == KCP_MAP && v->is_M) name = "M";
    else if (s->field->store == KCP_MAP) name = name[0] == 'd' ? "dh_ext" : "h_ext";
    snprintf(w->field, sizeof w->field, "%s", name);
    const int n = index_of(s, at, w->where, sizeof w->where);
    snprintf(w->where + n, sizeof w->where - n, " of [%s]", s->field->shape);
    index_of(s, first, w->first, sizeof w->first);
}

/* What an error is measured against: the slice's RMS, and
 * - for a few tokens at least their head's over all ranks: they may happen to be small;
 *   when the whole batch is that short, at least a hundredth of the natural size, and
 *   all of it for one number a token (dbeta, GDN's dg), a dot product: with the states
 *   rounded to bf16 and nothing else, one that happens to cancel is off by 4e-2;
 * - for a parameter's gradient at least a random sum of as many terms: what is left of
 *   terms that cancel is no measure of them. */
static double size_of(const struct slice *s, const struct view *v, int64_t h,
                      double nat,
                      int64_t all_outer)
{
    double size = fmax(rms_head(s, v, s->want, v->outer, h), 1e-6 * nat);
    if (s->field->shape[0] == 'T' && s->dim[0] < 64) {
        size = fmax(size, rms_head(s, v, s->all, all_outer, h));
        const int one = v->inner == 1 && s->field->name[0] == 'd';
        if (s->all_rows < 64) size = fmax(size, one ? nat : 1e-2 * nat);
    }
    if (one_of(s->field->name, "ot")) size = fmax(size, 1e-2 * nat);   /* one token */
    if (one_of(s->field->name, "dA_log")) size = fmax(size, s->rms_dA);
    if (one_of(s->field->name, "ddt_bias")) size = fmax(size, s->rms_sum);
    return size;
}

/* The RMS of n rounding errors is itself uncertain, by 1 / sqrt(2 n) of it: twelve
 * numbers are off by a fifth more than many would be. */
static double by_chance(int64_t n)
{
    return n < 64 ? 1 + 1 / sqrt(2 * fmax((double)n, 1)) : 1;
}

/* In bf16 fourfold. Of a batch of one token all that is handed on is one dot product
 * times a row, and where its terms cancel nothing makes up for it: an H200 asked for
 * five times the limit in three of seventeen seeds. So there sixteenfold, of two tokens
 * eightfold. In fp32, whose limits are hundreds of times less, fortyfold: an output
 * then still is a twelfth of what bf16's may be off (4e-4 of 5e-3), a gradient of a
 * gate a fifth. */
double limit_rises_by(enum kcp_storage judged, const struct kcp_call *c)
{
    const double tokens = fmax(1, (double)(c->plan ? c->plan->T : c->T));
    if (judged == KCP_F32) return 40;
    return tokens < 4 ? 16 / tokens : 4;
}

/* So many roundings of a number in fp32 there are behind one that is handed on. It is a
 * sum of n products, K of them or a chunk's tokens: of random ones the first k come to
 * sqrt(k), each such sum is rounded, so all of it is off by sqrt(n / 2) roundings of
 * what it comes to, and by its own: 5.7 for 64. At most four are granted, for kernels
 * sum in several registers. A kernel in bf16 sums in fp32: one rounding. */
static double roundings(const struct slice *s)
{
    const double n = fmax(s->call->K, fmin(s->call->C, (double)s->call->T));
    return s->judged == KCP_F32 ? fmin(4, sqrt(1 + n / 2)) : 1;
}

/* The same where nobody computed how far a result moves (a bench row). A parameter's
 * gradient is a sum over tokens, held against a random sum of as many (size_of): if a
 * token's part may be off by the limit of dg, such a sum is off by a normal number of
 * that deviation. One of these is beyond three times it once in 370, and the RMS of n
 * beyond 1 + 3 / sqrt(2 n) times it about as seldom. Measured: of GDN and 32768 tokens
 * one more rounding moves dA_log of four heads by 1.7e-2, 3e-3, 1.2e-2 and 5e-4. */
static double by_chance_alone(const struct slice *s, const struct view *v)
{
    const double n = fmax(1, (double)(v->outer * v->inner));
    const int over_tokens = one_of(s->field->name, "dA_log ddt_bias");
    return over_tokens ? 1 + 3 / sqrt(2 * n) : by_chance(v->outer * v->inner);
}

/* A slice whose exact result moves when the inputs, and of a layer what each chapter
 * hands on, are rounded once more cannot be held to less than three times that: a
 * kernel rounds its own numbers on the way too. Six times where chapter 10, or a
 * family's, is within: six products come one behind another there, and what is between
 * them is handed on to nobody. */
static double times_moved(const struct slice *s)
{
    const int many = one_of(s->stage->name, "10_wy_backward 13_backward 16_family");
    return (many ? 6 : 3) * roundings(s);
}

/* A head's limit. It is asked only where the plain limit is passed; M's never rises. */
static double conditioned(const struct slice *s, const struct view *v, int64_t h,
                          double size, int64_t all_outer, double tol, double err)
{
    const double most = limit_rises_by(s->judged, s->call) * tol;
    if (v->is_M || !(size > 0) || !(err <= most)) return tol;
    const int64_t outer = v->heads == s->dim[0] ? v->outer : all_outer;
    double limit = tol;
    for (int draws = 1; draws <= MOVED_DRAWS; draws *= 2) {
        const double *moved = s->moved ? s->moved(s->field->name, draws) : NULL;
        if (!moved) return tol * by_chance_alone(s, v);
        double by = rms_head(s, v, moved, outer, h);
        if (s->field->shape[0] == 'T')            /* or these tokens alone, when more */
            by = fmax(by, rms_head(s, v, moved + s->first * v->heads * v->inner,
                                   v->outer, h));
        limit = fmax(tol, times_moved(s) * by / size);
        limit = fmin(limit * by_chance(v->outer * v->inner), most);
        if (err <= 0.9 * limit) break;            /* more draws would raise it alone */
    }
    return limit;
}

/* What is wrong in one token of many hardly shows in the whole. So each token's row has
 * a limit of its own: three times what the whole may be off, or half as much again as
 * that row moves by itself (conditioned). Right kernels come to 2.9 times with keys as
 * they are drawn, to 1.8 backward; of chapter 16's gradients, which no chunk's products
 * share, to 2.8: five times in all of 16, and where nobody knows what moves. Alike keys
 * make single rows far worse than what they move says, at a chunk's end: there five
 * times what the head may be off. (H200, seeds 4 to 6.) a: the row, h: the head. */
static double row_limit(const struct slice *s, const struct view *v, int64_t a,
                        int64_t h, double size, double own, int64_t all_outer,
                        double err)
{
    const double tol = tolerance(s, v->is_M), all = fmax(size, own);
    const int family = !strncmp(s->stage->name, "16", 2);
    const double plain = (family || !s->moved ? 5 : 3) * tol;
    const double rises = limit_rises_by(s->judged, s->call);
    const double most = rises * (s->alike > 0 ? 5 * tol : plain);
    if (s->is_plain || !s->moved || !(err > plain) || !(err <= most)) return plain;
    if (s->alike > 0)
        return fmax(plain, 5 * conditioned(s, v, h, size, all_outer, tol, err / 5));
    double limit = plain;
    for (int draws = 1; draws <= MOVED_DRAWS && err > 0.9 * limit; draws *= 2) {
        const double *moved = s->moved(s->field->name, draws);
        if (!moved) return plain;
        moved += (s->first + a) * v->heads * v->inner;
        limit = 1.5 * times_moved(s) * rms_head(s, v, moved, 1, h) / all;
        limit = fmin(fmax(plain, limit * by_chance(v->inner)), most);
    }
    return limit;
}

static void check_rows(const struct slice *s, const struct view *v, int64_t h,
                       double size, int64_t all_outer, struct worst *w)
{
    if (s->field->shape[0] != 'T' || v->inner < 16) return;
    for (int64_t a = 0; a < v->outer; a++) {
        const int64_t x = (a * v->heads + h) * v->inner;
        double off = 0, own = 0;
        for (int64_t i = x; i < x + v->inner; i++) {
            if (untouched(s->want[i])) continue;
            off += pow(s->got[i] - s->want[i], 2);
            own += s->want[i] * s->want[i];
        }
        own = sqrt(own / v->inner);
        const double err = sqrt(off / v->inner) / fmax(size, own);
        const double limit = row_limit(s, v, a, h, size, own, all_outer, err);
        if (err > limit) note(w, s, v, err, limit, h, x, x, 0);
    }
}

static void check_head(const struct slice *s, const struct view *v, int64_t h,
                       double nat, int64_t all_outer, struct worst *w)
{
    const double tol = tolerance(s, v->is_M), size = size_of(s, v, h, nat, all_outer);
    double sum = 0, most = -1;
    int64_t n = 0, at = 0, first = -1;
    int nan = 0;
    for (int64_t a = 0; a < v->outer; a++)
        for (int64_t i = 0; i < v->inner; i++) {
            const int64_t x = (a * v->heads + h) * v->inner + i;
            if (!inside(s, v, i)) continue;
            const int free_of = untouched(s->want[x]);
            if (free_of && untouched(s->got[x])) continue;
            const double d = fabs(s->got[x] - s->want[x]);
            n++;
            if (first < 0 && (free_of || !(d <= tol * size))) first = x;
            if (free_of || !(d <= 1e300)) {
                if (!nan) at = x;
                nan = 1;
                continue;
            }
            sum += d * d;
            if (d > most && !nan) {
                most = d;
                at = x;
            }
        }
    if (!n) return;
    double err = size > 0 ? sqrt(sum / n) / size : 0;
    if (nan || (sum && !(size > 0))) err = INFINITY;
    double limit = tol;
    if (err > tol && !s->is_plain)
        limit = conditioned(s, v, h, size, all_outer, tol, err);
    note(w, s, v, err, limit, h, at, first < 0 ? at : first, nan);
    if (err <= limit && size > 0) check_rows(s, v, h, size, all_outer, w);
}

void check_slice(const struct slice *s, struct worst *w)
{
    if (s->dim[0] == 0) return;
    for (int part = 0; part <= (s->field->store == KCP_MAP); part++) {
        const struct view v = view_of(s, part);
        const int64_t all_outer = v.outer / s->dim[0] * s->all_rows;
        const double nat = natural(s, &v, v.heads == s->dim[0] ? v.outer : all_outer);
        for (int64_t h = 0; h < v.heads; h++) check_head(s, &v, h, nat, all_outer, w);
    }
}
