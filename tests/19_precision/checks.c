/* checks.c -- checks how chapter 19's emulated formats round numbers.
 * Book: chapter 19. */
#include "rounding.h"
#include "base/bf16.h"
#include "tests/judge/judge.h"

/* Checks that keep() rounds to nearest even, against bf16_of and the definition of
 * TF32. */
static int roundings(struct kcp_report *rep)
{
    struct stream s = stream_of(18, "roundings");
    for (int i = 0; i < 20000; i++) {
        const double size = exp2(floor(uniform(&s) * 60 - 30));
        const float x = (float)((uniform(&s) - 0.5) * size);
        const double unit = exp2(ilogb(x) - 10), tf32 = nearbyint(x / unit) * unit;
        EXPECT(rep, bf16_value(bf16_of(x)) == keep(x, 7), "bf16_of(%a): %a", x,
               bf16_value(bf16_of(x)));
        EXPECT(rep, keep(x, 10) == tf32, "tf32 of %a: %a, not %a", x, keep(x, 10),
               tf32);
        const float y = (float)(uniform(&s) - 0.5);
        const double xy = (double)x * y, off = fabs(times(TF32X3, x, y) / xy - 1);
        EXPECT(rep, off < 0x1p-20,
               "three TF32 products of %a and %a: relative error %g, limit 2^-20", x, y,
               off);
    }
    /* Rounding to float and then to bf16 would give 1, not 1 + 2^-7. */
    EXPECT(rep, bf16_value(bf16_of(1 + 0x1p-8 + 0x1p-40)) == 1 + 0x1p-7 &&
           isinf(bf16_value(bf16_of(1e300))), "bf16_of rounds twice");
    return KCP_OK;
}
KCP_CHECK(check_18_roundings) = { "19_precision", "roundings",
    "bf16 and TF32 round to nearest even, and three TF32 products keep 20 bits",
    roundings };

static void draw(struct chunk *c, struct stream *s, int integers)
{
    for (int t = 0; t < C; t++)
        for (int p = 0; p < K; p++) {
            const double w = uniform(s) - 0.5, k = uniform(s) - 0.5;
            c->w[t][p] = integers ? rint(2 * w) : w * 0.2;
            c->kg[t][p] = integers ? t % K == p : k * 0.2;
            c->u[t][p] = integers ? rint(4 * k) : k;
        }
    for (int p = 0; p < K; p++) c->last[p] = integers ? -(p % 2) : -0.01 * p;
}

/* Returns |x - X| / |X|. Unit f computes x by applying the chunk to I; X is exact. */
static double error_of(const struct chunk *c, enum unit f)
{
    static double X[K][W];
    static float x[K][W];
    double off = 0, size = 0;
    memset(X, 0, sizeof X);
    memset(x, 0, sizeof x);
    for (int i = 0; i < K; i++) X[i][V + i] = x[i][V + i] = 1;
    exact(c, X);
    rounded(c, f, x);
    for (int i = 0; i < K; i++)
        for (int j = V; j < W; j++) {
            off += (x[i][j] - X[i][j]) * (x[i][j] - X[i][j]);
            size += X[i][j] * X[i][j];
        }
    return sqrt(off / size);
}

/* Checks that a chunk of small integers is exact in every unit (number format), and
 * that the error of other numbers fits the unit's format. */
static int chunk_in_units(struct kcp_report *rep)
{
    static const double most[UNITS] = { 3e-7, 6e-7, 4e-4, 4e-3 };
    static const double least[UNITS] = { 1e-9, 1e-9, 2e-6, 4e-4 };
    struct stream s = stream_of(18, "chunk");
    static struct chunk c;
    for (int trial = 0; trial < 20; trial++)
        for (int f = 0; f < UNITS; f++) {
            draw(&c, &s, 1);
            EXPECT(rep, error_of(&c, (enum unit)f) == 0, "unit %d: integers are off",
                   f);
            draw(&c, &s, 0);
            const double e = error_of(&c, (enum unit)f);
            EXPECT(rep, e < most[f] && e > least[f], "unit %d: error %g", f, e);
        }
    return KCP_OK;
}
KCP_CHECK(check_18_chunk) = { "19_precision", "chunk",
    "a chunk computed in each format is exact for integers, and otherwise has an "
    "error within the limit of the format", chunk_in_units };
