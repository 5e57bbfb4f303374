/* scan.c -- runs the worked example of chapter 15.
 * Book: chapter 15, which shows the output. */
#include "example.h"
#include "ref/15_scan.h"

/* ---- the three tokens, of which token 1 is dropped */
enum { TILE = 4 };
static double alpha_base[T][K], beta_base[T], spike[T], W[K], w[1], ot[V];
static const int dropped[T] = { 0, 1, 0 };

static struct kcp_scan call(const struct kcp_plan *p, int r)
{
    const struct kcp_context *c = &p->ctx[r];
    const int64_t t = c->begin;
    return (struct kcp_scan){
        .T = c->end - t, .N = 1, .NS = c->NS, .NC = c->NC, .R = p->R, .r = r, .H = 1,
        .HV = 1, .K = K, .V = V, .D = 1, .C = TILE, .plan = p, .ops = &ref_mapops,
        .cu = c->cu, .cn = c->cn, .sc = c->sc, .q = ex_q[t],
        .k = ex_k[t], .v = ex_v[t], .spike = spike + t, .alpha_base = alpha_base[t],
        .beta_base = beta_base + t, .W_alpha = W, .w_beta = w, .drop = dropped + t,
        .o = o[t], .ht = ht, .ot = ot };
}

static void show_maps(const char *name, const double *x, int cols)
{
    for (int i = 0; i < K; i++) {
        printf("%-22s", i ? "" : name);
        for (int j = 0; j < cols; j++)
            printf("%s%9.5f", j == V && cols > V ? "  |" : "",
                   x[i * cols + j] == 0 ? 0 : x[i * cols + j]);
        printf("\n");
    }
}

static void tree(void)
{
    static double map[T + 1][K * (V + K)], S[T][K * V], alpha[K];
    double *node[T] = { map[0], map[1], map[2] }, *state[T] = { S[0], S[1], S[2] };
    struct kcp_plan *p = plan_of(1, NULL, TILE);
    struct kcp_scan a = call(p, 0);
    struct spike_rank x = { .a = &a, .plan = p, .ops = &ref_mapops, .alpha = alpha,
                            .node = node, .spare = map[T] };
    scan_updates(&x, (struct tile){ 0, T, 0 }, 0);
    printf("== 15-scan\nmaps [B | A]\n");
    show_maps("token 0", node[0], V + K);
    show_maps("token 1, dropped", node[1], V + K);
    show_maps("token 2", node[2], V + K);
    if (scan_up(&x, T, 0) || scan_down(&x, T, 0, state)) fail("the scan failed");
    show_maps("up: 1 after 0", node[1], V + K);
    show_maps("up: 2 after that", node[2], V + K);
    printf("\nstates\n");
    show_maps("down: before token 0", state[0], V);
    show_maps("down: before token 1", state[1], V);
    show_maps("down: before token 2", state[2], V);
    kcp_plan_free(p);
}

static int body(struct kcp_comm *comm, void *plan)
{
    struct kcp_scan a = call(plan, comm->r);
    a.comm = comm;
    return ref_scan(&a);
}

int main(void)
{
    static const int64_t one[] = { 0, 3 }, two[] = { 0, 1, 3 };
    static const int64_t *const cuts[] = { one, two };
    double keep[T][V];
    for (int t = 0; t < T; t++) {
        beta_base[t] = log(ex_beta[t]) - log(1 - ex_beta[t]);
        for (int i = 0; i < K; i++)
            alpha_base[t][i] = log(exp2(ex_log2_decay[t][i])) -
                               log(1 - exp2(ex_log2_decay[t][i]));
    }
    tree();
    printf("\noutputs       one rank              two ranks\n");
    for (int R = 1; R <= 2; R++) {
        struct kcp_plan *p = plan_of(R, cuts[R - 1], TILE);
        char why[160];
        if (kcp_threads_run(R, body, p, why, sizeof why)) fail(why);
        kcp_plan_free(p);
        for (int t = 0; t < T && R == 2; t++) {
            printf("token %d   %9.5f %9.5f   %9.5f %9.5f   rank %d\n", t, keep[t][0],
                   keep[t][1], o[t][0], o[t][1], t > 0);
            if (memcmp(keep[t], o[t], sizeof o[t])) fail("two ranks differ from one");
        }
        memcpy(keep, o, sizeof keep);
    }
    return 0;
}
