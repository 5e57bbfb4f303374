/* oracle.c -- runs the layer by the token recurrence, without chunks, maps and ranks.
 * Book: chapter 01. */
#include "text.h"
#include "layer.h"
#include "base/tensor_set.h"
#include <stdlib.h>
#include <string.h>

/* Copies the stage's inputs to the set or, if `back` is 1, outputs of the set to the
 * run. Fields that are not in the run are results of the other stage. */
static void copy_fields(struct tensor_set *set, const struct rank *a,
                        const struct kcp_stage *s, const struct kcp_call *c, int back)
{
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        void *at = layer_field(a, f->name);
        if (!at || field_in(f) == back) continue;
        const struct tensor *t = back ? tensor_find(set, f->name)
            : tensor_add(set, f->name, f->shape, f->store, c);
        if (t && back) memcpy(at, t->p, tensor_bytes(t));
        else if (t) memcpy(t->p, at, tensor_bytes(t));
    }
}

/* Adds all rows of tensor `name`, which are partial sums of a gradient, to `grad`. */
static void add_rows(const struct tensor_set *set, const char *name, double *grad)
{
    const struct tensor *t = tensor_find(set, name);
    for (int64_t i = 0; t && i < t->n; i++)
        grad[i % (t->n / t->dim[0])] += ((double *)t->p)[i];
}

int oracle_layer(struct rank *a, enum kcp_pass pass)
{
    const struct kcp_stage *gate = kcp_stage_find("02"), *step = kcp_stage_find("01");
    struct tensor_set set = { 0 };
    struct kcp_call c = layer_call(a);
    copy_fields(&set, a, gate, &c, 0);
    copy_fields(&set, a, step, &c, 0);
    int status = reference_run(&set, gate, &c);
    c.pass = pass;
    if (!status) status = reference_run(&set, step, &c);
    if (!status && pass == KCP_BACKWARD) status = reference_run(&set, gate, &c);
    if (!status) {
        copy_fields(&set, a, gate, &c, 1);
        copy_fields(&set, a, step, &c, 1);
        add_rows(&set, "dA_part", a->run->grad + param_at(P_ALOG));
        add_rows(&set, "ddt_part", a->run->grad + param_at(P_DT));
    }
    tensor_set_free(&set);
    return status;
}
