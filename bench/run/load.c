/* load.c -- loads .npy files as arrays of double or int, and checks them.
 * Book: chapter 00. */
#include "run.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct tensor *array_new(struct run *x, const char *name, const char *file,
                               const char *shape, enum kcp_store store)
{
    struct tensor *a = tensor_new(&x->a, name);
    a->shape = shape;
    a->store = store;
    snprintf(a->file, sizeof a->file, "%s", file);
    return a;
}

int array_split(const struct tensor *a)
{
    return strncmp(a->shape, "T ", 2) == 0 || strcmp(a->shape, "T") == 0;
}

void array_part(const struct run *x, const struct tensor *a, int r, int64_t *at,
                int64_t *n)
{
    const int64_t row = a->nd && a->dim[0] ? a->n / a->dim[0] : 0;
    *at = 0;
    *n = a->n;
    if (a->copies > 1) *at = r * a->n;
    else if (a->by_rank) {
        *at = r * row;
        *n = row;
    } else if (array_split(a) && x->plan) {
        const struct kcp_context *ctx = &x->plan->ctx[r];
        *at = row * ctx->begin;
        *n = row * (ctx->end - ctx->begin);
    }
}

int sums_check(struct run *x)
{
    int n = 0;
    for (int i = 0; i < x->a.n; i++) n += x->a.t[i].by_rank;
    return n || !x->o.sum ? 0 :
        run_error(x, RUN_BAD, "--sum", "no result is a sum over ranks; add do.npy "
                  "and A_log.npy, dt_bias.npy or --conv");
}

/* Returns the path of `file` in --in, or `file` if only that exists (for --conv). */
static const char *path_of(struct run *x, const char *file, char *path)
{
    struct stat st;
    const size_t n = strlen(file);
    const int named = n > 4 && strcmp(file + n - 4, ".npy") == 0;
    snprintf(path, NPY_NAME, "%s/%s%s", x->o.in, file, named ? "" : ".npy");
    if (named && lstat(path, &st) != 0 && lstat(file, &st) == 0)
        snprintf(path, NPY_NAME, "%s", file);
    return path;
}

int array_exists(struct run *x, const char *file)
{
    char path[NPY_NAME];
    struct stat st;
    return lstat(path_of(x, file, path), &st) == 0;
}

/* Sets symbol `word`, if unknown, to `size`. Returns 1 if `word` now has `size`. */
static int bind(struct kcp_call *z, const char *word, size_t n, int64_t size)
{
    const int may_be_0 = *word == 'T' || *word == 'N';
    const int64_t known = shape_letter(z, word, n);
    if (known >= 0) return known == size;
    shape_set(z, word, 1);
    const int64_t more = shape_letter(z, word, n) - 1; /* "Wc-1": -1 */
    const int64_t value = size - more;
    if (more < -1 || value < !may_be_0 || value >= INT_MAX) return 0;
    shape_set(z, word, value);
    return 1;
}

/* Writes a shape and its sizes, e.g. "[T,H,K] = [12,?,8]". */
static void sizes_text(const struct kcp_call *z, const char *shape, char *s, size_t n)
{
    char found[160] = "";
    size_t at = 0;
    for (const char *word = shape; *word && at < sizeof found;) {
        const size_t left = sizeof found - at, m = strcspn(word, " ");
        const int64_t size = shape_letter(z, word, m);
        const char *comma = at ? "," : "";
        at += (size_t)(size < 0 ? snprintf(found + at, left, "%s?", comma)
                       : snprintf(found + at, left, "%s%" PRId64, comma, size));
        word += m + (word[m] == ' ');
    }
    char in_letters[64];
    snprintf(in_letters, sizeof in_letters, "%s", shape);
    for (char *c = in_letters; *c; c++)
        if (*c == ' ') *c = ',';
    snprintf(s, n, "[%s] = [%s]", in_letters, found);
}

/* Compares the shape of a file with a symbolic shape: "T HV K" matches [12,4,8] if T,
 * HV and K have these sizes or are unknown. Then sets unknown sizes, so arrays that are
 * loaded first set sizes of later arrays. If the shapes do not match, returns -1 and
 * writes the expected shape to `expected`. */
