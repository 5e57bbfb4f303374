/* wrong.h -- declares a second version of backward, with errors selected by flags.
 * Book: chapter 13. */
#pragma once

#include "ref.h"

#include <stdlib.h>
#include <string.h>

enum {
    NOT_TURNED = 1, OUTWARD = 2, OWN_M = 4, LAST_MAP = 8, NO_DHT = 16, NO_EXCHANGE = 64,
    NO_H0 = 128, OWN_SUM = 256, ALL_DH0 = 512, EMPTY_0 = 1024, AS_KV = 2048,
    NEIGHBOUR = 4096, TWICE = 8192, NOTHING = 1 << 14, FLOOR = 1 << 15,
    STRIPS = 1 << 16, NEXT_START = 1 << 17, OF_BLOCK = 1 << 18, STALE = 1 << 19,
    NEXT_H = 1 << 20, OTHER_HEAD = 1 << 21, WRONG_GATE = 1 << 22,
    GATE_BF16 = 1 << 24,
};

struct mistake {         /* error flags, and mutants that replace stages (or NULL) */
    int flags;
    const struct kcp_variant *c04, *c09, *wy10, *m11;
};
struct wrong_rank {
    const struct kcp_backward *a;
    const struct kcp_segment *seg;
    struct mistake x;
    struct kcp_backward on_strips;       /* *a with one segment per strip */
    struct kcp_plan *strips;
    int ngot;
    double *got[64];
    double *q, *k, *beta, *Aqk, *A, *G, *w, *u, *qg, *kg, *v_new, *h;
    double *dAqk, *dv_local, *dU, *dh, *dh_in, *states, *dmap;
    double *dq, *dk, *dbeta, *dg, *dA_part, *ddt_part;
};

static inline double *zeros(struct wrong_rank *x, int64_t n)
{
    double *p = calloc(n > 0 ? n : 1, sizeof *p);
    x->got[x->ngot++] = p;
    return p;
}

#define CALL(type, name)                                                              \
    struct type name = { 0 };                                                         \
    memcpy(&name, x->a, sizeof(struct kcp_call))
#define STAGE(type, name)                                                             \
    CALL(type, name);                                                                 \
    name.cu = x->a->cu; name.cn = x->a->cn; name.sc = x->a->sc

static inline int64_t size(const struct wrong_rank *x)
{
    return (int64_t)x->a->HV * x->a->K * x->a->V;
}

/* Returns the index of element e of [HV,K,V] in the state layout of the call. */
static inline int64_t turn(const struct wrong_rank *x, int64_t e)
{
    const int64_t K = x->a->K, V = x->a->V, n = e / (K * V), i = e / V % K, v = e % V;
    return x->a->layout == KCP_VK && !(x->x.flags & AS_KV) ? (n * V + v) * K + i : e;
}

/* wrong_recompute recomputes forward from the saved states. wrong_chunk recomputes
 * v_new and h of all chunks from h_in, the states at the start of segments. wrong_carry
 * computes dS at the end of every segment. */
int wrong_chunk(struct wrong_rank *x, const double *h_in);
int wrong_recompute(struct wrong_rank *x);
int wrong_carry(struct wrong_rank *x);
/* wrong_recompute calls these two functions (block.c) only if OF_BLOCK is set. */
int wrong_factors(struct wrong_rank *x, struct kcp_gate g, struct kcp_wy y);
void wrong_states(struct wrong_rank *x);
/* Cuts this rank's sequences into strips (parts). Returns KCP_NA for several ranks
 * or a canonical plan. */
int wrong_strips(struct wrong_rank *x);
