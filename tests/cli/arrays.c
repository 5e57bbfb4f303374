/* arrays.c -- makes and compares .npy files for tests of the command line.
 *
 *     arrays layer DIR T N H HV K V kda|gdn raw|free seed   the layer's inputs
 *     arrays fill FILE f8|f4|i8|i4 3,4 x                    one number everywhere
 *     arrays poke FILE element x                            one element changed
 *     arrays same A B tolerance                             exit 0, or 1 and why
 *     arrays off A B                                        RMS(A - B) / RMS(B)
 *     arrays add A B tolerance                              `same` with A's rows summed
 *     arrays fortran A B                                    B is A, first index fastest
 *     arrays rows A first end B                             B is these rows of A */
#include "kcp.h"
#include "base/npy.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char why[600];

static int fail(void)
{
    fprintf(stderr, "arrays: %s\n", why);
    return 1;
}

static uint64_t seed;

/* Returns a nearly normal number: a sum of twelve uniform numbers, minus 6. */
static double normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += random_uniform(&seed);
    return sum;
}

/* Writes an array of numbers x = scale * normal + shift, or -|x| if `below` is set. */
static int draw(const char *dir, const char *name, int nd, const int64_t *dim,
                double scale, double shift, int below)
{
    struct npy a = { .kind = NPY_F64, .nd = nd };
    char path[1024];
    memcpy(a.dim, dim, sizeof *dim * (size_t)nd);
    const int64_t n = npy_count(nd, dim);
    double *x = a.data = malloc(sizeof *x * (size_t)n + 8);
    for (int64_t e = 0; x && e < n; e++) {
        const double y = scale * normal() + shift;
        x[e] = below ? -fabs(y) : y;
    }
    snprintf(path, sizeof path, "%s/%s.npy", dir, name);
    const int bad = !x || npy_write(path, &a, why, sizeof why);
    free(x);
    return bad ? fail() : 0;
}

static int layer(char **v)
{
    const int64_t T = atoll(v[1]), N = atoll(v[2]), H = atoll(v[3]), HV = atoll(v[4]);
    const int64_t K = atoll(v[5]), V = atoll(v[6]);
    const int kda = strcmp(v[7], "kda") == 0, raw = strcmp(v[8], "raw") == 0;
    const char *dir = v[0];
    seed = 88172645463325252u + (uint64_t)atoll(v[9]);
    mkdir(dir, 0777);
    struct npy cu = { .kind = NPY_I64, .nd = 1, .dim = { N + 1 } };
    int64_t *u = cu.data = malloc(sizeof *u * (size_t)(N + 1));
    char path[1024];
    /* If there are at least three sequences, sequence 1 is empty. */
    const int64_t parts = N ? N : 1;
    for (int64_t n = 0; u && n <= N; n++) u[n] = n * T / parts;
    if (u && N > 2) u[2] = u[1];
    snprintf(path, sizeof path, "%s/cu_seqlens.npy", dir);
    int bad = !u || npy_write(path, &cu, why, sizeof why) ? fail() : 0;
    free(u);
    const int64_t q[] = { T, H, K }, o[] = { T, HV, V }, g[] = { T, HV, K };
    const int64_t h[] = { N, HV, K, V };
    bad |= draw(dir, "q", 3, q, 1, 0, 0) || draw(dir, "k", 3, q, 1, 0, 0);
    bad |= draw(dir, "v", 3, o, 1, 0, 0) || draw(dir, "beta", 2, o, 1, -1, 0);
    bad |= draw(dir, "g", kda ? 3 : 2, g, raw ? 0.05 : 1, 0, raw);
    bad |= draw(dir, "h0", 4, h, 1, 0, 0) || draw(dir, "dht", 4, h, 1, 0, 0);
    bad |= draw(dir, "do", 3, o, 1, 0, 0);
    if (!raw)
        bad |= draw(dir, "A_log", 1, g + 1, 0.3, -2, 0) ||
               draw(dir, "dt_bias", kda ? 2 : 1, g + 1, 0.5, -2, 0);
    return bad;
}

