/* 16_family.h -- the functions that a model must supply; the rest is shared.
 *
 * Book: chapter 16.  Checked by: tests/16_family/checks.c.
 * Next: ref/16_gla.c, the shortest model; ref/16_family.c, which runs any model.
 *
 * A model is four functions. The step and its adjoint define the model token by token.
 * The form and its adjoint define the model chunk by chunk. Chapters 04, 05, 09 and 11
 * scan this form:
 *
 * v_new = u - w S      o = scale qg S + tril(Aqk) v_new      S <- Λ S + kg^T v_new.
 *
 * A token may need two rows of the form (DPLR: one for b, one for k). Then a chunk of C
 * tokens has 2 C rows, and the code of chapters 04, 05, 09 and 11 does not change. */
#ifndef KCP_16_FAMILY_H
#define KCP_16_FAMILY_H

#include "08_rank.h"

/* The rows of one token and value head. Functions add to the gradients. */
struct family_token {
    int K, V;
    const double *q, *k, *v, *g, *a, *b, *omega;
    double *dq, *dk, *dv, *dg, *da, *db, *domega;
};

/* The rows of a tensor x and of its gradient d, one row per token: the row of token i
 * starts at x + i step. */
struct family_rows { const double *x; double *d; int64_t step; };
static inline const double *row(struct family_rows y, int i)
{
    return y.x + i * y.step;
}
static inline double *drow(struct family_rows y, int i)
{
    return y.d + i * y.step;
}

/* A chunk of c tokens of value head n. Row e of the form belongs to token e / rows. */
struct family_chunk {
    int c, rows, K, V;
    double scale;
    struct family_rows q, k, v, a, b, omega, dO;      /* d is NULL in forward */
    struct family_rows bk;                 /* scratch [C,K] and its gradient */
    struct family_rows G;                  /* x: G in base 2; d: dG */
    struct family_rows u, w, kg, qg, Aqk;  /* d: outputs of form(), zero on entry */
    struct family_rows v_new, dU, dAqk;    /* x: inputs of form_back() */
    const double *h, *dh;                  /* [K,V] at the chunk's start, its end */
    void *L, *z;                           /* scratch [C,C], [C,V] */
};

//> model
struct family_model {
    const char *name;
    int rows;                              /* rows of the form per token */
    /* S [K,V] <- the state after the token. */
    void (*step)(const struct family_token *x, void *S);
    /* Changes dS from the gradient of the state after the token to the gradient of S,
     * the state before the token. */
    void (*adjoint)(const struct family_token *x, const void *S, void *dS);
    void (*form)(const struct family_chunk *x);       /* u, w, kg, qg, Aqk */
    void (*form_back)(const struct family_chunk *x);  /* to the inputs' gradients, dG */
    int diagonal;                          /* 1: M is diagonal, so K numbers are sent */
};
//< model
extern const struct family_model ref_dplr, ref_gdn2, ref_gla;
int ref_gdn2_run(const struct kcp_family *a);         /* for lab 16 */

/* kcp_family_run computes one rank's forward or backward of any model. kcp_family_walk
 * computes the same token by token, on one rank. KCP_BAD: there is no plan, or the plan
 * is of another call. */
int kcp_family_run(const struct family_model *m, const struct kcp_family *a);
int kcp_family_walk(const struct family_model *m, const struct kcp_family *a);
/* Clears the gradients to which tokens and chunks add. */
void family_clear(const struct kcp_family *a);

/* ---- parts of forms (16_form.c)
 *
 * family_score returns sum_p y_i[p] z_j[p] exp2(G_e[p] - G_j[p]); e = i, or i-1 for a
 * factor that acts before the decay. family_score_back propagates dA, the gradient of a
 * score, to the gradients of y_i, z_j, G_e and G_j. If e = j, the gradients of G cancel
 * and are omitted. */
double family_score(const struct family_chunk *x, struct family_rows y, int i, int e,
                    struct family_rows z, int j);
void family_score_back(const struct family_chunk *x, double dA, struct family_rows y,
                       int i, int e, struct family_rows z, int j);
/* family_gated computes gated [K] = exp2(G_e) y_i, e >= -1. family_gated_back
 * propagates d, the gradient of `gated`, to the gradients of y_i and G_e. */
void family_gated(const struct family_chunk *x, struct family_rows y, int i, int e,
                  double *gated);
void family_gated_back(const struct family_chunk *x, const double *d,
                       struct family_rows y, int i, int e);
/* A token writes along k in row r of its rows of the form; its query reads in its last
 * row. family_write computes kg and columns r of Aqk; family_read computes qg. The
 * functions with _back are the adjoints. */
void family_write(const struct family_chunk *x, struct family_rows k, int r);
void family_write_back(const struct family_chunk *x, struct family_rows k, int r);
void family_read(const struct family_chunk *x);
void family_read_back(const struct family_chunk *x);

/* ---- one rank's run (16_chunks.c, 16_family.c) */
struct family_rank {
    const struct family_model *m;
    const struct kcp_family *a;
    const struct kcp_plan *plan;
    struct kcp_call form;                  /* the call, with T and C counted in rows */
    struct rank_arrays own;                /* freed at the end */
    int *cu;                               /* [NS+1] in rows of the form */
    double *G_t, *G;                       /* G_t: G per token; G: per row */
    double *u, *w, *kg, *qg, *Aqk, *bk, *L, *z;
    double *h_start, *maps, *states, *o, *v_new, *h, *h_out;
    double *dO, *dAqk, *dv_local, *dU, *dh, *dh_in, *ends;
};
int   family_prepare(struct family_rank *x);
void  family_every(struct family_rank *x, int back);     /* chunk: form, or back */
void  family_diagonal(int n, int HV, int K, int V, double *maps);   /* 16_diagonal.c */

#endif
