/* layer.c -- runs the layer on arrays: stages 14 and 08 forward, then 13 and 14
 * backward.
 * Book: chapters 08, 13, 14. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* Names of the convolutions' arrays and of their gradients: `x` is the input, `w` the
 * weights, `x0` the rows that precede a sequence, and `xt` a sequence's last rows. */
static const struct { const char *x, *dx, *w, *dw, *x0, *dx0, *xt, *dxt; } names[] = {
    { "q_raw", "dq_raw", "w_q", "dw_q", "x0_q", "dx0_q", "xt_q", "dxt_q" },
    { "k_raw", "dk_raw", "w_k", "dw_k", "x0_k", "dx0_k", "xt_k", "dxt_k" },
    { "v", "dv", "w_v", "dw_v", "x0_v", "dx0_v", "xt_v", "dxt_v" },
};
static const char conv_rows[] = "N Wc-1 D";

/* Returns the sizes of the convolution of q (i = 0), k (1) or v (2). */
static struct kcp_call conv_sizes(const struct run *x, int i)
{
    const struct tensor *w = tensor_find(&x->a, names[i].w);
    struct kcp_call own = x->size;
    own.D = (int)w->dim[0];
    own.Wc = (int)w->dim[1];
    return own;
}

/* Loads x0 (rows before each sequence) or dxt (gradient of xt), if the file exists. */
static int load_rows(struct run *x, int i, const char *name)
{
    struct kcp_call own = conv_sizes(x, i);
    if (!array_exists(x, name)) return 0;
    if (array_load(x, &own, name, name, conv_rows, KCP_ACTV) != 0) return -1;
    return array_check(x, tensor_find(&x->a, name), 0);
}

/* Loads the weights [D,Wc] of --conv: D channels of all heads, Wc taps. */
static int load_conv(struct run *x)
{
    const struct kcp_call *z = &x->size;
    const char *s = x->o.conv;
    int count = 0;
    for (int more = 1; more; more = *s++ == ',') {
        char file[1024];
        const size_t n = strcspn(s, ",");
        if (n == 0 || n >= sizeof file || count == 3) break;
        snprintf(file, sizeof file, "%.*s", (int)n, s);
        struct kcp_call own = x->size;
        own.D = count < 2 ? z->H * z->K : z->HV * z->V;
        own.Wc = -1;
        if (array_load(x, &own, names[count].w, file, "D Wc", KCP_ACC) != 0 ||
            array_check(x, tensor_find(&x->a, names[count].w), 0) != 0)
            return -1;
        count++;
        s += n;
    }
    if (count != 3 || s[-1])
        return run_error(x, RUN_BAD, "--conv", "found '%.80s', expected "
                         "three files, such as wq.npy,wk.npy,wv.npy", x->o.conv);
    x->conv = 1;
    for (int i = 0; i < 3; i++)
        if (load_rows(x, i, names[i].x0) != 0 ||
            (x->both && load_rows(x, i, names[i].dxt) != 0))
            return -1;
    return 0;
}

static int load_all(struct run *x)
{
    if (plan_read(x) != 0 || inputs_load(x, kcp_stage_find("08")) != 0) return -1;
    x->both = array_exists(x, "do");
    if (!x->both && (array_exists(x, "dht") || array_exists(x, "dxt_q")))
        x->note = "dht.npy and dxt_*.npy are ignored, because do.npy is missing";
    if (x->both && inputs_load(x, kcp_stage_find("13")) != 0) return -1;
    return x->o.conv ? load_conv(x) : 0;
}

static int make_outs(struct run *x)
{
    if (outputs_make(x, kcp_stage_find("08")) != 0 ||
        (x->both && outputs_make(x, kcp_stage_find("13")) != 0))
        return -1;
    for (int i = 0; x->conv && i < 3; i++) {
        const struct kcp_call own = conv_sizes(x, i);
        const int before = x->both && tensor_find(&x->a, names[i].x0);
        if (array_out(x, &own, names[i].xt, names[i].xt, conv_rows, KCP_ACTV) != 0)
            return -1;
        if (x->both &&
            array_out(x, &own, names[i].dw, names[i].dw, "D Wc", KCP_ACC) != 0)
            return -1;
        if (before &&
            array_out(x, &own, names[i].dx0, names[i].dx0, conv_rows, KCP_ACTV) != 0)
            return -1;
    }
    return sums_check(x);
}

/* ---- one rank */

static void *array_of(struct run *x, const char *name)
{
    struct tensor *a = tensor_find(&x->a, name);
    return a ? a->p : NULL;
}

/* Returns the args of the convolution of q (0), k (1) or v (2) on this rank. */
static struct kcp_conv conv_args(struct run *x, int i, struct kcp_comm *comm)
{
    struct kcp_conv a;
    struct tensor *w = tensor_find(&x->a, names[i].w);
    struct tensor *dw = tensor_find(&x->a, names[i].dw);
    rank_args(x, kcp_stage_find("14"), comm, KCP_FORWARD, &a);
    a.D = (int)w->dim[0];
    a.Wc = (int)w->dim[1];
    a.weight = w->p;
    a.x0 = array_of(x, names[i].x0);
    a.xt = array_of(x, names[i].xt);
    a.dxt = array_of(x, names[i].dxt);
    a.dx0 = array_of(x, names[i].dx0);
    const int64_t at = x->plan->ctx[comm->r].begin * a.D;
    int64_t first, n;
    a.x = (double *)tensor_find(&x->a, names[i].x)->p + at;
    if (dw) {
        a.dx = (double *)tensor_find(&x->a, names[i].dx)->p + at;
        array_part(x, dw, comm->r, &first, &n);
        a.dweight = (double *)dw->p + first;
    }
    return a;
}

