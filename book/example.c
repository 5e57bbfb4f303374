/* example.c -- runs each chapter's reference on the three tokens of the worked example.
 * Book: chapters 01 to 05, 07, 09 to 11; book.lua puts each printed section ("== name")
 * into its chapter. */
#include "example.h"

/* ---- results of stages 02 to 05 and 09 to 11 on one rank */
struct rank {
    double q[T][K], k[T][K], rq[T], rk[T], g[T][K], G[T][K], beta[T];
    double Aqk[T][C], A[T][C], u[T][V], w[T][K], kg[T][K], qg[T][K];
    double o[T][V], v_new[T][V], h[T][K][V], h_out[K][V], map[K][V + K];
    double dAqk[T][C], dvl[T][V], dU[T][V], dh[T][K][V], dh_in[K][V], dmap[K][V + K];
    double dq[T][K], dk[T][K], dv[T][V], dbeta[T], dg[T][K];
};

static void forward(const struct kcp_plan *p, int r, const double *h_in, struct rank *x)
{
    const int64_t t = p->ctx[r].begin;
    const int want = KCP_WANT_H | KCP_WANT_M;
    STAGE(kcp_gate, a);
    a.q_raw = ex_q[t];
    a.k_raw = ex_k[t];
    a.g_raw = g[t];
    a.beta_raw = ex_beta + t;
    a.q = x->q; a.k = x->k; a.rstd_q = x->rq; a.rstd_k = x->rk; a.g = x->g; a.G = x->G;
    a.beta = x->beta;
    STAGE(kcp_wy, b);
    b.q = x->q; b.k = x->k; b.v = ex_v[t]; b.G = x->G; b.beta = x->beta; b.Aqk = x->Aqk;
    b.A = x->A; b.u = x->u; b.w = x->w; b.kg = x->kg; b.qg = x->qg;
    STAGE(kcp_affine, c);
    c.want = &want; c.kg = x->kg; c.w = x->w; c.u = x->u; c.G = x->G; c.map = x->map;
    STAGE(kcp_chunk, d);
    d.qg = x->qg; d.kg = x->kg; d.u = x->u; d.w = x->w; d.Aqk = x->Aqk; d.G = x->G;
    d.h_in = h_in; d.o = x->o; d.v_new = x->v_new; d.h = x->h; d.h_out = x->h_out;
    if (ref_gate(&a) || ref_wy(&b) || ref_affine(&c) || ref_chunk(&d))
        fail("a forward stage failed");
}

static void backward(const struct kcp_plan *p, int r, const double *dh_out,
                     struct rank *x)
{
    const int64_t t = p->ctx[r].begin;
    const int want = KCP_WANT_H | KCP_WANT_M;
    STAGE(kcp_chunk_backward, a);
    a.part = KCP_LOCAL | KCP_REVERSE;
    a.qg = x->qg;
    a.kg = x->kg;
    a.w = x->w;
    a.Aqk = x->Aqk; a.v_new = x->v_new; a.G = x->G; a.do_ = ones[t]; a.dh_out = dh_out;
    a.dAqk = x->dAqk; a.dv_local = x->dvl; a.dU = x->dU; a.dh = x->dh;
    a.dh_in = x->dh_in;
    STAGE(kcp_merge_backward, b);
    b.want = &want; b.qg = x->qg; b.kg = x->kg; b.w = x->w; b.G = x->G; b.do_ = ones[t];
    b.dv_local = x->dvl; b.dmap = x->dmap;
    STAGE(kcp_wy_backward, c);
    c.q = x->q; c.k = x->k; c.v = ex_v[t]; c.G = x->G; c.beta = x->beta; c.A = x->A;
    c.v_new = x->v_new; c.h = x->h; c.do_ = ones[t]; c.dAqk = x->dAqk; c.dU = x->dU;
    c.dh = x->dh; c.dq = x->dq; c.dk = x->dk; c.dv = x->dv; c.dbeta = x->dbeta;
    c.dg = x->dg;
    if (ref_chunk_backward(&a) || ref_merge_backward(&b) || ref_wy_backward(&c))
        fail("a backward stage failed");
}

