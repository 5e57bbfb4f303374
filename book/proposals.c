/* proposals.c -- measures the error of approximations that other papers propose.
 *
 * Book: chapter 20, which shows the output.  Checked by: make book.
 * Next: book/trained.c, the same for a trained model's keys.
 *
 * Tokens are drawn as in the figure of chapter 05: random unit keys, gates with a given
 * mean, beta = sigmoid(N(b,1)); K = V = 64. Any two alike keys have cosine c. */
#include "maps.h"
#include "base/random.h"

#include <stdint.h>
#include <stdio.h>

enum { RANKS = 8, SHARD = 512 };
struct regime { const char *name; double strength, beta, alike; };
static const struct regime regimes[] = {
    { "no decay, small beta", 0, -7, 0 }, { "mean gate 1/1024", 1.25 / 1024, -3, 0 },
    { "mean gate 1/128", 1.25 / 128, -3, 0 }, { "strong gates", -1, 0, 0 } };
enum { REGIMES = sizeof regimes / sizeof *regimes };

static uint64_t seed;

static double normal(void) { return random_normal(&seed); }

static double unit(double x[K])
{
    double length = 0;
    for (int i = 0; i < K; i++)
        length += x[i] * x[i];
    for (int i = 0; i < K; i++)
        x[i] /= sqrt(length);
    return sqrt(length);
}

/* Returns a random token of a regime. */
static struct token draw(const void *regime, int t)
{
    const struct regime *g = regime;
    struct token x;
    for (int i = 0; i < K; i++)
        x.k[i] = normal();
    for (int j = 0; j < V; j++)
        x.v[j] = normal();
    x.beta = 1 / (1 + exp(-g->beta - normal()));
    unit(x.k);
    for (int i = 0; i < K; i++) {        /* moves k towards (1, .. 1) */
        const double z = normal();
        const double own = g->strength < 0 ? -log1p(exp(-z)) : -g->strength * fabs(z);
        x.fade[i] = exp(own);
        x.k[i] = sqrt(1 - g->alike) * x.k[i] + sqrt(g->alike / K);
    }
    unit(x.k);
    return x;
}

/* ---- the rank of M, to 1 % of |M| */
/* Prints a row of the table; returns the rank of M - D, or of M - I without decay. */
static int ranks_of(const struct regime *g, int tokens)
{
    static double X[K][W], A[K][K], S[K][K], D[K];
    double one[K];
    for (int i = 0; i < K; i++)
        one[i] = 1;
    seed = 3;
    map_tokens(draw, g, 0, tokens, 0, X, D);
    map_M(X, NULL, A);
    const double all = squares(A);
    const int whole = rank_for_a_percent(A, all);
    map_M(X, one, A);
    const int less_one = rank_for_a_percent(A, all);
    const int by_itself = rank_for_a_percent(A, squares(A));
    map_M(X, D, A);
    const int less_D = rank_for_a_percent(A, all);
    map_state(X, S);
    printf("%9.1e %8d %8d %8d %8d %10d\n", sqrt(all / K), less_one, less_D, whole,
           rank_for_a_percent(S, squares(S)), by_itself);
    return less_D;
}

static void low_rank(void)
{
    static const double beta[] = { -7, -3, 0 };
    static const int length[] = { 64, 512, 2048 };
    printf("== 19-low-rank\nranks that keep the error under 1 %% of |M|, of %d; D is "
           "the product of the\ndecays; the last column asks for 1 %% of |M - I| "
           "instead\n\n", K);
    printf("gates         beta  keys  tokens  |M|/sqrt(K)   M - I    M - D        M"
           "        S  M - I, own\n");
    for (int decay = 0; decay < 3; decay++)
        for (int b = 0; b < 3; b++)
            for (int alike = 0; alike < 2; alike++)
                for (int n = 0; n < 3; n++) {
                    const struct regime g = { "", decay ? regimes[decay].strength : 0,
                                              beta[b], alike ? 0.9 : 0 };
                    if ((alike || b != 1) && n != 1 && !(b == 0 && !alike))
                        continue;
                    printf("%-12s %5.3f   %.1f  %6d    ",
                           decay ? regimes[decay].name + 5 : "none",
                           1 / (1 + exp(-beta[b])), g.alike, length[n]);
                    const int rank = ranks_of(&g, length[n]);
                    if (b == 0 && !decay && !alike && n == 1)
                        printf("@20/rank_small %d\n@20/rank_most %d\n", rank, K);
                    if (b == 1 && decay == 1 && !alike && n == 1)
                        printf("@20/rank_live %d\n", rank);
                }
    printf("%-12s %5.3f   %.1f  %6d    ", "strong", 0.5, 0., SHARD);
    ranks_of(&regimes[3], SHARD);
}

