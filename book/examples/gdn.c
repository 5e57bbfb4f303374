/* gdn.c -- GDN over R ranks through the C interface: plan, comm, forward, backward.
 *
 * Book: chapters 08 and 13.  Checked by: tests/examples.sh.  Next: ../../ref/kcp.h.
 *
 *   make examples; build/gdn 3                   three threads of this process
 *   mpirun -n 3 build/gdn                        three processes
 *
 * The gate is one number a head and token, KG is 1; the exchange is the chain.
 * On GPUs the program is the same: pointers of the device, comm from kcp_nccl_over (or
 * kcp_nccl_from and your ncclComm_t), ops NULL, a stream, and in place of ref_forward
 * and ref_backward the run of a device variant (fields of storage ACTV become bf16 or
 * fp32, ACC fp32), with work_bytes from its work(). */
#include "ref.h"

#include <stdio.h>
#include <stdlib.h>

enum { T = 200, N = 2, H = 2, HV = 4, K = 16, V = 8, C = 64 };
static const int64_t cu_seqlens[N + 1] = { 0, 137, T };    /* two sequences, packed */

/* Element e of array which, the same on whatever rank it lies: in (-1, 1). */
static double number(int which, int64_t e)
{
    uint64_t x = (uint64_t)(e + 1000003 * which) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 31) * 0x94d049bb133111ebu;
    return (double)(x >> 12) / (double)(1ull << 51) - 1;
}

/* rows of width numbers, from the rank's first token on. */
static double *draw(int which, int64_t first, int64_t rows, int64_t width)
{
    double *x = malloc(sizeof *x * (size_t)(rows * width + 1));
    for (int64_t e = 0; x && e < rows * width; e++)
        x[e] = number(which, first * width + e);
    return x;
}

static double *zeros(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* The sum of |x|, weighted so that no two elements can change places unseen. */
static double digest(const double *x, int64_t first, int64_t n)
{
    double s = 0;
    for (int64_t e = 0; x && e < n; e++)
        s += x[e] * number(9, first + e);
    return s;
}

/* One rank's program: it knows the plan and its own tokens, nothing else. */
static int rank(struct kcp_comm *comm, void *arg)
{
    const struct kcp_plan *plan = arg;
    const struct kcp_context *x = &plan->ctx[comm->r];
    const int64_t t = x->begin, n = x->end - x->begin, state = (int64_t)HV * K * V;
    struct kcp_forward f = {
        .T = n, .N = N, .NS = x->NS, .NC = x->NC, .R = comm->R, .r = comm->r,
        .H = H, .HV = HV, .K = K, .V = V, .C = C, .KG = 1, .model = KCP_GDN,
        .gate = KCP_GATE_SOFTPLUS, .beta_form = KCP_BETA_SIGMOID,
        .l2norm = 1, .scale = 0.25, .form = KCP_CHAIN, .plan = plan, .comm = comm,
        .ops = &ref_mapops, .cu = x->cu, .cn = x->cn, .sc = x->sc };
    f.q_raw = draw(0, t, n, H * K), f.k_raw = draw(1, t, n, H * K);
    f.v = draw(2, t, n, HV * V), f.g_raw = draw(3, t, n, HV);
    f.beta_raw = draw(4, t, n, HV), f.A_log = draw(5, 0, 1, HV);
    f.dt_bias = draw(6, 0, 1, HV), f.h0 = draw(7, 0, N, state);
    f.o = zeros(n * HV * V), f.ht = zeros(N * state);
    f.saved_bytes = kcp_saved_bytes(&f), f.saved = malloc(f.saved_bytes + 1);
    int status = f.saved ? ref_forward(&f) : KCP_NO_MEMORY;

    struct kcp_backward b = {
        .T = f.T, .N = N, .NS = f.NS, .NC = f.NC, .R = f.R, .r = f.r, .H = H, .HV = HV,
        .K = K, .V = V, .C = C, .KG = 1, .model = f.model, .gate = f.gate,
        .beta_form = f.beta_form, .l2norm = 1,
        .scale = f.scale, .form = f.form, .plan = plan, .comm = comm, .ops = f.ops,
        .cu = f.cu, .cn = f.cn, .sc = f.sc, .q_raw = f.q_raw, .k_raw = f.k_raw,
        .v = f.v, .g_raw = f.g_raw, .beta_raw = f.beta_raw, .A_log = f.A_log,
        .dt_bias = f.dt_bias, .h0 = f.h0, .saved = f.saved,
        .saved_bytes = f.saved_bytes };
    b.do_ = draw(8, t, n, HV * V);
    b.dq_raw = zeros(n * H * K), b.dk_raw = zeros(n * H * K), b.dv = zeros(n * HV * V);
    b.dg_raw = zeros(n * HV), b.dbeta_raw = zeros(n * HV), b.dh0 = zeros(N * state);
    b.dA_log = zeros(HV), b.ddt_bias = zeros(HV);
    if (!status) status = ref_backward(&b);

    double mine[2] = { digest(f.o, t * HV * V, n * HV * V),
                       digest(b.dq_raw, t * H * K, n * H * K) };
    double *all = zeros(2 * comm->R), o = 0, dq = 0;
    if (!status)
        status = comm->all_gather(comm, mine, all, sizeof mine, NULL);
    for (int r = 0; r < comm->R; r++)
        o += all[2 * r], dq += all[2 * r + 1];
    if (!status && comm->r == 0)
        printf("GDN: o %.9f  dq %.9f  dA_log[0] %.9f\n", o, dq, *(double *)b.dA_log);
    const void *const owned[] = { f.q_raw, f.k_raw, f.v, f.g_raw, f.beta_raw, f.A_log,
        f.dt_bias, f.h0, f.o, f.ht, f.saved, b.do_, b.dq_raw, b.dk_raw, b.dv, b.dg_raw,
        b.dbeta_raw, b.dh0, b.dA_log, b.ddt_bias, all };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free((void *)owned[i]);
    return status;
}

int main(int argc, char **argv)
{
    struct kcp_who who;
    struct kcp_plan *plan;
    struct kcp_comm *comm = NULL;
    char why[200] = "";
    const char *bad;
    int status = kcp_who(&who, why, sizeof why);
    const int R = who.R > 1 ? who.R : argc > 1 ? atoi(argv[1]) : 3;
    if (!status && kcp_plan_make(&plan, N, cu_seqlens, R, NULL, 0, C, 0, &bad))
        snprintf(why, sizeof why, "%s", bad), status = KCP_BAD;
    else if (!status && who.R == 1)
        status = kcp_threads_run(R, rank, plan, why, sizeof why);
    else if (!status && !(status = kcp_processes(&comm, &who, why, sizeof why)))
        status = rank(comm, plan);
    if (status)
        fprintf(stderr, "gdn: status %d: %s\n", status, why);
    if (comm) comm->free(comm);
    return status ? status == KCP_BAD ? 2 : 1 : 0;
}