/* ---- 01: the tokens, and the states after one, two and three tokens */
static void tokens(void)
{
    recurrence(T);
    printf("== 01-tokens\ntoken   key           value       beta   decay of rows   "
           "query\n");
    for (int t = 0; t < T; t++)
        printf("%3d    (%4.1f,%4.1f)   (%4.1f,%4.1f)  %5.2f   (%4.2f, %4.2f)    (%g, "
               "%g)\n", t, ex_k[t][0], ex_k[t][1], ex_v[t][0], ex_v[t][1], ex_beta[t],
               exp(g[t][0]), exp(g[t][1]), ex_q[t][0], ex_q[t][1]);
    printf("== 01-states\n");
    for (int t = 0; t < T; t++) {
        char name[16];
        recurrence(t + 1);
        snprintf(name, sizeof name, "S_%d", t);
        show(name, &ht[0][0], K, V);
        snprintf(name, sizeof name, "o_%d", t);
        show(name, o[t], 1, V);
    }
}

/* ---- 02 to 05, 09, 10 on two ranks; rank 1 starts with rank 0's final state */
static void two_ranks(struct rank x[2])
{
    struct kcp_plan *p = ranks(2);
    forward(p, 0, NULL, &x[0]);
    forward(p, 1, &x[0].h_out[0][0], &x[1]);
    backward(p, 1, NULL, &x[1]);
    backward(p, 0, &x[1].dh_in[0][0], &x[0]);

    printf("== 02-gate\n          g (base e)            G (base 2, summed in the "
           "chunk)\n");
    for (int t = 0; t < T; t++) {
        const struct rank *y = &x[t / 2];
        printf("token %d  %9.6f %9.6f   %6.2f %6.2f%s\n", t, y->g[t % 2][0],
               y->g[t % 2][1], y->G[t % 2][0], y->G[t % 2][1],
               t == 2 ? "   a new chunk" : "");
    }
    printf("== 03-wy\n");
    show("Aqk", &x[0].Aqk[0][0], 2, C);
    show("A", &x[0].A[0][0], 2, C);
    show("u", &x[0].u[0][0], 2, V);
    show("w", &x[0].w[0][0], 2, K);
    show("kg", &x[0].kg[0][0], 2, K);
    show("qg", &x[0].qg[0][0], 2, K);
    printf("== 04-chunk\n");
    for (int r = 0; r < 2; r++) {
        const int n = r ? 1 : 2;
        printf("chunk %d, token%s\n", r, r ? " 2" : "s 0 and 1");
        show("v_new", &x[r].v_new[0][0], n, V);
        show("o", &x[r].o[0][0], n, V);
        show("S after", &x[r].h_out[0][0], K, V);
        same(&x[r].o[0][0], o[r * 2], n * V, "o of chapter 04 differs from chapter 01");
    }
    same(&x[1].h_out[0][0], &ht[0][0], K * V,
         "ht of chapter 04 differs from chapter 01");

    printf("== 05-affine\n");
    for (int r = 0; r < 2; r++) {
        double M[K][K], h[K][V];
        for (int i = 0; i < K; i++) {
            memcpy(h[i], x[r].map[i], sizeof h[i]);
            memcpy(M[i], x[r].map[i] + V, sizeof M[i]);
        }
        printf("rank %d\n", r);
        show("h_ext", &h[0][0], K, V);
        show("M", &M[0][0], K, K);
    }
    double from[K][V] = { { 1, -1 }, { 0.5, 2 } }, to[K][V];
    struct rank y;
    forward(p, 0, &from[0][0], &y);
    ref_mapops.apply(1, K, V, x[0].map, 0, 0, 0, V, from, V, to, V, NULL);
    printf("rank 0 from another state\n");
    show("S_in", &from[0][0], K, V);
    show("by map", &to[0][0], K, V);
    show("by scan", &y.h_out[0][0], K, V);
    same(&to[0][0], &y.h_out[0][0], K * V, "the map's state differs from the scan's");

    printf("== 09-backward\n");
    for (int r = 1; r >= 0; r--) {
        printf("rank %d\n", r);
        show("dU", &x[r].dU[0][0], r ? 1 : 2, V);
        show("dS end", &x[r].dh[0][0][0], K, V);
        show("dS start", &x[r].dh_in[0][0], K, V);
    }
    same(&x[0].dh_in[0][0], &dh0[0][0], K * V, "dh0 differs from the adjoint");
    printf("== 10-wy_backward\n          dq                     dk                     "
           "dg                     dbeta\n");
    for (int t = 0; t < T; t++) {
        const struct rank *z = &x[t / 2];
        const int i = t % 2;
        printf("token %d  %9.6f %9.6f   %9.6f %9.6f   %9.6f %9.6f   %9.6f\n", t,
               z->dq[i][0], z->dq[i][1], z->dk[i][0], z->dk[i][1], z->dg[i][0],
               z->dg[i][1], z->dbeta[i]);
        same(z->dq[i], dq[t], K, "dq differs from the adjoint");
        same(z->dk[i], dk[t], K, "dk differs from the adjoint");
        same(z->dv[i], dv[t], V, "dv differs from the adjoint");
        same(z->dg[i], dg[t], K, "dg differs from the adjoint");
        same(&z->dbeta[i], &dbeta[t], 1, "dbeta differs from the adjoint");
    }
    printf("largest difference from the adjoint of chapter 01: %.1e\n", worst);
    kcp_plan_free(p);
}

