/* example_more.c -- runs the worked example of chapters 06, 14 and 16.
 * Book: chapters 06, 14 and 16. */
#include "example.h"

/* ---- 06: the context of each rank of the example */
static void plan(void)
{
    struct kcp_plan *p = ranks(2);
    printf("== 06-example\n       tokens  local cu  first  last  pre  post  conv tokens"
           "  others read: h_ext  M\n");
    for (int r = 0; r < 2; r++) {
        const struct kcp_context *x = &p->ctx[r];
        const struct kcp_segment *s = &p->seg[x->seg0];
        const int want = kcp_plan_want(p, x->seg0, 0);
        printf("rank %d  %d..%d    %d %d       %d      %d     %d    %d     %6d "
               "%19s %5s\n", r, (int)x->begin, (int)x->end - 1, x->cu_seqlens[0],
               x->cu_seqlens[1], s->first, s->last, x->pre_num_ranks, x->post_num_ranks,
               (int)x->pre_num_conv_tokens, want & KCP_WANT_H ? "yes" : "no",
               want & KCP_WANT_M ? "yes" : "no");
    }
    kcp_plan_free(p);
}

/* ---- 06: the context of each of three ranks, for two sequences */
static void plan_table(void)
{
    static const int64_t cu[] = { 0, 5, 12 };
    struct kcp_plan *p;
    const char *why;
    if (kcp_plan_make(&p, 2, cu, 3, NULL, 0, 4, 4, &why)) fail(why);
    printf("== 06-plan\n       tokens   local cu    sequences  pre  post  is_first  "
           "is_last  conv tokens\n");
    for (int r = 0; r < 3; r++) {
        const struct kcp_context *x = &p->ctx[r];
        char local[32] = "", seq[32] = "";
        for (int i = 0; i <= x->n_local; i++)
            snprintf(local + strlen(local), sizeof local - strlen(local), "%d ",
                     x->cu_seqlens[i]);
        for (int i = 0; i < x->n_local; i++)
            snprintf(seq + strlen(seq), sizeof seq - strlen(seq), "%d ", x->seq[i]);
        printf("rank %d  %2d..%-2d   %-10s  %-9s  %3d  %4d  %8d  %7d  %11d\n", r,
               (int)x->begin, (int)x->end - 1, local, seq, x->pre_num_ranks,
               x->post_num_ranks,
               x->is_first_rank, x->is_last_rank, (int)x->pre_num_conv_tokens);
    }
    kcp_plan_free(p);
}

/* ---- 14 and 16 on R ranks: each rank writes its own rows of shared arrays */
struct job {
    const struct kcp_plan *p;
    int shift;
    enum kcp_model model;
    double y[T][V], o[T][V], ht[K][V];
    double g[T][K], a[T][K], b[T][K], omega[T][V], v[T][V];
};

static const double weight[V][WC] = { { 0.5, 1 }, { 0.5, 1 } };

static int conv(struct kcp_comm *comm, void *arg)
{
    struct job *j = arg;
    const struct kcp_plan *p = j->p;
    const int r = comm->r;
    const int64_t t = p->ctx[r].begin;
    STAGE(kcp_conv, a);
    a.D = V; a.Wc = WC; a.shift = j->shift; a.comm = comm;
    a.x = ex_v[t]; a.weight = weight; a.y = j->y[t];
    return ref_conv(&a);
}

static int family(struct kcp_comm *comm, void *arg)
{
    struct job *j = arg;
    const struct kcp_plan *p = j->p;
    const int r = comm->r;
    const int64_t t = p->ctx[r].begin;
    STAGE(kcp_family, a);
    a.model = j->model; a.comm = comm;
    a.q = ex_q[t]; a.k = ex_k[t]; a.v = j->v[t]; a.g = j->g[t]; a.a = j->a[t];
    a.b = j->b[t]; a.omega = j->omega[t]; a.o = j->o[t]; a.ht = j->ht;
    return ref_family(&a);
}

static void run(struct job *j, int R, int (*body)(struct kcp_comm *, void *))
{
    struct kcp_plan *p = ranks(R);
    char why[160];
    j->p = p;
    if (kcp_threads_run(R, body, j, why, sizeof why)) fail(why);
    kcp_plan_free(p);
}

static void halo(void)
{
    static struct job one, two, shifted;
    run(&one, 1, conv);
    run(&two, 2, conv);
    shifted.shift = 1;
    run(&shifted, 2, conv);
    same(one.y[0], two.y[0], T * V, "y on two ranks differs from one rank's");
    printf("== 14-conv\n          x              y, W = 2       y, shift = 1\n");
    for (int t = 0; t < T; t++)
        printf("token %d  %4.1f  %4.1f     %4.1f  %4.1f     %4.1f  %4.1f   rank %d%s\n",
               t, ex_v[t][0], ex_v[t][1], two.y[t][0], two.y[t][1], shifted.y[t][0],
               shifted.y[t][1], t == 2, t == 2 ? ", with token 1 as its halo" : "");
}

/* Sets the inputs of `model` so that DPLR and GDN-2 compute the same o as KDA. */
static void tell(struct job *j, enum kcp_model model)
{
    j->model = model;
    for (int t = 0; t < T; t++)
        for (int i = 0; i < K; i++) {
            const double beta = ex_beta[t];
            j->g[t][i] = ex_log2_decay[t][i] * log(2);
            j->a[t][i] = exp(j->g[t][i]) * ex_k[t][i];
            j->b[t][i] = model == KCP_DPLR ? -beta * ex_k[t][i] : beta;
            j->omega[t][i] = beta;
            j->v[t][i] = (model == KCP_DPLR ? beta : 1) * ex_v[t][i];
        }
}

static void models(void)
{
    static const struct { const char *name; enum kcp_model model; } row[] = {
        { "KDA as DPLR", KCP_DPLR }, { "KDA as GDN-2", KCP_GDN2 }, { "GLA", KCP_GLA } };
    static struct job one[3], two[3];
    for (int m = 0; m < 3; m++) {
        tell(&one[m], row[m].model);
        tell(&two[m], row[m].model);
        run(&one[m], 1, family);
        run(&two[m], 2, family);
        same(one[m].o[0], two[m].o[0], T * V, "o on two ranks differs from one rank's");
    }
    recurrence(T);
    same(o[0], two[0].o[0], T * V, "DPLR's o differs from KDA's");
    same(o[0], two[1].o[0], T * V, "GDN-2's o differs from KDA's");
    printf("== 16-family\n         ");
    for (int m = 0; m < 3; m++) printf(" %-23s", row[m].name);
    printf("\n");
    for (int t = 0; t < T; t++) {
        printf("o_%d ", t);
        for (int m = 0; m < 3; m++)
            printf("   %10.6f %10.6f", two[m].o[t][0], two[m].o[t][1]);
        printf("   rank %d\n", t == 2);
    }
}

int main(void)
{
    plan_table();
    plan();
    halo();
    models();
    return 0;
}
