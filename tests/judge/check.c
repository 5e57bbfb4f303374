/* check.c -- computes the error of a tensor slice and the limit of that error.
 * Book: chapter 19, and CONTRIBUTING.md.
 *
 * error = RMS(x - ref) / max(RMS(ref), 1e-6 * natural size), per tensor, rank and head:
 * x is computed, ref is expected. For natural sizes see judge.h. NaN and Inf always
 * fail. Outputs that the reference does not write must stay NaN. */
#include "judge.h"
#include "tolerance.h"
#include <math.h>
#include <string.h>

const char *const outcome_name[] = { "ok", "MARGINAL", "FAIL", "n/a", "skip" };

static int one_of(const char *name, const char *list)
{
    return has_word(list, name, " ");
}

static int is_state(const char *f)
{
    return one_of(f, "o v_new u S map maps h h_out h_in h_back h_kept ht ot");
}

/* Without `a` (in GDN-2), `b` is a gate. Then each number of db is one dot product with
 * the state, as each number of dbeta is. */
static int is_gate_b(const struct slice *s)
{
    return !strcmp(s->field->name, "db") && !kcp_model_reads(s->call->model, "a");
}

static enum tolerance row_of(const struct slice *s, int is_M)
{
    const char *f = s->field->name;
    if (is_M) return TOLERANCE_MAPS;
    if (is_gate_b(s) ||
        one_of(f, "dg dbeta dg_raw dbeta_raw dA_part ddt_part dA_log ddt_bias dspike "
                  "dalpha_base dbeta_base dW_alpha dw_beta")) return TOLERANCE_GATES;
    if (f[0] == 'd') return TOLERANCE_GRADIENTS;
    if (s->stage->facts & KCP_SAVES) return TOLERANCE_LAYER;
    return one_of(f, "g G beta rstd_q rstd_k") ? TOLERANCE_ACTIVATED : TOLERANCE_STATES;
}

/* Returns the limit for alike (nearly equal) keys, which make I + L ill-conditioned. If
 * keys are equal, rounding the inputs to bf16 changes dv, da (DPLR), domega (GDN-2) and
 * dbeta_base (chapter 15) by 1e-2, so their limits rise if the keys' cosine exceeds
 * 0.9. The limit of DPLR's db already rises at 0.9, where rounding changes db by only
 * 2e-3, but kernel v2_tiles has an error of 1.4e-2. */
static double alike_limit(const struct slice *s, double limit, int twice)
{
    const char *f = s->field->name;
    const int beta = is_gate_b(s) || one_of(f, "dbeta dbeta_raw dbeta_base");
    const int far = s->alike > 0.9, at_least = s->alike >= 0.9;
    if (twice && far) return fmax(limit, tolerance_of(TOLERANCE_ALIKE_TWICE, KCP_BF16));
    if (beta && (twice || far)) return tolerance_of(TOLERANCE_ALIKE_BETA, KCP_BF16);
    if ((one_of(f, "dv da domega") && far) || (one_of(f, "db") && !beta && at_least))
        return tolerance_of(TOLERANCE_ALIKE_V, KCP_BF16);
    return limit;
}

/* Returns the largest relative error of rounding an output to its type, if the call has
 * chosen bf16 or fp16 for it; otherwise 0. */
static double rounding_of_type(const struct slice *s)
{
    const enum kcp_store store = s->field->store;
    if (store != KCP_G && store != KCP_BETA) return 0;
    const enum kcp_type type = kcp_type_of(s->call, store, s->judged);
    if (type == KCP_TYPE_BF16) return ldexp(1, -8);
    return type == KCP_TYPE_F16 ? ldexp(1, -11) : 0;
}

/* Returns the limit of the error. If beta may reach 2, the bf16 limit is multiplied by
 * 2 and, with alike keys, the fp32 limit by 4: each entry of L (chapter 03) is a
 * rounded sum of K products, and alike keys make I + L ill-conditioned. */
double tolerance(const struct slice *s, int is_M)
{
    const enum kcp_storage as = s->judged;
    const int twice = s->call->beta_form == KCP_BETA_SIGMOID2;
    const enum tolerance row = row_of(s, is_M);
    const double limit = fmax(tolerance_of(row, as), rounding_of_type(s));
    const int is_fp32 = row == TOLERANCE_MAPS || row == TOLERANCE_ACTIVATED;
    if (is_fp32 || as == KCP_F64) return limit;
    if (as == KCP_F32) return twice && s->alike > 0.9 ? 4 * limit : limit;
    return s->alike > 0 ? alike_limit(s, limit * (1 + twice), twice)
                        : limit * (1 + twice);
}

/* A slice viewed as an array [outer][heads][inner]. If the slice contains maps, only
 * part h_ext or M of each map is checked: columns `from` to `to` - 1. */
struct view { int64_t outer, heads, inner, from, to; int is_M; };