struct rank {
    struct kcp_conv conv[3];
    struct kcp_forward f;
    struct kcp_backward b;
    double *y[6];              /* convolved q, k, v, and their gradients */
};

static int rank_forward(struct run *x, struct rank *a, struct kcp_comm *comm)
{
    struct rank_report *report = &x->report[comm->r];
    const double start = seconds_now();
    int status = KCP_OK;
    rank_args(x, kcp_stage_find("08"), comm, KCP_FORWARD, &a->f);
    if (x->o.gate == KCP_GATE_RAW) a->f.A_log = a->f.dt_bias = NULL;
    for (int i = 0; x->conv && i < 3 && !status; i++) {
        a->conv[i] = conv_args(x, i, comm);
        const size_t n = (size_t)(a->f.T * a->conv[i].D + 1);
        a->conv[i].y = a->y[i] = malloc(sizeof(double) * n);
        a->y[i + 3] = x->both ? malloc(sizeof(double) * n) : NULL;
        if (!a->y[i] || (x->both && !a->y[i + 3])) return KCP_NO_MEMORY;
        status = stage_call(x, kcp_stage_find("14"), &a->conv[i], comm);
    }
    if (x->conv) {
        a->f.q_raw = a->y[0];
        a->f.k_raw = a->y[1];
        a->f.v = a->y[2];
    }
    a->f.saved_bytes = kcp_layer_saved(&x->layer, (const struct kcp_call *)&a->f);
    report->saved = x->both ? a->f.saved_bytes : 0;
    if (x->both) a->f.saved = saved_alloc(x, a->f.saved_bytes);
    if (x->both && !a->f.saved) return KCP_NO_MEMORY;
    status = status ? status : stage_call(x, kcp_stage_find("08"), &a->f, comm);
    report->sent[KCP_FORWARD] = comm->traffic;
    report->seconds[KCP_FORWARD] = seconds_now() - start;
    return status;
}

static int rank_backward(struct run *x, struct rank *a, struct kcp_comm *comm)
{
    struct rank_report *report = &x->report[comm->r];
    const double start = seconds_now();
    comm->traffic = (struct kcp_traffic){ 0, 0, 0 };
    rank_args(x, kcp_stage_find("13"), comm, KCP_BACKWARD, &a->b);
    a->b.q_raw = a->f.q_raw;
    a->b.k_raw = a->f.k_raw;
    a->b.v = a->f.v;
    a->b.saved = a->f.saved;
    a->b.saved_bytes = a->f.saved_bytes;
    if (x->o.gate == KCP_GATE_RAW)
        a->b.A_log = a->b.dt_bias = a->b.dA_log = a->b.ddt_bias = NULL;
    if (x->conv) {
        a->b.dq_raw = a->y[3];
        a->b.dk_raw = a->y[4];
        a->b.dv = a->y[5];
    }
    int status = stage_call(x, kcp_stage_find("13"), &a->b, comm);
    for (int i = 0; x->conv && i < 3 && !status; i++) {
        a->conv[i].pass = KCP_BACKWARD;
        a->conv[i].dy = a->y[i + 3];
        status = stage_call(x, kcp_stage_find("14"), &a->conv[i], comm);
    }
    report->sent[KCP_BACKWARD] = comm->traffic;
    report->seconds[KCP_BACKWARD] = seconds_now() - start;
    return status;
}

/* If this rank failed, sends its error message to the other ranks. */
static int rank_status(struct kcp_comm *comm, int status)
{
    if (status && status != KCP_COMM && kcp_why()[0])
        comm->fail(comm, status, kcp_why());
    return status;
}

static int layer_rank(struct kcp_comm *comm, void *arg)
{
    struct run *x = arg;
    struct rank a = { .y = { NULL } };
    int status = rank_forward(x, &a, comm);
    if (!status && x->both) status = rank_backward(x, &a, comm);
    for (int i = 0; i < 6; i++) free(a.y[i]);
    saved_free(x, a.f.saved);
    return rank_status(comm, status);
}

/* Checks that sums over ranks have the same bits on every rank, and that all results
 * are finite. */
static int outs_check(struct run *x)
{
    for (int i = 0; i < x->a.n; i++) {
        struct tensor *a = &x->a.t[i];
        if (a->out && x->o.gate == KCP_GATE_RAW &&
            strncmp(a->shape, "HV", 2) == 0)
            memset(a->p, 0, sizeof(double) * (size_t)(a->n * a->copies));
        for (int r = 1; a->out && r < a->copies; r++)
            if (memcmp(a->p, (double *)a->p + r * a->n, sizeof(double) * (size_t)a->n))
                return run_error(x, RUN_FAILED, a->file, "expected equal sums, "
                                 "but the sums on ranks 0 and %d differ", r);
        if (a->out && array_check(x, a, 0) != 0) return -1;
    }
    return 0;
}

int layer_run(struct run *x)
{
    if (load_all(x) != 0 || plan_make(x) != 0 || make_outs(x) != 0) return -1;
    if (ranks_run(x, x->plan->R, layer_rank) != 0) return -1;
    return x->mpi.r == 0 ? outs_check(x) : 0;      /* other ranks have a part */
}