static int sizes_bind(struct kcp_call *z, const char *shape, int nd,
                      const int64_t *dim, char *expected, size_t n)
{
    struct kcp_call y = *z;
    const int per_channel = kcp_models[y.model].gates == KCP_CHANNEL;
    int d = 0, fits = 1;
    for (const char *s = shape; *s && fits; d++) {
        const size_t m = strcspn(s, " ");
        const int is_K = m == 2 && !memcmp(s, "KG", 2) && per_channel;
        fits = d < nd && bind(&y, is_K ? "K" : s, is_K ? 1 : m, dim[d]);
        s += m + (s[m] == ' ');
    }
    if (!fits || d != nd) {
        sizes_text(z, shape, expected, n);
        if (!fits && d <= nd && dim[d - 1] == 0)
            snprintf(expected + strlen(expected), n - strlen(expected),
                     ", sizes of 1 or more");
        return -1;
    }
    if (per_channel) y.KG = y.K;
    *z = y;
    return 0;
}

/* The header that a file must have. npy_read_if checks it before allocating memory. */
struct expected {
    struct run *x;
    struct kcp_call *z;
    const char *path, *shape;
    enum kcp_store store;
};

static int refuse(const struct npy *head, void *arg)
{
    const struct expected *w = arg;
    const int whole = w->store == KCP_I64;
    const int is_whole = head->kind == NPY_I64 || head->kind == NPY_I32;
    char found[200], want[300];
    npy_shape(head->nd, head->dim, found, sizeof found);
    if (is_whole != whole || head->kind == NPY_BF16)
        return run_error(w->x, RUN_BAD, w->path, "found %s, expected %s",
                         npy_kind_name(head->kind), whole ? "int64 or int32"
                         : "float64, float32 or float16");
    if (sizes_bind(w->z, w->shape, head->nd, head->dim, want, sizeof want) != 0)
        return run_error(w->x, RUN_BAD, w->path, "found shape %s, expected %s", found,
                         want);
    return 0;
}

int array_load(struct run *x, struct kcp_call *z, const char *name, const char *file,
               const char *shape, enum kcp_store store)
{
    char path[NPY_NAME];
    struct npy in;
    struct expected w = { x, z, path_of(x, file, path), shape, store };
    x->exit = RUN_BAD;
    if (npy_read_if(path, &in, refuse, &w, x->why, sizeof x->why) != 0) return -1;
    x->exit = RUN_OK;
    struct tensor *a = array_new(x, name, name, shape, store);
    a->p = in.data;
    a->nd = in.nd;
    a->n = npy_count(in.nd, in.dim);
    memcpy(a->dim, in.dim, sizeof a->dim);
    return 0;
}

int array_out(struct run *x, const struct kcp_call *z, const char *name,
              const char *file, const char *shape, enum kcp_store store)
{
    struct tensor *a = array_new(x, name, file, shape, store);
    a->out = 1;
    a->nd = shape_dims(z, shape, a->dim);
    if (a->nd < 0)
        return run_error(x, RUN_BAD, file, "no input sets a size in [%s]", shape);
    a->n = npy_count(a->nd, a->dim);
    const int is_sum = x->plan && shape[0] != 'T' && shape[0] != 'N';
    if (is_sum && x->o.sum && a->nd < NPY_RANK) {
        memmove(a->dim + 1, a->dim, sizeof *a->dim * (size_t)a->nd++);
        a->dim[0] = x->plan->R;
        a->n *= a->dim[0];
        a->by_rank = 1;
    } else if (is_sum)
        a->copies = x->plan->R;
    const size_t bytes = sizeof(double) * (size_t)a->n * (size_t)a->copies;
    a->p = a->n < 0 ? NULL : malloc(bytes + 8);
    if (!a->p) return run_error(x, RUN_FAILED, name, "out of memory");
    memset(a->p, 0xff, bytes);
    return 0;
}

/* Writes the index of element `e`, such as "[3,0,2]". */
static char *index_text(const struct tensor *a, int64_t e, char *s, size_t n)
{
    int64_t at[NPY_RANK];
    for (int d = a->nd - 1; d >= 0; d--) {
        at[d] = e % a->dim[d];
        e /= a->dim[d];
    }
    return npy_shape(a->nd, at, s, n);
}

int array_check(struct run *x, const struct tensor *a, int below)
{
    const double *p = a->p;
    char name[64], at[200];
    snprintf(name, sizeof name, "%s%s.npy", a->out ? "result " : "", a->file);
    for (int64_t e = 0; e < a->n; e++) {
        if (!isfinite(p[e]))
            return run_error(x, a->out ? RUN_FAILED : RUN_BAD, name,
                             "found %g at %s, expected finite numbers", p[e],
                             index_text(a, e, at, sizeof at));
        if (below && p[e] > 0)
            return run_error(x, RUN_BAD, name, "found %g at %s, expected a log decay "
                             "of at most 0", p[e], index_text(a, e, at, sizeof at));
    }
    return 0;
}
