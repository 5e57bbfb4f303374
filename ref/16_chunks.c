/* 16_chunks.c -- computes a model's form (arrays w, u, kg, qg, Aqk) for all chunks.
 * Book: chapter 16. */
#include "16_family.h"

#include <math.h>
#include <string.h>

/* Allocates all arrays. Computes x->cu, the segments' boundaries in rows of the
 * form. With m rows per token, token t has rows m * t .. m * (t + 1) - 1. */
int family_prepare(struct family_rank *x)
{
    const struct kcp_family *a = x->a;
    const int m = x->m->rows, *cu = a->cu;
    const int64_t T = a->T, R = T * m * a->HV, C = a->C;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int64_t map = KV + (int64_t)a->HV * a->K * a->K;
    struct rank_arrays *own = &x->own;
    memcpy(&x->form, a, sizeof x->form);
    x->form.model = KCP_KDA; x->form.KG = a->K;
    x->form.T = T * m;
    x->form.C = a->C * m;
    x->cu = rank_zeros(own, a->NS + 1);
    x->G_t = rank_zeros(own, T * a->HV * a->K);
    x->G = m > 1 ? rank_zeros(own, R * a->K) : x->G_t;
    x->u = rank_zeros(own, R * a->V); x->w = rank_zeros(own, R * a->K);
    x->Aqk = rank_zeros(own, R * m * C);
    x->kg = rank_zeros(own, R * a->K); x->qg = rank_zeros(own, R * a->K);
    x->bk = rank_zeros(own, 2 * C * a->K); x->L = rank_zeros(own, C * C);
    x->z = rank_zeros(own, C * a->V);
    x->h_start = rank_zeros(own, a->NS * KV); x->states = rank_zeros(own, a->NS * KV);
    x->ends = rank_zeros(own, a->NS * KV); x->maps = rank_zeros(own, a->NS * map);
    x->o = rank_zeros(own, R * a->V); x->v_new = rank_zeros(own, R * a->V);
    x->h = rank_zeros(own, a->NC * KV); x->h_out = rank_zeros(own, a->NS * KV);
    if (a->pass == KCP_BACKWARD) {
        x->dG = a->dg ? a->dg : rank_zeros(own, T * a->HV * a->K);
        x->dO = rank_zeros(own, R * a->V); x->dAqk = rank_zeros(own, R * m * C);
        x->dv_local = rank_zeros(own, R * a->V); x->dU = rank_zeros(own, R * a->V);
        x->dh = rank_zeros(own, a->NC * KV); x->dh_in = rank_zeros(own, a->NS * KV);
    }
    for (int s = 0; s <= a->NS && !own->full; s++)
        x->cu[s] = T > 0 ? cu[s] * m : 0;   /* T = 0: cu may be NULL */
    return own->full ? KCP_NO_MEMORY : KCP_OK;
}

/* Returns the rows of head n of tensor p [.,heads,width] and of its gradient d,
 * starting at row t. */
static struct family_rows rows(const void *p, const void *d, int64_t t, int heads,
                               int n, int width)
{
    const int64_t at = (t * heads + n) * width;
    return (struct family_rows){ p ? (const double *)p + at : NULL,
                                 d ? (double *)d + at : NULL, (int64_t)heads * width };
}

/* Returns the data of value head n of chunk c, which begins at token t. */
static struct family_chunk chunk_at(const struct family_rank *x, int s, int c,
                                    int64_t t, int n)
{
    const struct kcp_family *a = x->a;
    const int HV = a->HV, K = a->K, V = a->V, m = x->m->rows, C = a->C;
    const int64_t left = a->cu[s + 1] - t, e = t * m;
    const int64_t KV = (int64_t)K * V;
    struct family_chunk y = { .c = left < C ? left : C, .rows = m, .K = K, .V = V,
                              .scale = a->scale, .L = x->L, .z = x->z };
    y.q = rows(a->q, a->dq, t, a->H, n / (HV / a->H), K);
    y.k = rows(a->k, a->dk, t, a->H, n / (HV / a->H), K);
    y.v = rows(a->v, a->dv, t, HV, n, V);
    y.omega = rows(a->omega, a->domega, t, HV, n, V);
    y.a = rows(a->a, a->da, t, HV, n, K); y.b = rows(a->b, a->db, t, HV, n, K);
    y.G = rows(x->G_t, x->dG, t, HV, n, K); y.dO = rows(a->do_, NULL, t, HV, n, V);
    y.bk = rows(x->bk, x->bk + C * K, 0, 1, 0, K);
    y.u = rows(NULL, x->u, e, HV, n, V); y.w = rows(NULL, x->w, e, HV, n, K);
    y.kg = rows(NULL, x->kg, e, HV, n, K); y.qg = rows(NULL, x->qg, e, HV, n, K);
    y.Aqk = rows(NULL, x->Aqk, e, HV, n, C * m);
    y.v_new = rows(x->v_new, NULL, e, HV, n, V); y.dU = rows(x->dU, NULL, e, HV, n, V);
    y.dAqk = rows(x->dAqk, NULL, e, HV, n, C * m);
    y.h = x->h + (c * HV + n) * KV;
    y.dh = x->dh ? x->dh + (c * HV + n) * KV : NULL;
    return y;
}

/* Adds to dG the gradient through the chunk's decay: dG_last += exp2(G_last) sum_v h
 * dS. Then computes, in place, dg_t = sum of dG over tokens t .. last. */
static void gates(const struct family_chunk *y)
{
    const int last = y->c - 1;
    for (int p = 0; p < y->K; p++) {
        double s = 0;
        for (int v = 0; v < y->V; v++)
            s += y->h[p * y->V + v] * y->dh[p * y->V + v];
        drow(y->G, last)[p] += exp2(row(y->G, last)[p]) * s;
        for (int i = last - 1; i >= 0; i--)
            drow(y->G, i)[p] += drow(y->G, i + 1)[p];
    }
}

/* Computes the form of every chunk and head, or the form's adjoint if `back` is 1. */
void family_every(struct family_rank *x, int back)
{
    const struct kcp_family *a = x->a;
    const int *cu = a->cu, *cn = a->cn;
    for (int s = 0; s < a->NS; s++)
        for (int c = cn[s]; c < cn[s + 1]; c++)
            for (int n = 0; n < a->HV; n++) {
                const int64_t t = cu[s] + (int64_t)(c - cn[s]) * a->C;
                const struct family_chunk y = chunk_at(x, s, c, t, n);
                if (!back) {
                    x->m->form(&y);
                    continue;
                }
                memset(y.bk.d, 0, sizeof(double) * a->C * a->K);
                x->m->form_back(&y);
                gates(&y);
            }
}
