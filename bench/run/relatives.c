/* relatives.c -- DPLR, GDN-2, GLA and Spike-KDA as kcp-run's main job.
 *
 * Book: chapters 15, 16.  Checked by: tests/cli/run_cli.sh.  Next: stage.c.
 * Arrays are those of stage 16 or 15, which stage.c runs.
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
