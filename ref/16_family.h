/* 16_family.h -- the functions that a model must supply, and those that models share.
 * Book: chapter 16.
 *
 * A model has four functions. `step` and `adjoint` compute one token. `form` computes
 * the form of one chunk: the arrays w, u, kg, qg and Aqk. `form_back` is the adjoint of
 * `form`. Chapters 04, 05, 09 and 11 read the form, with Λ = diag(exp2(G_last)):
 *   v_new = u - w S      o = scale qg S + tril(Aqk) v_new      S <- Λ S + kg^T v_new.
 * If a token needs two rows of the form (DPLR: one for b, one for k), a chunk of C
 * tokens has 2 C rows. The scans' code is the same for 1 and for 2 rows per token. */
#pragma once

#include "08_rank.h"

/* Vectors of one token and value head. A model adds to the gradients dq .. domega. */
struct family_token {
    int K, V;
    const double *q, *k, *v, *g, *a, *b, *omega;
    double *dq, *dk, *dv, *dg, *da, *db, *domega;
};

//> chunk-structs
/* Rows of a tensor x and of its gradient d: row i starts at x + i * step. */
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
    struct family_rows G;                  /* G in base 2, dG */
    struct family_rows u, w, kg, qg, Aqk;  /* outputs of form() in .d, initially 0 */
    struct family_rows v_new, dU, dAqk;    /* inputs of form_back() in .x */
    const double *h, *dh;    /* [K,V]: state at start, gradient of the state at end */
    void *L, *z;                           /* scratch [C,C], [C,V] */
};
//< chunk-structs

//> model
struct family_model {
    const char *name;
    int rows;                              /* rows of the form per token */
    /* Changes S [K,V] from the state before the token to the state after the token. */
    void (*step)(const struct family_token *x, void *S);
    /* Changes dS from the gradient of the state after the token to the gradient of S,
     * which is the state before the token. */
    void (*adjoint)(const struct family_token *x, const void *S, void *dS);
    void (*form)(const struct family_chunk *x);       /* u, w, kg, qg, Aqk */
    void (*form_back)(const struct family_chunk *x);  /* gradients of inputs and of G */
};
//< model
/* ref_NAME, defined in 16_NAME.c, for each row of models.def of kind KCP_FAMILY. */
#define REF_KCP_LAYER(NAME, name)
#define REF_KCP_FAMILY(NAME, name) extern const struct family_model ref_##name;
#define REF_MODEL(NAME, name, title, kind, ...) REF_##kind(NAME, name)
KCP_MODEL_LIST(REF_MODEL)
#undef REF_KCP_FAMILY
int ref_gdn2_run(const struct kcp_family *a);         /* for lab 16 */

/* kcp_family_run computes one rank's forward or backward pass of any model.
 * kcp_family_walk computes the same pass token by token, on one rank. The caller
 * must check the call by kcp_begin first. */
int kcp_family_run(const struct family_model *m, const struct kcp_family *a);
int kcp_family_walk(const struct family_model *m, const struct kcp_family *a);
/* Sets the gradients of q, k, v, g, a, b and omega to 0. */
void family_clear(const struct kcp_family *a);

/* ---- parts of forms (16_form.c)
 *
 * family_score returns sum_p y_i[p] z_j[p] exp2(G_e[p] - G_j[p]). e is i, or i-1 if y
 * acts on the state before token i's decay. Given dA, the gradient of this score,
 * family_score_back adds to the gradients of y_i, z_j, G_e and G_j. If e = j, the
 * gradients of G cancel and are omitted. */
double family_score(const struct family_chunk *x, struct family_rows y, int i, int e,
                    struct family_rows z, int j);
void family_score_back(const struct family_chunk *x, double dA, struct family_rows y,
                       int i, int e, struct family_rows z, int j);
/* family_gated computes gated [K] = exp2(G_e) y_i, e >= -1, with G_{-1} = 0. Given d,
 * the gradient of `gated`, family_gated_back adds to the gradients of y_i and G_e. */
void family_gated(const struct family_chunk *x, struct family_rows y, int i, int e,
                  double *gated);
void family_gated_back(const struct family_chunk *x, const double *d,
                       struct family_rows y, int i, int e);
/* A token has `rows` rows of the form. Its row r adds k v^T to the state. The query
 * reads the state in the token's last row. For every token, family_write computes row r
 * of kg and column r of Aqk. family_read computes qg. *_back are the adjoints. */
void family_write(const struct family_chunk *x, struct family_rows k, int r);
void family_write_back(const struct family_chunk *x, struct family_rows k, int r);
void family_read(const struct family_chunk *x);
void family_read_back(const struct family_chunk *x);

/* ---- one rank's pass (16_chunks.c, 16_family.c) */
struct family_rank {
    const struct family_model *m;
    const struct kcp_family *a;
    const struct kcp_plan *plan;
    struct kcp_call form;                  /* T and C count rows of the form */
    struct rank_arrays own;                /* freed at the end */
    int *cu;                               /* [NS+1] in rows of the form */
    double *G_t, *G;                       /* G per token, G per row of the form */
    double *u, *w, *kg, *qg, *Aqk, *bk, *L, *z;
    double *h_start, *maps, *states, *o, *v_new, *h, *h_out;
    double *dG, *dO, *dAqk, *dv_local, *dU, *dh, *dh_in, *ends;
};
int   family_prepare(struct family_rank *x);
void  family_every(struct family_rank *x, int back);     /* form, or form_back */
void  family_diagonal(int n, int HV, int K, int V, double *maps);   /* 16_diagonal.c */
