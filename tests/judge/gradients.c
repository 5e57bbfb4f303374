/* gradients.c -- compares gradients with finite differences of the outputs.
 * Book: chapters 14, 15 and 16.
 *
 * Names in the field table form pairs: backward computes the gradient "dx" of an input
 * "x", and reads the gradient "dy" or "dy_" of an output "y". */
#include "judge.h"

#include <math.h>
#include <string.h>

enum { POINTS = 20 };              /* numbers tested per input */

/* Returns the loss: the sum over all outputs y of the dot product of y and dy. */
static double loss_of(const struct kcp_stage *s, const struct kcase *k,
                      const struct tensor_set *in)
{
    struct tensor_set b = { .n = 0 };
    double sum = 0;
    tensor_set_copy(&b, in);
    const int status = pipeline_one_rank(&b, s, k, KCP_FORWARD);
    for (int i = 0; i < s->nfields && !status; i++) {
        const struct kcp_field *f = &s->fields[i];
        char name[16];
        if (f->io != KCP_BIN) continue;
        snprintf(name, sizeof name, "%s", f->name + 1);
        name[strcspn(name, "_")] = 0;
        const struct tensor *dy = tensor_find(in, f->name), *y = tensor_find(&b, name);
        for (int64_t e = 0; dy && e < y->n; e++)
            sum += ((double *)y->p)[e] * ((double *)dy->p)[e];
    }
    tensor_set_free(&b);
    return status ? NAN : sum;
}

/* Returns the derivative of the loss with respect to *at by central differences at four
 * points. The result is exact up to rounding for polynomials of degree at most 4. */
static double slope(const struct kcp_stage *s, const struct kcase *k,
                    const struct tensor_set *in, double *at)
{
    const double h = 1e-3, here = *at;
    double f[4];
    for (int j = 0; j < 4; j++) {
        *at = here + h * (j < 2 ? j - 2 : j - 1);
        f[j] = loss_of(s, k, in);
    }
    *at = here;
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

/* Returns the error limit: 1e-9 if the loss is a polynomial in the input, else 1e-8. */
static double limit_of(const char *input)
{
    return has_word("q k v a b omega h0 o0", input, " ") ? 1e-9 : 1e-8;
}

static void test_input(struct kcp_report *rep, const struct kcp_stage *s,
                       const struct kcase *k, const struct tensor_set *in,
                       const struct tensor *x, const struct tensor *dx)
{
    struct stream random = stream_of(k->seed, dx->name);
    double rms = 0;
    for (int64_t e = 0; e < dx->n; e++) rms += pow(((double *)dx->p)[e], 2);
    rms = sqrt(rms / (double)dx->n);
    for (int i = 0; i < POINTS; i++) {
        const int64_t e = (int64_t)(uniform(&random) * (double)dx->n);
        const double is = ((double *)dx->p)[e];
        const double by = slope(s, k, in, (double *)x->p + e);
        const double size = fmax(fmax(rms, fabs(by)), 1e-3);
        EXPECT(rep, fabs(is - by) <= limit_of(x->name) * size,
               "%s: %s[%lld] is %.12g, expected about %.12g",
               model_name[k->call.model], dx->name, (long long)e, is, by);
    }
}

int gradients_agree(struct kcp_report *rep, const char *stage, const char *words)
{
    struct kcp_stage s = *stage_find(stage);
    struct kcase k;
    char why[160];
    if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
    for (int oracle = s.oracle != NULL; oracle >= 0; oracle--) {
        struct tensor_set in = { .n = 0 }, b = { .n = 0 };
        if (!oracle) s.oracle = NULL;
        inputs_draw(&in, &k, stage_find(stage), KCP_F64);
        tensor_set_copy(&b, &in);
        const int status = pipeline_one_rank(&b, &s, &k, KCP_BACKWARD);
        EXPECT(rep, !status, "%s: status %d", words, status);
        for (int i = 0; i < s.nfields && !status; i++) {
            const struct kcp_field *f = &s.fields[i];
            if (f->io != KCP_BOUT) continue;
            const struct tensor *x = tensor_find(&in, f->name + 1);
            const struct tensor *dx = tensor_find(&b, f->name);
            if (x && dx) test_input(rep, &s, &k, &in, x, dx);
        }
        tensor_set_free(&in);
        tensor_set_free(&b);
    }
    return KCP_OK;
}
