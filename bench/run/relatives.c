/* relatives.c -- DPLR, GDN-2, GLA and Spike-KDA as kcp-run's main job.
 *
 * Book: chapters 15, 16.  Checked by: tests/cli/run_cli.sh.  Next: stage.c.
 * Arrays are those of stage 16 or 15. Both passes run on every rank, and forward's
 * initial states are kept for backward.
 */
#include "run.h"

#include <string.h>

/* --model of a relative without --stage: its stage is the job. */
int relative_read(struct run *x)
{
    struct options *o = &x->o;
    const int spike = o->model == MODEL_SPIKE;
    x->model = o->model;
    if (spike)
        o->model = KCP_KDA;
    if (o->stage && spike && stage_of(o->stage) != stage_of("15"))
        return run_error(x, RUN_BAD, "--model", "spike is stage 15, not %.40s",
                         o->stage);
    x->relative = !o->stage && (o->model >= KCP_DPLR || spike);
    if (x->relative)
        o->stage = spike ? "15" : "16";
    return 0;
}

/* Does the model have the field? a, b, omega and their gradients differ by model. */
int relative_has(const struct run *x, const char *field)
{
    const char *name = field + (*field == 'd' && field[1]);
    if (!strcmp(name, "a"))
        return x->model == KCP_DPLR;
    if (!strcmp(name, "b"))
        return x->model == KCP_DPLR || x->model == KCP_GDN2;
    return strcmp(name, "omega") != 0 || x->model == KCP_GDN2;
}

/* Fields that are optional in the table and required by this model. */
int relative_needs(const struct run *x, const char *field)
{
    const int gate = !strcmp(field, "a") || !strcmp(field, "b") ||
                     !strcmp(field, "omega");
    return x->relative && gate && relative_has(x, field);
}

static int one_pass(struct run *x, union pass_args *a, struct kcp_comm *comm,
                    void *kept, enum kcp_pass pass)
{
    struct rank_report *report = &x->report[comm->r];
    const double start = seconds_now();
    comm->traffic = (struct kcp_traffic){ 0, 0, 0 };
    rank_args(x, x->stage, comm, pass, a);
    if (x->stage == stage_of("16"))
        a->family.h_kept = kept;
    const int status = stage_call(x, x->stage, a, comm);
    const double seconds = seconds_now() - start;
    if (pass == KCP_BACKWARD) {
        report->sent_backward = comm->traffic;
        report->backward = seconds;
    } else {
        report->sent_forward = comm->traffic;
        report->forward = seconds;
    }
    return status;
}

int relative_rank(struct kcp_comm *comm, void *arg)
{
    struct run *x = arg;
    struct rank_report *report = &x->report[comm->r];
    union pass_args a = { 0 };
    void *kept = NULL;
    rank_args(x, x->stage, comm, KCP_FORWARD, &a);
    if (x->both && x->stage == stage_of("16")) {
        const size_t state = (size_t)a.call.HV * (size_t)a.call.K * (size_t)a.call.V;
        report->saved[0] = (size_t)kcp_saved_states(&a.call) * state *
                         (x->gpu ? sizeof(float) : sizeof(double));
        kept = saved_alloc(x, report->saved[0] + 8);
        if (!kept)
            return KCP_NO_MEMORY;
    }
    int status = one_pass(x, &a, comm, kept, KCP_FORWARD);
    if (!status)
        status = rank_alive(x, x->stage, &a, &report->alive);
    if (!status && x->both)
        status = one_pass(x, &a, comm, kept, KCP_BACKWARD);
    saved_free(x, kept);
    return rank_status(comm, status);
}
