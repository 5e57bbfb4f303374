/* made_call.h -- builds a call of any stage from the stage's field table. Arrays have
 * exactly the bytes of their shapes. */
#pragma once

#include "base/tensor_set.h"
#include "layer.h"

#include <stdlib.h>
#include <string.h>

enum { MADE_FIELDS = 48 };

union made_args {                          /* of any stage */
    struct kcp_call call;
    struct kcp_step step;
    struct kcp_forward forward;
    struct kcp_backward backward;
    struct kcp_conv conv;
    struct kcp_scan scan;
    struct kcp_family family;
    char bytes[1024];
};

struct made_call {
    const struct kcp_stage *stage;
    union made_args a;
    void *array[MADE_FIELDS];
    int64_t numbers[MADE_FIELDS];          /* 4 or 8 bytes each */
    void *saved;
};

/* Returns the number of elements of a shape, or -1 if a size is negative or the number
 * exceeds `most`. */
static inline int64_t made_numbers(const struct kcp_call *c, const char *shape,
                                   int64_t most)
{
    int64_t all = 1, dim[4];
    const int n = shape_dims(c, shape, dim);
    for (int i = 0; i < n; i++) {
        if (dim[i] > most) return -1;
        all *= dim[i];
        if (all > most) return -1;
    }
    return n < 0 ? -1 : all;
}

static inline void made_set(struct made_call *m, int i, void *p)
{
    *(void **)(m->a.bytes + m->stage->fields[i].at) = p;
}

static inline int made_field(const struct made_call *m, const char *name)
{
    for (int i = 0; i < m->stage->nfields; i++)
        if (!strcmp(m->stage->fields[i].name, name)) return i;
    return -1;
}

/* Allocates the arrays for the sizes of a.call. An array with more than `most` elements
 * is NULL. Numbers are 0.1, 0.2, ... 0.7, repeated; gates are negative. */
static inline void made_arrays(struct made_call *m, int64_t most)
{
    const struct kcp_call *c = &m->a.call;
    for (int i = 0; i < m->stage->nfields; i++) {
        const struct kcp_field *f = &m->stage->fields[i];
        const int64_t n = made_numbers(c, f->shape, most);
        const size_t width = f->store == KCP_I32 ? 4 : 8;
        m->numbers[i] = n;
        m->array[i] = NULL;
        if (n >= 0) m->array[i] = calloc(n ? (size_t)n : 1, width);
        if (n == 0) {                      /* any read faults */
            free(m->array[i]);
            m->array[i] = malloc(0);
        }
        made_set(m, i, m->array[i]);
        const int is_gate = f->name[0] == 'g' || f->name[0] == 'G';
        for (int64_t e = 0; e < n && width == 8 && f->store != KCP_I64; e++)
            ((double *)m->array[i])[e] = (is_gate ? -0.1 : 0.1) * (double)(1 + e % 7);
    }
}

/* Indices describe the plan's chunks or, without a plan, one segment of all tokens. */
static inline void made_indices(struct made_call *m)
{
    const struct kcp_call *c = &m->a.call;
    const int is_rank = c->plan && c->r >= 0 && c->r < c->plan->R;
    const struct kcp_context *x = is_rank ? &c->plan->ctx[c->r] : NULL;
    for (int i = 0; i < m->stage->nfields; i++) {
        const char *name = m->stage->fields[i].name;
        const int64_t n = m->numbers[i];
        int32_t *at = m->array[i];
        const int *from = NULL;
        if (!at || n < 1) continue;
        if (x && !strcmp(name, "cu") && n == x->NS + 1) from = x->cu;
        if (x && !strcmp(name, "cn") && n == x->NS + 1) from = x->cn;
        if (x && !strcmp(name, "sc") && n == x->NC) from = x->sc;
        if (from) memcpy(at, from, sizeof *at * (size_t)n);
        else if (!x && !strcmp(name, "cu")) at[n - 1] = (int32_t)c->T;
        else if (!x && !strcmp(name, "cn")) at[n - 1] = c->NC;
        else if (!strcmp(name, "cu_seqlens")) ((int64_t *)m->array[i])[n - 1] = c->T;
        else if (!strcmp(name, "want")) for (int64_t e = 0; e < n; e++) at[e] = 3;
        else if (!strcmp(name, "active")) for (int64_t e = 0; e < n; e++) at[e] = 1;
        else if (!strcmp(name, "range")) at[1] = c->R;
    }
}

/* Builds a small call, with all arrays, that the stage's reference accepts. */
static inline void made_call(struct made_call *m, const struct kcp_stage *stage,
                             enum kcp_model model, enum kcp_pass pass,
                             const struct kcp_plan *plan, struct kcp_comm *comm)
{
    struct kcp_call *c = &m->a.call;
    const int r = comm ? comm->r : 0;
    memset(m, 0, sizeof *m);
    m->stage = stage;
    *c = (struct kcp_call){ .T = 20, .N = 1, .NS = 1, .NC = 3, .R = 1, .H = 1, .HV = 2,
        .K = 3, .V = 2, .C = 8, .D = 2, .Wc = 3,
        .KG = kcp_models[model].gates == KCP_HEAD ? 1 : 3, .model = model,
        .pass = pass, .scale = 0.5, .lower_bound = -1,
        .part = stage->facts & KCP_TWO_PARTS ? KCP_LOCAL | KCP_REVERSE : 0 };
    if (stage->facts & KCP_FOLDS) c->R = 3;
    if (plan) {
        const struct kcp_context *x = &plan->ctx[r];
        c->T = x->end - x->begin; c->N = plan->N; c->NS = x->NS; c->NC = x->NC;
        c->R = plan->R; c->C = plan->C; c->r = r; c->plan = plan; c->comm = comm;
    }
    made_arrays(m, 1 << 16);
    made_indices(m);
}

/* Makes a saved block for stage 13, with a valid header and 0 in all tensors. */
static inline void made_saved(struct made_call *m)
{
    struct kcp_backward *b = &m->a.backward;
    const size_t bytes = kcp_saved_bytes((const struct kcp_forward *)&m->a.call);
    struct kcp_saved *s = m->saved = bytes < 1 << 24 ? malloc(bytes) : NULL;
    if (!s) return;
    memset(s, 0, bytes);
    kcp_saved_begin(s, bytes, &m->a.call, "made", 8, 8);
    b->saved = s;
    b->saved_bytes = bytes;
}

static inline void made_free(struct made_call *m)
{
    for (int i = 0; i < m->stage->nfields; i++) free(m->array[i]);
    free(m->saved);
}
