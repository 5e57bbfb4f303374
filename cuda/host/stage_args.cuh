// stage_args.cuh -- arrays of a whole pass by field name, and arguments of its stages.
// Book: chapters 08 and 13, "Code: kernels".
#pragma once

#include "workspace.cuh"

// The arrays of a pass. A field name denotes the same array in all stages. Arrays that
// a pass does not have are NULL.
struct pass_arrays {
    const int *cu, *cn, *sc;
    const void *q_raw, *k_raw, *v, *g_raw, *beta_raw;     // the caller's
    const void *A_log, *dt_bias, *h0, *do_, *dht;
    void *o, *ht, *dq_raw, *dk_raw, *dv, *dg_raw, *dbeta_raw, *dA_log, *ddt_bias, *dh0;
    void *q, *k, *rstd_q, *rstd_k, *g, *G, *beta;         // chapter 02
    void *Aqk, *A, *u, *w, *kg, *qg;                      // 03
    void *v_new, *h;                                      // 04
    void *dAqk, *dv_local, *dU, *dh;                      // 09
    void *dq, *dk, *dbeta, *dg;                           // 10
    void *dA_part, *ddt_part;                             // 02, summed over the ranks
    int *want;                                            // per token range: 05, 11
    void *h_start, *map, *h_in, *h_out;                   // 05, 04
    void *dh_end, *dmap, *dh_out, *dh_in;                 // 11, 09
};

#define KCP_FIELD(io, when, name, shape, storage) x->name = a->name;
static inline void take_args(struct pass_arrays *x, const struct kcp_forward *a)
{
#include "stages/08.def"
}

static inline void take_args(struct pass_arrays *x, const struct kcp_backward *a)
{
#include "stages/13.def"
}
#undef KCP_FIELD

// Fills the fields of a stage's args struct.
#define KCP_FIELD(io, when, name, shape, storage) a->name = x.name;
static inline void give_args(struct kcp_gate *a, const struct pass_arrays &x)
{
#include "stages/02.def"
}

static inline void give_args(struct kcp_wy *a, const struct pass_arrays &x)
{
#include "stages/03.def"
}

static inline void give_args(struct kcp_chunk *a, const struct pass_arrays &x)
{
#include "stages/04.def"
}

static inline void give_args(struct kcp_affine *a, const struct pass_arrays &x)
{
#include "stages/05.def"
}

static inline void give_args(struct kcp_chunk_backward *a, const struct pass_arrays &x)
{
#include "stages/09.def"
}

static inline void give_args(struct kcp_wy_backward *a, const struct pass_arrays &x)
{
#include "stages/10.def"
}

static inline void give_args(struct kcp_merge_backward *a, const struct pass_arrays &x)
{
#include "stages/11.def"
}
#undef KCP_FIELD

// Returns a stage's args struct: this rank's call, followed by the stage's fields.
template <class Args>
static inline Args stage_args(const struct kcp_call *call, const struct pass_arrays &x)
{
    Args a = {};
    memcpy((void *)&a, call, sizeof *call);
    give_args(&a, x);
    return a;
}

// Places the results that forward saves only with KCP_SAVE_ALL: in the saved block, or
// with other save modes in the workspace, because backward recomputes these results.
template <class X>
static void place_recomputed(struct arena *r, const struct kcp_call *a,
                             struct pass_arrays *x)
{
    const int64_t TV = a->T * a->HV;
    x->G = arena_named(r, "G", TV * a->KG, sizeof(float));
    x->u = arena_named(r, "u", TV * a->V, sizeof(X));
    x->w = arena_named(r, "w", TV * a->K, sizeof(X));
    if (a->model == KCP_KDA) {
        x->kg = arena_named(r, "kg", TV * a->K, sizeof(X));
        x->qg = arena_named(r, "qg", TV * a->K, sizeof(X));
    }
    x->v_new = arena_named(r, "v_new", TV * a->V, sizeof(X));
    x->h = arena_named(r, "h", (int64_t)a->NC * a->HV * a->K * a->V, sizeof(X));
}
