/* trained.c -- measures chapter 20's approximations on a trained model's keys, gates
 * and beta.
 *
 * Book: chapter 20, which shows the output.  Checked by: make book.
 * Next: book/parts.c, the proposals whose verdict is a count of measured parts.
 *
 * book/examples/torch/keys.py wrote book/data/keys.npy: the first 512 tokens of the
 * README in a model of two KDA layers of two heads, K = V = 64. The model was trained
 * on this book for 600 steps of 512 bytes, to 1.92 nats per byte of the README. */
#include "maps.h"
#include "base/npy.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 4, TOKENS = 512, RANKS = 8, PART = TOKENS / RANKS, SHARD = 512,
       ROW = 2 * K + V + 1 };
static double (*data)[TOKENS][ROW];

/* Returns token t of a head: `head` points at the rows of its tokens. */
static struct token token_of(const void *head, int t)
{
    const double *row = (const double *)head + (int64_t)t * ROW;
    struct token x;
    memcpy(x.k, row, sizeof x.k);
    memcpy(x.v, row + K, sizeof x.v);
    for (int i = 0; i < K; i++)
        x.fade[i] = exp(row[K + V + i]);
    x.beta = row[ROW - 1];
    return x;
}

/* ---- statistics of the model's keys, gates and beta */
static void described(void)
{
    printf("== 20-trained-keys\nfour heads of the trained model, first %d tokens of "
           "unseen text\n\nhead   mean beta   beta under 0.02   mean g   slowest "
           "channel's g   |cosine| of keys\n", TOKENS);
    for (int h = 0; h < HEADS; h++) {
        double beta = 0, g = 0, slow = -1e9, cosine = 0;
        int small = 0;
        for (int i = 0; i < K; i++) {
            double own = 0;
            for (int t = 0; t < TOKENS; t++)
                own += data[h][t][K + V + i] / TOKENS;
            g += own / K;
            slow = fmax(slow, own);
        }
        for (int t = 0; t < TOKENS; t++) {
            double c = 0;
            beta += data[h][t][ROW - 1] / TOKENS;
            small += data[h][t][ROW - 1] < 0.02;
            for (int i = 0; i < K; i++)
                c += data[h][t][i] * data[h][(t * 7 + 131) % TOKENS][i];
            cosine += fabs(c) / TOKENS;
        }
        printf("%d.%d %12.2f %15.0f %% %8.3f %23.4f %18.2f\n", h / 2, h % 2, beta,
               100. * small / TOKENS, g, slow, cosine);
    }
}

/* ---- the smallest share of entries without which the norm is at most 1 % of |all| */
static int larger(const void *a, const void *b)
{
    const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x < y) - (x > y);
}

static double entries(double A_[K][K], double of)
{
    static double A[K * K];
    double left = 0;
    int n = K * K;
    memcpy(A, A_, sizeof A);
    qsort(A, K * K, sizeof *A, larger);
    while (n > 0 && (left += A[n - 1] * A[n - 1]) <= 1e-4 * of)
        n--;
    return 100. * n / (K * K);
}

/* Returns the smallest percentage of rows of S (key channels) such that the norm of all
 * other rows is at most 1 % of |S|. */
static double rows_kept(double S[K][K])
{
    double row[K] = { 0 }, left = 0, all = 0;
    int n = K;
    for (int i = 0; i < K; i++) {
        for (int v = 0; v < V; v++)
            row[i] += S[i][v] * S[i][v];
        all += row[i];
    }
    qsort(row, K, sizeof *row, larger);
    while (n > 0 && (left += row[n - 1]) <= 1e-4 * all)
        n--;
    return 100. * n / K;
}

