/* bound.c -- checks the bound on |M| of a stretch; wrong bounds must fail.
 *
 * Book: chapter 20.  Checked by: itself, on bounds with one planted mistake.
 * Next: book/wire.c.
 *
 * M is the product of the tokens' maps. |M x| / |x| after some steps x <- M^T M x is a
 * lower limit of |M|; a bound below this limit is wrong. */
#include "wire.h"
#include "tests/judge/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 48, H = 2, HV = 4, K = 6, C = 16, TRIALS = 120 };
struct tokens { double k[T][H][K], g[T][HV][K], G[T][HV][K], beta[T][HV]; };

/* Draws gates of any strength, constant or alternating, and keys of any length,
 * alike or not. */
static void draw(struct tokens *a, int KG, struct stream *s)
{
    const double strength = exp2(-12 * uniform(s)), alike = uniform(s) < 0.5;
    const double length = uniform(s) < 0.3 ? 1.6 : 1, most = uniform(s) < 0.5 ? 2 : 1;
    const int turns = uniform(s) < 0.4;
    double *G = &a->G[0][0][0];
    for (int t = 0; t < T; t++) {
        for (int h = 0; h < H; h++) {
            double square = 0;
            for (int i = 0; i < K; i++) {
                a->k[t][h][i] = normal(s) + (alike ? 3 * (i < 2) : 0);
                square += a->k[t][h][i] * a->k[t][h][i];
            }
            for (int i = 0; i < K; i++)
                a->k[t][h][i] *= length / sqrt(square);
        }
        for (int n = 0; n < HV; n++) {
            a->beta[t][n] = most * uniform(s);
            for (int i = 0; i < KG; i++) {       /* alternating */
                double g = -strength * fabs(normal(s));
                if (turns)
                    g = (i + t) % 2 ? 0 : -8 * strength;
                a->g[t][n][i] = g * (HV - n);
                G[(t * HV + n) * KG + i] = a->g[t][n][i] / log(2) +
                    (t % C ? G[((t - 1) * HV + n) * KG + i] : 0);
            }
        }
    }
}

/* Returns a lower limit of |M|_2 of value head n. */
static double norm_of(const struct tokens *a, int KG, int n)
{
    double M[K][K] = { { 0 } }, x[K], y[K], size = 0;
    for (int i = 0; i < K; i++)
        M[i][i] = 1;
    for (int t = 0; t < T; t++) {
        const double *k = a->k[t][n / (HV / H)];
        for (int j = 0; j < K; j++) {
            double e = 0;
            for (int i = 0; i < K; i++) {
                M[i][j] *= exp(a->g[t][n][KG > 1 ? i : 0]);
                e += k[i] * M[i][j];
            }
            for (int i = 0; i < K; i++)
                M[i][j] -= a->beta[t][n] * k[i] * e;
        }
    }
    for (int i = 0; i < K; i++)
        x[i] = 1 + 0.1 * i;
    for (int power = 0; power < 60; power++) {
        double xx = 0, yy = 0;
        for (int i = 0; i < K; i++) {
            y[i] = 0;
            for (int j = 0; j < K; j++)
                y[i] += M[i][j] * x[j];
            xx += x[i] * x[i];
            yy += y[i] * y[i];
        }
        size = sqrt(yy / xx);
        for (int j = 0; j < K; j++) {
            x[j] = 0;
            for (int i = 0; i < K; i++)
                x[j] += M[i][j] * (yy > 0 ? y[i] / sqrt(yy) : 0);
        }
    }
    return size;
}

enum { RIGHT, FASTEST, NO_TURNS, NO_REFLECTION, NATURAL, FIRST_HEAD, TWICE, SQUARE_ROOT,
       WRONGS };
static const char *const wrong_name[] = { "", "the fastest channel", "the slowest "
    "channel of the whole stretch", "beta |k|^2 above 2 forgotten", "base e for base 2",
    "the first head for all", "the last token twice", "|k| for |k|^2" };

/* Computes the bound with mistake number `wrong`, in a deliberate copy of the code. */
static double planted(const struct tokens *a, int KG, int wrong)
{
    double bound = 0;
    for (int n = 0; n < (wrong == FIRST_HEAD ? 1 : HV); n++) {
        double sum = 0, own[K] = { 0 }, most = -INFINITY;
        for (int t = 0; t < T + (wrong == TWICE); t++) {
            const int at = t < T ? t : T - 1;
            double slow = wrong == FASTEST ? INFINITY : -INFINITY, length = 0;
            for (int i = 0; i < KG; i++) {
                const double g = a->g[at][n][i] / (wrong == NATURAL ? log(2) : 1);
                slow = wrong == FASTEST ? fmin(slow, g) : fmax(slow, g);
                own[i] += g;
            }
            for (int i = 0; i < K; i++)
                length += a->k[at][n / (HV / H)][i] * a->k[at][n / (HV / H)][i];
            if (wrong == SQUARE_ROOT)
                length = sqrt(length);
            sum += wrong == NO_TURNS ? 0 : slow;
            if (wrong != NO_REFLECTION)
                sum += log(fmax(1, fabs(1 - a->beta[at][n] * length)));
        }
        for (int i = 0; i < KG; i++)
            most = fmax(most, own[i]);
        bound = fmax(bound, exp(sum + (wrong == NO_TURNS ? most : 0)));
    }
    return bound;
}

static int bounds(struct kcp_report *rep)
{
    struct tokens *a = malloc(sizeof *a);
    struct stream s = stream_of(20, "bound");
    int passed[WRONGS] = { 0 }, near = 0;
    const int cu[2] = { 0, T };
    for (int trial = 0; trial < TRIALS && a; trial++) {
        const int KG = trial % 3 ? K : 1;
        const struct kcp_call c = { .NS = 1, .H = H, .HV = HV, .K = K, .KG = KG,
                                    .C = C };
        double bound, norm = 0;
        draw(a, KG, &s);
        kcp_decay_bound(&c, cu, &a->k[0][0][0], &a->G[0][0][0], &a->beta[0][0], &bound);
        for (int n = 0; n < HV; n++)
            norm = fmax(norm, norm_of(a, KG, n));
        EXPECT(rep, norm <= bound, "trial %d: |M| is %.17g, its bound %.17g", trial,
               norm, bound);
        near += norm > 0.5 * bound;
        for (int w = RIGHT; w < WRONGS; w++)
            passed[w] += norm > planted(a, KG, w) * (1 + 1e-9);
        EXPECT(rep, fabs(planted(a, KG, RIGHT) - bound) <= 1e-8 * bound,
               "the copy: %g, not %g", planted(a, KG, RIGHT), bound);
    }
    EXPECT(rep, passed[RIGHT] == 0, "|M| exceeds the copy %d times", passed[RIGHT]);
    EXPECT(rep, near > TRIALS / 20, "|M| exceeds half its bound only %d times", near);
    for (int w = RIGHT + 1; w < WRONGS; w++)
        EXPECT(rep, passed[w] > 0, "%s: no |M| exceeds this bound", wrong_name[w]);
    free(a);
    return a ? KCP_OK : KCP_NO_MEMORY;
}
KCP_CHECK(check_20_bound) = { "20_clusters", "bound",
    "|M| never exceeds its bound from gates and keys, but exceeds each of 7 wrong"
    " bounds", bounds };
