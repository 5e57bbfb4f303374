/* wrong.c -- calls the reference's scan with one wrong map operation or argument.
 * Book: chapter 15.
 * The scan composes and applies maps through struct kcp_mapops. Wrong map operations
 * therefore test whether the judge finds errors in the order of maps, in h and in M.
 */
#include "tests/judge/judge.h"
#include <stdlib.h>
#include <string.h>

static int in_wrong_order(int HV, int K, int V, const void *b, const void *a,
                          int backward, int a_first, void *out,
                          struct CUstream_st *stream)
{
    return ref_mapops.compose(HV, K, V, a, b, backward, a_first, out, stream);
}

/* Composes map a, then map b, but leaves out h of a: h = h_b. */
static int no_earlier_h(int HV, int K, int V, const void *b_, const void *a,
                        int backward, int a_first, void *out_,
                        struct CUstream_st *stream)
{
    const int status = ref_mapops.compose(HV, K, V, b_, a, backward, a_first, out_,
                                          stream);
    const double (*b)[V + K] = b_;
    double (*out)[V + K] = out_;
    for (int i = 0; i < HV * K; i++) memcpy(out[i], b[i], sizeof(double) * V);
    return status;
}

/* Copies the state without applying the map. In the scan's binary tree, a node's
 * right child then starts from the left child's initial state. */
static int as_it_is(int HV, int K, int V, const void *map, int backward, int first,
                    int v0, int Vb, const void *S_in, int ld_in, void *S_out,
                    int ld_out, struct CUstream_st *stream)
{
    for (int i = 0; i < HV * K && !first; i++)
        memmove((double *)S_out + (int64_t)i * ld_out,
                (double *)S_in + (int64_t)i * ld_in, sizeof(double) * Vb);
    return first ? ref_mapops.apply(HV, K, V, map, backward, first, v0, Vb, S_in, ld_in,
                                    S_out, ld_out, stream) : KCP_OK;
}

static int turned(int HV, int K, int V, const void *map, int backward, int first,
                  int v0, int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                  struct CUstream_st *stream)
{
    return ref_mapops.apply(HV, K, V, map, !backward, first, v0, Vb, S_in, ld_in, S_out,
                            ld_out, stream);
}

static int with(void *args, const struct kcp_mapops *ops)
{
    struct kcp_scan a = *(struct kcp_scan *)args;
    a.ops = ops;
    return ref_scan(&a);
}

#define OPS(ident, compose_, apply_, why)                                             \
    static int run_##ident(void *args)                                                \
    {                                                                                 \
        const struct kcp_mapops ops = { #ident, 8, apply_, compose_, ref_mapops.copy, \
                                        NULL, 0 };                                    \
        return with(args, &ops);                                                      \
    }                                                                                 \
    KCP_VARIANT(spike_##ident) = { "15_scan", #ident, why, KCP_F64, KCP_HOST, "any",  \
                                   run_##ident, NULL };
OPS(twin_scan, ref_mapops.compose, ref_mapops.apply, "correct: no wrong operation")
OPS(mutant_order, in_wrong_order, ref_mapops.apply, "composes in the wrong order")
OPS(mutant_no_earlier_h, no_earlier_h, ref_mapops.apply, "compose omits earlier h")
OPS(mutant_down_as_is, ref_mapops.compose, as_it_is, "down-sweep applies no map")
OPS(mutant_down_turned, ref_mapops.compose, turned, "down-sweep uses M^T for M")

#define ARGUMENT(ident, change, why)                                                  \
    static int run_##ident(void *args)                                                \
    {                                                                                 \
        struct kcp_scan a = *(struct kcp_scan *)args;                                 \
        change;                                                                       \
        return ref_scan(&a);                                                          \
    }                                                                                 \
    KCP_VARIANT(spike_##ident) = { "15_scan", #ident, why, KCP_F64, KCP_HOST, "any",  \
                                   run_##ident, NULL };
ARGUMENT(mutant_no_h0, a.h0 = NULL, "ignores h0")
ARGUMENT(mutant_no_o0, a.o0 = NULL, "ignores o0")
ARGUMENT(mutant_no_dht, a.dht = NULL, "ignores dht")
ARGUMENT(mutant_no_dot, a.dot = NULL, "ignores the gradient of ot")
ARGUMENT(mutant_no_drop, a.drop = NULL, "ignores the drop mask")

/* If the batch has one sequence, runs each rank as if no other rank existed. */
static int alone(void *args)
{
    const struct kcp_scan *a = args;
    struct kcp_scan b = *a;
    struct kcp_plan *p = NULL;
    int64_t cu[2] = { 0, a->T };
    if (a->N != 1) return ref_scan(&b);
    if (a->T < 1) {                        /* an empty rank has no work */
        if (a->pass) memset(a->dW_alpha, 0, sizeof(double) * a->HV * a->K * a->D);
        if (a->pass) memset(a->dw_beta, 0, sizeof(double) * a->HV * a->D);
        return KCP_OK;
    }
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    double *rows = calloc(KV + (int64_t)a->HV * a->V, sizeof *rows);
    int status = rows ? kcp_plan_make(&p, 1, cu, 1, NULL, a->plan->L, a->C, 0, NULL)
                      : KCP_NO_MEMORY;
    if (!status) {
        b.plan = p; b.R = 1; b.r = 0; b.NS = p->ctx[0].NS; b.NC = p->ctx[0].NC;
        b.cu = p->ctx[0].cu; b.cn = p->ctx[0].cn; b.sc = p->ctx[0].sc; b.comm = NULL;
        if (a->plan->ht_rank[0] != a->r) {
            b.ht = rows;
            b.ot = rows + KV;
            b.dht = b.dot = NULL;
        }
        if (a->plan->h0_rank[0] != a->r) {
            b.dh0 = rows;
            b.do0 = rows + KV;
            b.h0 = b.o0 = NULL;
        }
        status = ref_scan(&b);
    }
    free(rows);
    kcp_plan_free(p);
    return status;
}
KCP_VARIANT(spike_mutant_alone) = { "15_scan", "mutant_alone",
    "each rank computes as if no other rank existed", KCP_F64, KCP_HOST,
    "any", alone, NULL };

static int nothing(void *args) { return KCP_OK; }
KCP_VARIANT(spike_mutant_nothing) = { "15_scan", "mutant_nothing", "writes nothing",
                                      KCP_F64, KCP_HOST, "any", nothing, NULL };