int head_axis(const struct kcp_field *f)
{
    int axis = 0;
    for (const char *p = f->shape; *p; axis++) {
        const size_t len = strcspn(p, " ");
        if ((len == 2 && !strncmp(p, "HV", 2)) || (len == 1 && *p == 'H')) return axis;
        p += len + (p[len] == ' ');
    }
    return -1;
}

static struct view view_of(const struct slice *s, int part)
{
    struct view w = { 1, 1, 1, 0, 0, part };
    const int axis = head_axis(s->field);
    for (int i = 0; i < s->nd; i++)
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

/* Returns 0 if element i of a map is in a column that view `w` does not select. */
static int inside(const struct slice *s, const struct view *w, int64_t i)
{
    if (s->field->store != KCP_MAP) return 1;
    const int64_t column = i % (s->call->V + s->call->K);
    return column >= w->from && column < w->to;
}

int is_unwritten(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u == ~(uint64_t)0;
}

static double rms_head(const struct slice *s, const struct view *w, const double *x,
                       int64_t outer, int64_t head)          /* all heads if head < 0 */
{
    const int64_t first = head < 0 ? 0 : head;
    const int64_t end = head < 0 ? w->heads : head + 1;
    double sum = 0;
    int64_t n = 0;
    for (int64_t a = 0; a < outer; a++)
        for (int64_t h = first; h < end; h++)
            for (int64_t i = 0; i < w->inner; i++) {
                const double y = x[(a * w->heads + h) * w->inner + i];
                if (!inside(s, w, i) || is_unwritten(y)) continue;
                sum += y * y;
                n++;
            }
    return n ? sqrt(sum / n) : 0;
}

static double natural(const struct slice *s, const struct view *w, int64_t outer)
{
    if (w->is_M) return 1 / sqrt(s->call->K);
    if (is_state(s->field->name) && s->sizes.rms_v > 0) return s->sizes.rms_v;
    return rms_head(s, w, s->all, outer, -1);
}

/* Writes the global indices of element `at`, like "[12][0][3]". Returns the length. */
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

/* Stores an error in *w if err / tol is the largest so far. `at` is the element with
 * the largest error, `first` the first element whose error exceeds the limit. */
static void note(struct worst *w, const struct slice *s, const struct view *v,
                 double err, double tol, int64_t head, int64_t at, int64_t first,
                 int nan)
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

/* Returns the size by which an error is divided: the RMS of the expected slice, but
 * - for a slice of fewer than 64 tokens, at least the RMS of the head over all ranks;
 * - for a batch of fewer than 64 tokens, also at least a hundredth of the natural size,
 *   or the whole natural size for a gradient with one number per token (dbeta, GDN's
 *   dg): this number is a dot product, and if its terms cancel, rounding the states to
 *   bf16 changes the number by 4e-2;
 * - for the gradient of a parameter, which is a sum, at least the RMS that the sum
 *   would have if its terms had random signs, because the terms may cancel. */
static double size_of(const struct slice *s, const struct view *v, int64_t h,
                      double nat, int64_t all_outer)
{
    double size = fmax(rms_head(s, v, s->want, v->outer, h), 1e-6 * nat);
    if (s->field->shape[0] == 'T' && s->dim[0] < 64) {
        size = fmax(size, rms_head(s, v, s->all, all_outer, h));
        const int one = v->inner == 1 && s->field->name[0] == 'd';
        if (s->all_rows < 64) size = fmax(size, one ? nat : 1e-2 * nat);
    }
    if (one_of(s->field->name, "ot")) size = fmax(size, 1e-2 * nat);   /* one token */
    if (one_of(s->field->name, "dA_log")) size = fmax(size, s->sizes.rms_dA);
    if (one_of(s->field->name, "ddt_bias")) size = fmax(size, s->sizes.rms_sum);
    return size;
}

/* Returns the factor by which the limit of an RMS of n errors rises if n < 64. Such an
 * RMS has a relative standard deviation of 1 / sqrt(2 n): a fifth for n = 12. */
static double by_chance(int64_t n)
{
    return n < 64 ? 1 + 1 / sqrt(2 * fmax((double)n, 1)) : 1;
}

/* Returns how many normally distributed errors vary as much in their RMS as a head's
 * errors, if these are in proportion to x: 3 (sum of x^2)^2 / (sum of x^4), at most n.
 * If beta is saturated, a few tokens of a hundred have nearly all of dbeta_raw. */
static double count_alike(const struct slice *s, const struct view *v, const double *x,
                          int64_t outer, int64_t head)
{
    double two = 0, four = 0;
    for (int64_t a = 0; a < outer; a++)
        for (int64_t i = 0; i < v->inner; i++) {
            const double y = x[(a * v->heads + head) * v->inner + i];
            if (!inside(s, v, i) || is_unwritten(y)) continue;
            two += y * y;
            four += pow(y, 4);
        }
    const double n = (double)(v->outer * v->inner);
    return four > 0 ? fmin(n, 3 * two * two / four) : n;
}

/* Returns the largest factor by which a limit may rise. In bf16 the factor is 4, or
 * 16/tokens for a batch of one to three tokens. The output of one token is v times the
 * dot product of q and k, whose terms may cancel: on an H200, three of seventeen seeds
 * needed a factor of 5. In fp32 the factor is 40, and 40 times the fp32 limit is at
 * most a twelfth of the bf16 limit for an output, and a fifth of the bf16 limit for the
 * gradient of a gate. */
double limit_rises_by(enum kcp_storage judged, const struct kcp_call *c)
{
    const double tokens = fmax(1, (double)(c->plan ? c->plan->T : c->T));
    if (judged == KCP_F32) return 40;
    return tokens < 4 ? 16 / tokens : 4;
}

/* Estimates the error of one output number in units of one fp32 rounding. The number is
 * a sum of n products, where n is the larger of K and the number of tokens in a chunk.
 * The partial sum of k random terms grows as sqrt(k), and each partial sum is rounded,
 * so the error is sqrt(1 + n / 2): 5.7 for n = 64. The result is limited to 4, because
 * kernels sum in several registers. In bf16 the result is 1, because bf16 kernels sum
 * in fp32. */
static double roundings(const struct slice *s)
{
    const double n = fmax(s->call->K, fmin(s->call->C, (double)s->call->T));
    return s->judged == KCP_F32 ? fmin(4, sqrt(1 + n / 2)) : 1;
}

/* Returns the factor by which a limit rises if s->moved, the effect of one more
 * rounding, is unknown; kcp-bench does not compute this effect. The factor is
 * by_chance(), except for the gradient of a parameter. That gradient is a sum over
 * tokens. size_of divides the gradient's error by the RMS that the sum would have if
 * its terms had random signs. If each term has an error of dg's limit, the sum has a
 * normally distributed error with dg's limit as standard deviation. One such error in
 * 370 exceeds 3 standard deviations, and the RMS of n errors exceeds 1 + 3 / sqrt(2 n)
 * standard deviations about as rarely. For GDN and 32768 tokens, one more rounding
 * changes dA_log of four heads by 1.7e-2, 3e-3, 1.2e-2 and 5e-4. */
static double by_chance_alone(const struct slice *s, const struct view *v)
{
    const double n = fmax(1, (double)(v->outer * v->inner));
    const int over_tokens = one_of(s->field->name, "dA_log ddt_bias");
    return over_tokens ? 1 + 3 / sqrt(2 * n) : by_chance(v->outer * v->inner);
}

/* Returns a factor f. A limit may rise to f times the change that one more rounding
 * causes in the exact result. This rounding changes the inputs and, in a layer, each
 * chapter's outputs. f is 3 times roundings(), because a kernel also rounds
 * intermediate numbers. In chapters 10, 13 and 16, f is 6 times roundings(), because a
 * kernel chains six products that no chapter outputs. */
static double times_moved(const struct slice *s)
{
    const int many = one_of(s->stage->name, "10_wy_backward 13_backward 16_family");
    return (many ? 6 : 3) * roundings(s);
}

/* Returns the raised limit of a head whose error `err` exceeds the plain limit `tol`.
 * For part M of maps the limit stays `tol`. If few numbers have nearly all of the
 * effect of rounding, three standard deviations of chance are added to this effect. */
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
        if (s->field->shape[0] == 'T')            /* the RMS of this rank's tokens */
            by = fmax(by, rms_head(s, v, moved + s->first * v->heads * v->inner,
                                   v->outer, h));
        const double n = count_alike(s, v, moved, outer, h);
        const double chance = n < 64 ? 1 + 3 / sqrt(2 * n) : 1;
        limit = fmax(tol * by_chance(v->outer * v->inner),
                     times_moved(s) * by / size * chance);
        limit = fmin(limit, most);
        if (err <= 0.9 * limit) break;            /* more draws only raise `limit` */
    }
    return limit;
}

/* Returns the limit of token row `a` of head h. One wrong token among many hardly
 * changes the error of the head, so each row also has a limit. The row's limit is the
 * larger of two numbers: three times the head's limit, and 1.5 times the limit from the
 * effect of one more rounding on the row. Correct kernels reach 2.9 times the head's
 * limit in forward and 1.8 times in backward (H200, seeds 4 to 6). In chapter 16, and
 * if the effect of rounding is unknown, the factor is five instead of three. With alike
 * keys, rows at the end of a chunk have errors far above the effect of one more
 * rounding, so the row limit is five times the head's limit. */
static double row_limit(const struct slice *s, const struct view *v, int64_t a,
                        int64_t h, double size, double own, int64_t all_outer,
                        double err)
{
    const double tol = tolerance(s, v->is_M), all = fmax(size, own);
    const int family = !(s->stage->facts & KCP_TAKES_LAYER);
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
            if (is_unwritten(s->want[i])) continue;
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
            const int free_of = is_unwritten(s->want[x]);
            if (free_of && is_unwritten(s->got[x])) continue;
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

int is_wrong(const struct worst *w)
{
    return w->tol > 0 && (w->nan || !(w->err <= w->tol));
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