/* ---- 07 and 11: forward and backward folds over three ranks with one token each */
static void three_ranks(void)
{
    struct kcp_plan *p = ranks(3);
    struct rank x[3];
    double maps[3][K][V + K], S[K][V], back[3][K][V + K];
    struct kcp_merge a;
    int range[2];
    for (int r = 0; r < 3; r++) {
        forward(p, r, NULL, &x[r]);
        backward(p, r, NULL, &x[r]);
        memcpy(maps[r], x[r].map, sizeof maps[r]);
        memcpy(back[r], x[r].dmap, sizeof back[r]);
    }
    memset(&a, 0, sizeof a);
    fill((struct kcp_call *)&a, p, 0);
    a.range = range; a.S = S; a.maps = maps;
    printf("== 07-merge\n");
    static const char *const unread[] = { "; this M is not read", "",
                                          "; this map is not read" };
    for (int r = 0; r < 3; r++) {
        printf("rank %d: h_%d (left) and M_%d%s\n", r, r, r, unread[r]);
        show("", &maps[r][0][0], K, V + K);
    }
    range[0] = 0; range[1] = 2;
    if (ref_merge(&a)) fail("ref_merge failed");
    printf("S_2 = M_1 h_0 + h_1, the state with which rank 2 begins\n");
    show("", &S[0][0], K, V);
    forward(p, 2, &S[0][0], &x[2]);
    same(&x[2].h_out[0][0], &ht[0][0], K * V, "the fold's state gives a wrong ht");

    printf("== 11-merge_backward\n");
    for (int r = 2; r > 0; r--) {
        printf("rank %d: dh_%d (left) and M_%d%s\n", r, r, r,
               r == 2 ? "; this M is not read" : ", the same M_1 as forward's");
        show("", &back[r][0][0], K, V + K);
    }
    a.maps = back; a.pass = KCP_BACKWARD; range[0] = 1; range[1] = 3;
    if (ref_merge(&a)) fail("ref_merge failed");
    printf("M_1^T dh_2 + dh_1, the gradient of the state with which rank 0 ends\n");
    show("", &S[0][0], K, V);
    backward(p, 0, &S[0][0], &x[0]);
    same(&x[0].dh_in[0][0], &dh0[0][0], K * V, "the reverse fold gives a wrong dh0");
    kcp_plan_free(p);
}

int main(void)
{
    struct rank x[2];
    tokens();
    two_ranks(x);
    three_ranks();
    return 0;
}
