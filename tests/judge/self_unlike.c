/* self_unlike.c -- a case's words about its inputs are read, or refused, by each stage.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.  Next: inputs.c.
 */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = 8 };

static int drawn(struct tensor_set *b, const char *stage, const char *model,
                 const char *more)
{
    struct kcase k;
    char text[200], why[200];
    snprintf(text, sizeof text, "live %s HV=2 K=8 V=6 C=16 D=3 lengths=60 %s", model,
             more);
    if (case_parse(text, &k, why, sizeof why)) return KCP_BAD;
    return inputs_draw(b, &k, stage_find(stage), KCP_F64);
}

static double dot(const double *x, const double *y)
{
    double sum = 0;
    for (int i = 0; i < K; i++) sum += x[i] * y[i];
    return sum;
}

/* The cosine of neighbours, at the mean; how many rows are 0; the longest's length. */
static double rows_of(const struct tensor *t, double *longest, int *none)
{
    const double (*x)[K] = t->p;
    const int64_t rows = t->n / K;
    double sum = 0;
    *none = 0;
    *longest = 0;
    for (int64_t i = 0; i < rows; i++) {
        *none += dot(x[i], x[i]) < 1e-20;
        *longest = fmax(*longest, sqrt(dot(x[i], x[i])));
        if (i) sum += dot(x[i], x[i - 1])
                    / sqrt(dot(x[i], x[i]) * dot(x[i - 1], x[i - 1]) + 1e-30);
    }
    return sum / (double)(rows - 1);
}

/* How many numbers are exactly so. */
static int exactly(const struct tensor *t, double x)
{
    int n = 0;
    for (int64_t i = 0; i < t->n; i++) n += ((double *)t->p)[i] == x;
    return n;
}

static void read_by(struct kcp_report *rep, const char *stage, const char *model,
                    const char *const *rows)
{
    for (; *rows; rows++) {
        struct tensor_set b = { 0 };
        double longest;
        int none;
        EXPECT(rep, !drawn(&b, stage, model, "alike=0.9"), "a case");
        const double c = rows_of(tensor_find(&b, *rows), &longest, &none);
        EXPECT(rep, fabs(c - 0.9) < 0.05 && longest < 1.001, "%s %s: cosine %g", model,
               *rows, c);
        EXPECT(rep, !drawn(&b, stage, model, "null big"), "a case");
        rows_of(tensor_find(&b, *rows), &longest, &none);
        EXPECT(rep, none > 5, "%s %s: %d null rows", model, *rows, none);
        EXPECT(rep, fabs(*(double *)tensor_find(&b, "v")->p) > 10, "v is not large");
        EXPECT(rep, !drawn(&b, stage, model, "plain"), "a case");
        rows_of(tensor_find(&b, *rows), &longest, &none);
        EXPECT(rep, longest > 1.1, "%s %s: the longest row is %g", model, *rows,
               longest);
        tensor_set_free(&b);
    }
}

static int unlike(struct kcp_report *rep)
{
    static const char *const keys[] = { "k", NULL }, *const both[] = { "k", "a", NULL };
    struct tensor_set b = { 0 };
    struct kcase k;
    char why[200];
    read_by(rep, "15", "kda", keys);
    read_by(rep, "16", "dplr", both);
    read_by(rep, "16", "gdn2", keys);
    read_by(rep, "16", "gla", keys);
    EXPECT(rep, !drawn(&b, "16", "gdn2", "exact"), "a case");
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = tensor_find(&b, i ? "omega" : "b");
        EXPECT(rep, exactly(t, 0) == t->n / 3 && exactly(t, 1) == t->n / 3, "%s: %d",
               t->name, exactly(t, 1));
    }
    EXPECT(rep, !drawn(&b, "15", "kda", "exact"), "a case");
    EXPECT(rep, exactly(tensor_find(&b, "beta_base"), 1e3) == 40, "15's beta of 1");
    tensor_set_free(&b);
    for (int i = 0; i < kcp_nstages; i++) {       /* what is asked can be asked again */
        const struct kcp_stage *s = &kcp_stages[i];
        for (int wide = 0; wide < 2; wide++) {
            int n;
            struct kcase *list = cases_anchors(s, wide, 1, 0, 0, &n);
            for (int j = 0; j < n; j++)
                EXPECT(rep, !inputs_ignore(s, &list[j]), "%s ignores %s", s->name,
                       inputs_ignore(s, &list[j]));
            free(list);
        }
    }
    static const char *const refused[][3] = {
        { "14", "live alike=0.9", "alike" }, { "16", "gla exact", "exact" },
        { "15", "kda spike lb=-1", "lb" },   { "14", "live big", "big" } };
    for (int i = 0; i < 4; i++) {
        EXPECT(rep, !case_parse(refused[i][1], &k, why, sizeof why), "%s", why);
        const char *word = inputs_ignore(stage_find(refused[i][0]), &k);
        EXPECT(rep, word && !strcmp(word, refused[i][2]), "%s of %s is not refused",
               refused[i][1], refused[i][0]);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_unlike) = { "00_judge", "unlike",
    "alike, null, plain, big and exact reach the inputs of 15 and 16, or are refused",
    unlike };