static int fill(char **v)
{
    static const char *const names[] = { "f8", "f4", "i8", "i4" };
    static const enum npy_kind kinds[] = { NPY_F64, NPY_F32, NPY_I64, NPY_I32 };
    struct npy a = { .nd = 0 };
    int kind = 0;
    while (kind < 3 && strcmp(names[kind], v[1])) kind++;
    a.kind = kinds[kind];
    for (char *s = v[2]; *s && a.nd < NPY_RANK; s += *s == ',')
        a.dim[a.nd++] = strtoll(s, &s, 10);
    const int64_t n = npy_count(a.nd, a.dim);
    double *x = a.data = malloc(8 * (size_t)n + 8);
    for (int64_t e = 0; x && e < n; e++)
        if (kind < 2) x[e] = atof(v[3]);
        else ((int64_t *)a.data)[e] = atoll(v[3]);
    const int bad = !x || npy_write(v[0], &a, why, sizeof why);
    free(x);
    return bad ? fail() : 0;
}

static int poke(char **v)
{
    struct npy a;
    if (npy_read(v[0], &a, why, sizeof why) != 0) return fail();
    const int64_t e = atoll(v[1]), n = npy_count(a.nd, a.dim);
    int bad = e < 0 || e >= n;
    if (!bad && (a.kind == NPY_I64 || a.kind == NPY_I32))
        ((int64_t *)a.data)[e] = atoll(v[2]);
    else if (!bad) ((double *)a.data)[e] = atof(v[2]);
    bad = bad ? npy_error(why, sizeof why, v[0], "has no element %" PRId64, e)
              : npy_write(v[0], &a, why, sizeof why);
    npy_free(&a);
    return bad ? fail() : 0;
}

/* Replaces array [R,...] by the sum [...] of its rows. Row r is rank r's part. If rows
 * 0 and 1 are equal, sets nd to 0, so that `add` fails, because parts must differ. */
static void add_rows(struct npy *a)
{
    double *x = a->data;
    const int64_t rows = a->nd && a->kind < NPY_I64 ? a->dim[0] : 0;
    const int64_t n = rows ? npy_count(a->nd, a->dim) / rows : 0;
    if (rows < 2 || n == 0 || memcmp(x, x + n, sizeof *x * (size_t)n) == 0) {
        a->nd = 0;
        return;
    }
    for (int64_t r = 1; r < rows; r++)
        for (int64_t e = 0; e < n; e++) x[e] += x[r * n + e];
    memmove(a->dim, a->dim + 1, sizeof *a->dim * (size_t)--a->nd);
}

static int read_two(char **v, struct npy *a, struct npy *b)
{
    if (npy_read(v[0], a, why, sizeof why) != 0) return fail();
    if (npy_read(v[1], b, why, sizeof why) == 0) return 0;
    npy_free(a);
    return fail();
}

/* Computes |a - b| and |b| of arrays of floating-point numbers. */
static void norms(const struct npy *a, const struct npy *b, double *error, double *size)
{
    const double *x = a->data, *y = b->data;
    *error = *size = 0;
    for (int64_t e = 0; e < npy_count(b->nd, b->dim) && b->kind < NPY_I64; e++) {
        *error += (x[e] - y[e]) * (x[e] - y[e]);
        *size += y[e] * y[e];
    }
    *error = sqrt(*error);
    *size = sqrt(*size);
}

static int compare(char **v, int add)
{
    struct npy a, b;
    if (read_two(v, &a, &b)) return 1;
    if (add) add_rows(&a);
    const double tolerance = atof(v[2]);
    double error = 0, size = 0;
    int bad = a.kind != b.kind || a.nd != b.nd ||
              memcmp(a.dim, b.dim, sizeof *a.dim * (size_t)a.nd) != 0;
    if (!bad) {
        norms(&a, &b, &error, &size);
        bad = tolerance > 0 ? !(error <= tolerance * size)
            : memcmp(a.data, b.data, 8 * (size_t)npy_count(b.nd, b.dim)) != 0;
    }
    if (bad)
        fprintf(stderr, "%s and %s differ: %g of %g\n", v[0], v[1], error, size);
    npy_free(&a);
    npy_free(&b);
    return bad;
}