static void sparse(void)
{
    static double X[K][W], A[K][K], S[K][K], D[K];
    printf("== 20-trained\none rank of %d tokens, trained keys; what leaves out 1 %% "
           "of |M|, of |S|: ranks\nof %d, per cent of entries, per cent of S's "
           "rows\n\n", SHARD, K);
    int low = K, high = 0, low_S = K, high_S = 0;
    double most = 0;
    printf("head  |M|/sqrt(K)   rank M - D     M     S   entries M - D     M     S   "
           "rows S\n");
    for (int h = 0; h < HEADS; h++) {
        map_tokens(token_of, data[h], 0, SHARD, 0, X, D);
        map_M(X, NULL, A);
        const double all = squares(A);
        const int rank_M = rank_for_a_percent(A, all);
        const double entries_M = entries(A, all);
        map_M(X, D, A);
        map_state(X, S);
        const int rank = rank_for_a_percent(A, all);
        const int rank_S = rank_for_a_percent(S, squares(S));
        printf("%d.%d %13.1e %12d %5d %5d %13.0f %% %3.0f %% %3.0f %% %6.0f %%\n",
               h / 2, h % 2, sqrt(all / K), rank, rank_M, rank_S, entries(A, all),
               entries_M, entries(S, squares(S)), rows_kept(S));
        low = rank < low ? rank : low;
        high = rank > high ? rank : high;
        low_S = rank_S < low_S ? rank_S : low_S;
        high_S = rank_S > high_S ? rank_S : high_S;
        most = fmax(most, entries(A, all));
    }
    printf("@20/trained_low %d\n@20/trained_high %d\n@20/trained_S_low %d\n"
           "@20/trained_S_high %d\n@20/trained_entries %.0f\n", low, high, low_S,
           high_S, most);
}

/* ---- the initial state of the last of eight ranks, from some of the maps */
static void nearest(void)
{
    static double X[RANKS][K][W], D[K], S[K][V], near[K][V];
    printf("== 20-trained-near\ntrained keys: the state with which rank %d of %d "
           "begins, ranks of %d tokens,\nwhen only the nearest ranks count, and when "
           "every M travels in rank r alone; and of\na rank of %d that leaves out "
           "writes with beta under 0.02\n\nhead   nearest      two     four    "
           "r = 4    r = 8   r = 16   left out   error of S\n", RANKS - 1, RANKS,
           PART, SHARD);
    double worst = 0, least = 1;
    for (int h = 0; h < HEADS; h++) {
        for (int r = 0; r < RANKS; r++)
            map_tokens(token_of, data[h], r * PART, PART, 0, X[r], D);
        map_fold(X, NULL, RANKS - 1, K, S);
        printf("%d.%d  ", h / 2, h % 2);
        for (int n = 1; n <= 4; n *= 2) {
            map_fold(X + RANKS - 1 - n, NULL, n, K, near);
            printf(" %8.1e", apart(near, S));
            worst = n == 1 ? fmax(worst, apart(near, S)) : worst;
            least = n == 1 ? fmin(least, apart(near, S)) : least;
        }
        for (int n = 4; n <= 16; n *= 2) {
            map_fold(X, NULL, RANKS - 1, n, near);
            printf(" %8.1e", apart(near, S));
        }
        map_tokens(token_of, data[h], 0, SHARD, 0, X[0], D);
        map_state(X[0], S);
        const int skipped = map_tokens(token_of, data[h], 0, SHARD, 0.02, X[0], D);
        map_state(X[0], near);
        printf(" %8.0f %% %12.1e\n", 100. * skipped / SHARD, apart(near, S));
    }
    printf("@20/trained_near %.0f\n@20/trained_near_least %.1f\n", 100 * worst,
           100 * least);
}

int main(void)
{
    struct npy file;
    char why[200];
    if (npy_read("book/data/keys.npy", &file, why, sizeof why)) {
        fprintf(stderr, "trained.c: %s\n", why);
        return 1;
    }
    if (file.nd != 3 || file.dim[0] != HEADS || file.dim[1] != TOKENS ||
        file.dim[2] != ROW) {
        fprintf(stderr, "trained.c: book/data/keys.npy: found another shape, expected "
                "[%d,%d,%d]\n", HEADS, TOKENS, ROW);
        return 1;
    }
    data = file.data;
    described();
    sparse();
    nearest();
    npy_free(&file);
    return 0;
}