/* ---- the error of the last rank's state if every M is sent as D + a rank-r matrix */
static void exchanged(void)
{
    static double X[RANKS][K][W], D[RANKS][K], exact[K][V], S[K][V];
    static const int rank[] = { 2, 4, 8, 16, 32 };
    double said = 0;
    static const struct regime list[] = {
        { "no decay, small beta", 0, -7, 0 }, { "no decay", 0, -3, 0 },
        { "mean gate 1/1024", 1.25 / 1024, -3, 0 },
        { "mean gate 1/128", 1.25 / 128, -3, 0 },
        { "1/1024, keys alike", 1.25 / 1024, -3, 0.9 } };
    printf("== 19-low-rank-state\nthe state with which rank %d of %d begins, ranks of "
           "%d tokens: its error when\nM travels as D + U V^T of rank r; numbers a "
           "head, beside M's %d\n\n%-22s", RANKS - 1, RANKS, SHARD, K * K, "");
    for (int i = 0; i < 5; i++)
        printf("   r = %-4d", rank[i]);
    printf("\n%-22s", "numbers");
    for (int i = 0; i < 5; i++)
        printf("   %-8d", K + 2 * K * rank[i]);
    printf("\n");
    for (size_t n = 0; n < sizeof list / sizeof *list; n++) {
        seed = 6;
        for (int r = 0; r < RANKS - 1; r++)
            map_tokens(draw, &list[n], 0, SHARD, 0, X[r], D[r]);
        map_fold(X, NULL, RANKS - 1, K, exact);
        printf("%-22s", list[n].name);
        for (int i = 0; i < 5; i++) {
            map_fold(X, D, RANKS - 1, rank[i], S);
            printf("   %-8.1e", apart(S, exact));
            said = n == 0 && rank[i] == 32 ? 100 * apart(S, exact) : said;
        }
        printf("\n");
    }
    printf("@20/rank_state %.1f\n", said);
}

/* ---- the state that enters the last rank, from the maps of the nearest ranks only */
static void truncated(void)
{
    static double X[RANKS][K][W], S[K][V], near[K][V], D[K];
    printf("== 19-truncated\nthe state with which rank %d of %d begins, ranks of %d "
           "tokens: error when only\nthe nearest ranks count\n\n", RANKS - 1, RANKS,
           SHARD);
    printf("gates                  nearest        two       four\n");
    for (int g = 1; g < REGIMES; g++) {
        seed = 4;
        for (int r = 0; r < RANKS; r++)
            map_tokens(draw, &regimes[g], 0, SHARD, 0, X[r], D);
        map_fold(X, NULL, RANKS - 1, K, S);
        printf("%-20s", regimes[g].name);
        for (int n = 1; n <= 4; n *= 2) {
            map_fold(X + RANKS - 1 - n, NULL, n, K, near);
            printf(" %10.1e", apart(near, S));
        }
        printf("\n");
    }
}

/* ---- the error of the state if tokens with a small beta write nothing */
static void skipped(void)
{
    static const double least[] = { 0.005, 0.01, 0.02, 0.05 };
    static double X[K][W], x[K][V], y[K][V], D[K];
    printf("== 19-skipped\na rank of %d tokens, beta = sigmoid(N(-3,1)), mean gate "
           "1/1024\n\nbeta under   left out   error of S\n", SHARD);
    seed = 5;
    map_tokens(draw, &regimes[1], 0, SHARD, 0, X, D);
    map_state(X, y);
    for (int i = 0; i < 4; i++) {
        seed = 5;
        const int n = map_tokens(draw, &regimes[1], 0, SHARD, least[i], X, D);
        map_state(X, x);
        printf("%10.3f %8.0f %% %12.1e\n", least[i], 100. * n / SHARD, apart(x, y));
    }
}

int main(void)
{
    low_rank();
    exchanged();
    truncated();
    skipped();
    return 0;
}
