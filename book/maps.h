/* maps.h -- computes the map of consecutive tokens, and the map's singular values.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/bound.c, a second implementation.
 * Next: book/proposals.c, which draws the tokens; trained.c reads those of a model.
 *
 * X [K,V+K] = [h | M] is such a map. */
#ifndef BOOK_MAPS_H
#define BOOK_MAPS_H

#include <math.h>
#include <string.h>

enum { K = 64, V = 64, W = V + K };

/* A token; fade[i] = exp(g_i) is the decay of key channel i. */
struct token { double k[K], v[V], fade[K], beta; };

static inline void map_begin(double X[K][W])
{
    memset(X, 0, sizeof(double) * K * W);
    for (int i = 0; i < K; i++)
        X[i][V + i] = 1;
}

/* Appends token x to the tokens of map X. */
static inline void map_token(const struct token *x, double X[K][W])
{
    double e[W] = { 0 };
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++) {
            X[i][j] *= x->fade[i];
            e[j] -= x->k[i] * X[i][j];
        }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < W; j++)
            X[i][j] += x->beta * x->k[i] * (e[j] + (j < V ? x->v[j] : 0));
}

/* Computes S <- M S + h, with the h of map X and the argument M. */
static inline void map_apply(double X[K][W], double M[K][K], double S[K][V])
{
    static double T[K][V];
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            T[i][v] = X[i][v];
            for (int p = 0; p < K; p++)
                T[i][v] += M[i][p] * S[p][v];
        }
    memcpy(S, T, sizeof T);
}

static inline double squares(double A[K][K])
{
    double s = 0;
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++)
            s += A[i][j] * A[i][j];
    return s;
}

static inline void turn(double A[K][K], int p, int q, double co, double si)
{
    for (int i = 0; i < K; i++) {
        const double x = A[i][p], y = A[i][q];
        A[i][p] = co * x - si * y;
        A[i][q] = si * x + co * y;
    }
}

static inline double dot(double A[K][K], int p, int q)
{
    double s = 0;
    for (int i = 0; i < K; i++)
        s += A[i][p] * A[i][q];
    return s;
}

/* One-sided Jacobi: rotates the columns of A until these are orthogonal. R gets all
 * rotations: the old A is the new A times R^T. The lengths of A's columns are its
 * singular values. */
static inline void jacobi(double A[K][K], double R[K][K])
{
    memset(R, 0, sizeof(double) * K * K);
    for (int i = 0; i < K; i++)
        R[i][i] = 1;
    for (int sweep = 0; sweep < 14; sweep++)
        for (int p = 0; p < K; p++)
            for (int q = p + 1; q < K; q++) {
                const double a = dot(A, p, p), b = dot(A, q, q), c = dot(A, p, q);
                if (fabs(c) <= 1e-14 * sqrt(a * b) || c == 0)
                    continue;
                const double z = (b - a) / (2 * c);
                const double t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z));
                const double co = 1 / sqrt(1 + t * t);
                turn(A, p, q, co, co * t);
                turn(R, p, q, co, co * t);
            }
}

/* Sorts columns by length, longest first. */
static inline void by_length(double A[K][K], int order[K])
{
    for (int p = 0; p < K; p++) {
        int q = p;
        for (; q > 0 && dot(A, order[q - 1], order[q - 1]) < dot(A, p, p); q--)
            order[q] = order[q - 1];
        order[q] = p;
    }
}

/* Returns the smallest rank at which the best approximation of A has an error of at
 * most 1 % of sqrt(`of`). `of` is the squared norm of A or of a larger matrix. */
static inline int rank_for_a_percent(double A_[K][K], double of)
{
    static double A[K][K], R[K][K];
    int order[K], n = K;
    double left = 0;
    memcpy(A, A_, sizeof A);
    jacobi(A, R);
    by_length(A, order);
    for (int p = K - 1; p >= 0; p--) {
        left += dot(A, order[p], order[p]);
        if (left > 1e-4 * of)
            break;
        n = p;
    }
    return n;
}

/* Replaces A by the best approximation of rank r, A R_r R_r^T. R_r: r columns of R. */
static inline void cut_to_rank(double A[K][K], int r)
{
    static double B[K][K], R[K][K];
    int order[K];
    memcpy(B, A, sizeof B);
    jacobi(B, R);
    by_length(B, order);
    memset(A, 0, sizeof(double) * K * K);
    for (int n = 0; n < r; n++)
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                A[i][j] += B[i][order[n]] * R[j][order[n]];
}

static inline double apart(double x[K][V], double y[K][V])
{
    double d = 0, n = 0;
    for (int i = 0; i < K; i++)
        for (int v = 0; v < V; v++) {
            d += (x[i][v] - y[i][v]) * (x[i][v] - y[i][v]);
            n += y[i][v] * y[i][v];
        }
    return sqrt(d / n);
}

/* Computes A = M - D, with the M of map X and the diagonal matrix D (NULL: 0). */
static inline void map_M(double X[K][W], const double D[K], double A[K][K])
{
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++)
            A[i][j] = X[i][V + j] - (i == j && D ? D[i] : 0);
}

/* Copies h of map X, the final state of tokens that begin with the state 0. */
static inline void map_state(double X[K][W], double S[K][V])
{
    for (int i = 0; i < K; i++)
        memcpy(S[i], X[i], sizeof(double) * V);
}

/* Returns token t of a source. */
typedef struct token token_source(const void *source, int t);

/* Computes map X of tokens from .. from+n-1 of a source, and D, the product of their
 * decays. Tokens with beta < least write nothing; returns the number of such tokens. */
static inline int map_tokens(token_source *read, const void *source, int from, int n,
                             double least, double X[K][W], double D[K])
{
    int skipped = 0;
    map_begin(X);
    for (int i = 0; i < K; i++)
        D[i] = 1;
    for (int t = from; t < from + n; t++) {
        struct token x = read(source, t);
        skipped += x.beta < least;
        x.beta = x.beta < least ? 0 : x.beta;
        map_token(&x, X);
        for (int i = 0; i < K; i++)
            D[i] *= x.fade[i];
    }
    return skipped;
}

/* Computes the state S after n maps. Each M is D plus a matrix of rank r; without D
 * (NULL) a matrix of rank r; r = K leaves M as it is. */
static inline void map_fold(double (*X)[K][W], double (*D)[K], int n, int r,
                            double S[K][V])
{
    static double M[K][K];
    memset(S, 0, sizeof(double) * K * V);
    for (int j = 0; j < n; j++) {
        map_M(X[j], D ? D[j] : NULL, M);
        if (r < K)
            cut_to_rank(M, r);
        for (int p = 0; D && p < K; p++)
            M[p][p] += D[j][p];
        map_apply(X[j], M, S);
    }
}

#endif