/* Checks RMS(a - b) <= tolerance RMS(b), or equal bits if tolerance is 0. */
static int same(char **v) { return compare(v, 0); }
static int add(char **v) { return compare(v, 1); }

static int off(char **v)
{
    struct npy a, b;
    double error = 0, size = 0;
    if (read_two(v, &a, &b)) return 1;
    int bad = a.kind != NPY_F64 || b.kind != NPY_F64 ||
              npy_count(a.nd, a.dim) != npy_count(b.nd, b.dim);
    if (!bad) norms(&a, &b, &error, &size);
    bad = bad || !isfinite(error);
    if (bad)
        fprintf(stderr, "%s, %s: need equal sizes, finite doubles\n", v[0], v[1]);
    else
        printf("%.2e\n", error > 0 ? error / size : error);
    npy_free(&a);
    npy_free(&b);
    return bad;
}

/* Writes A, of float64 or int64, as numpy.save writes an array in Fortran order. */
static int fortran(char **v)
{
    struct npy a;
    char shape[200], head[400];
    if (npy_read(v[0], &a, why, sizeof why) != 0) return fail();
    const int64_t n = npy_count(a.nd, a.dim);
    FILE *f = fopen(v[1], "wb");
    npy_shape(a.nd, a.dim, shape, sizeof shape);
    shape[0] = '(';
    snprintf(shape + strlen(shape) - 1, 3, ",)");
    const int m = snprintf(head, sizeof head, "{'descr': '<%s', 'fortran_order': True, "
                           "'shape': %s, }\n", a.kind == NPY_I64 ? "i8" : "f8", shape);
    if (f)
        fprintf(f, "\x93NUMPY%c%c%c%c%s", 1, 0, m & 255, m >> 8, head);
    /* In the file, the first index changes fastest. */
    int64_t at[NPY_RANK] = { 0 };
    for (int64_t e = 0; f && e < n; e++) {
        int64_t from = 0;
        for (int d = 0; d < a.nd; d++) from = from * a.dim[d] + at[d];
        fwrite((char *)a.data + 8 * from, 8, 1, f);
        for (int d = 0; d < a.nd && ++at[d] == a.dim[d]; d++) at[d] = 0;
    }
    npy_free(&a);
    if (f && fclose(f) == 0) return 0;
    npy_error(why, sizeof why, v[1], "cannot be written");
    return fail();
}

/* Writes rows of A, whose elements have eight bytes. */
static int rows(char **v)
{
    struct npy a;
    if (npy_read(v[0], &a, why, sizeof why) != 0) return fail();
    const int64_t first = strtoll(v[1], NULL, 10), end = strtoll(v[2], NULL, 10);
    char *data = a.data;
    int bad = a.nd < 1 || first < 0 || end < first || end > a.dim[0];
    if (bad) npy_error(why, sizeof why, v[0], "has no such rows");
    else {
        const int64_t of = a.dim[0] > 0 ? a.dim[0] : 1;
        a.data = data + 8 * first * (npy_count(a.nd, a.dim) / of);
        a.dim[0] = end - first;
        bad = npy_write(v[3], &a, why, sizeof why) != 0;
    }
    a.data = data;
    npy_free(&a);
    return bad ? fail() : 0;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int more; int (*run)(char **); } verbs[] = {
        { "layer", 10, layer }, { "fill", 4, fill }, { "poke", 3, poke },
        { "same", 3, same }, { "off", 2, off },
        { "add", 3, add }, { "fortran", 2, fortran }, { "rows", 4, rows },
    };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (argc == verbs[i].more + 2 && strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argv + 2);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("kcp-arrays %s\n", kcp_version());
        return 0;
    }
    fprintf(stderr, "kcp-arrays: wrong arguments; see the head of arrays.c\n");
    return 2;
}
