/* run.c -- runs one step of the model on R threads, one rank per thread.
 * Book: chapters 08 and 13. */
#include "text.h"
#include <stdlib.h>
#include <string.h>

//> program
/* Runs forward, loss and backward. The gradient of a parameter is a sum over tokens:
 * `part` has one row per segment, and these rows are added in the order of segments. */
static int forward_backward(struct rank *a, double *part, int64_t n, double *sum)
{
    struct run *run = a->run;
    const int last = a->comm->r == a->comm->R - 1;
    double busy = busy_seconds();
    model_embed(a);
    trace_mark(MARK_EMBED, busy);
    int status = layer_conv(a, KCP_FORWARD);
    if (!status) status = run->oracle ? oracle_layer(a, KCP_FORWARD) : layer_forward(a);

    busy = busy_seconds();
    if (!status) status = model_loss(a, part, n);
    model_into_layer(a);
    trace_mark(MARK_LOSS, busy);
    if (!status)
        status = run->oracle ? oracle_layer(a, KCP_BACKWARD) : layer_backward(a);
    if (!status) status = layer_conv(a, KCP_BACKWARD);

    busy = busy_seconds();
    if (!status) model_gradients(a, part, n);
    if (!status) status = kcp_segment_sum(run->plan, a->comm, part, n, sum);
    trace_mark(MARK_GRAD, busy);
    for (int p = 0; p < PARAMS && last && !status; p++)
        if (p < P_CQ || p == P_BBIAS)
            memcpy(run->grad + param_at(p), sum + param_at(p),
                   sizeof *sum * (param_at(p + 1) - param_at(p)));
    if (last && !status) run->loss = sum[n - 1];
    return status;
}

/* Runs one rank, which reads and writes only rows begin..end of every tensor. */
static int body(struct kcp_comm *comm, void *arg)
{
    struct run *run = arg;
    struct rank a = { .run = run, .comm = comm, .ctx = &run->plan->ctx[comm->r] };
    const int64_t n = param_at(PARAMS) + 1;
    a.T = a.ctx->end - a.ctx->begin;
    for (int i = 0; i < TENSORS; i++)
        a.t[i] = run->tensor[i] + a.ctx->begin * tensor_row[i];

    double *part = calloc((a.ctx->NS + 1) * n, sizeof *part);
    int status = part ? KCP_OK : KCP_NO_MEMORY;
    if (!status) status = comm->barrier(comm, NULL);
    trace_on(&run->lane[comm->r]);
    if (!status) status = forward_backward(&a, part, n, part + a.ctx->NS * n);
    trace_on(NULL);
    free(a.saved);
    free(part);
    return status;
}
//< program

int run_open(struct run *run, const struct text *text, int R, enum kcp_form form)
{
    memset(run, 0, sizeof *run);
    run->text = text;
    run->form = form;
    const char *why;
    const int64_t state = VALUE_HEADS * KEY * VALUE;
    const int status = kcp_plan_make(&run->plan, text->N, text->cu, R, NULL, 0, CHUNK,
                                     TAPS, &why);
    if (status) return status;
    for (int i = 0; i < TENSORS; i++) run->numbers += tensor_row[i] * text->T;
    double *at = malloc(sizeof *at * (run->numbers + 1));
    run->tensor[0] = at;
    for (int i = 0; at && i < TENSORS; at += tensor_row[i++] * text->T)
        run->tensor[i] = at;
    run->grad = malloc(sizeof *run->grad * (param_at(PARAMS) + 1));
    run->ht = calloc(2 * text->N * state, sizeof *run->ht);
    run->dh0 = run->ht + text->N * state;
    run->M = calloc(run->plan->S * VALUE_HEADS * KEY * KEY, sizeof *run->M);
    if (run->tensor[0] && run->grad && run->ht && run->M) return KCP_OK;
    run_close(run);
    return KCP_NO_MEMORY;
}

/* Runs a step. First sets all tensors to 0, because products are added to them. */
int run_step(struct run *run, const double *theta)
{
    memset(run->tensor[0], 0, sizeof(double) * run->numbers);
    memset(run->grad, 0, sizeof(double) * (param_at(PARAMS) + 1));
    memset(run->lane, 0, sizeof run->lane);
    run->theta = theta;
    return kcp_threads_run(run->plan->R, body, run, run->why, sizeof run->why);
}

void run_close(struct run *run)
{
    kcp_plan_free(run->plan);
    free(run->tensor[0]);
    free(run->grad);
    free(run->ht);
    free(run->M);
    memset(run, 0, sizeof *run);
}
