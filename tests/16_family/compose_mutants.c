/* compose_mutants.c -- composes or applies the maps of ranks with deliberate errors.
 * Book: chapters 07, 16.
 *
 * Exchange algorithm `scan` composes maps. The other algorithms apply maps. Variants
 * twin_* run the code without an error. twin_gla_whole sends GLA's full M instead of
 * the diagonal of M.
 */
#include "tests/judge/judge.h"
#include "ref/ref.h"

enum { NONE, SWAPPED, NO_CARRY, NO_DECAY, SUMMED, WHOLE, STILL };
static _Thread_local int mistake;

static int compose(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *stream)
{
    const struct kcp_mapops *ops = &ref_mapops;
    const double *of = b;
    double *to = out;
    if (mistake == SWAPPED && !a_first)
        return ops->compose(HV, K, V, a, b, backward, a_first, out, stream);
    const int status = ops->compose(HV, K, V, b, a, backward, a_first, out, stream);
    for (int64_t i = 0; i < (int64_t)HV * K && mistake == NO_CARRY; i++)
        for (int v = 0; v < V; v++) to[i * (V + K) + v] = of[i * (V + K) + v];
    return status;
}

/* Composes maps [h | d], where d is the diagonal of M, with an error in d. Row i begins
 * at element i (V + 1). */
static int compose_diagonal(int HV, int K, int V, const void *b, const void *a,
                            int backward, int a_first, void *out,
                            struct CUstream_st *stream)
{
    const struct kcp_mapops *ops = &kcp_diagonal_mapops;
    const double *d_b = (const double *)b + V, *d_a = (const double *)a + V;
    double *d = (double *)out + V;
    const int status = ops->compose(HV, K, V, b, a, backward, a_first, out, stream);
    for (int64_t i = 0; i < (int64_t)HV * K && mistake && !a_first; i++) {
        const int64_t at = i * (V + 1);
        if (mistake == NO_DECAY) d[at] = d_a[at];
        if (mistake == SUMMED) d[at] = d_b[at] + d_a[at];
    }
    return status;
}

/* Computes S + h instead of d S + h if `mistake` is STILL. */
static int apply_diagonal(int HV, int K, int V, const void *map, int backward,
                          int first, int v0, int Vb, const void *S_in, int ld_in,
                          void *S_out, int ld_out, struct CUstream_st *stream)
{
    const double *h = map, *S = S_in;
    double *next = S_out;
    if (mistake != STILL || first)
        return kcp_diagonal_mapops.apply(HV, K, V, map, backward, first, v0, Vb, S_in,
                                         ld_in, S_out, ld_out, stream);
    for (int64_t i = 0; i < (int64_t)HV * K; i++)
        for (int v = 0; v < Vb; v++)
            next[i * ld_out + v] = S[i * ld_in + v] + h[i * (V + 1) + v0 + v];
    return KCP_OK;
}

static void wrong(int how, struct kcp_mapops *ops, struct kcp_mapops *diagonal)
{
    mistake = how;
    *diagonal = kcp_diagonal_mapops;
    diagonal->compose = compose_diagonal;
    diagonal->apply = apply_diagonal;
    *ops = ref_mapops;
    ops->compose = compose;
    ops->diagonal = how == WHOLE ? NULL : diagonal;
}

static int family(void *args, enum kcp_model model, int how)
{
    struct kcp_family a = *(struct kcp_family *)args;
    struct kcp_mapops ops, diagonal;
    if (a.model != model) return KCP_NA;
    wrong(how, &ops, &diagonal);
    a.ops = &ops;
    return ref_family(&a);
}

#define FAMILY(ident, model, how, why)                                                \
    static int run_##ident(void *args) { return family(args, model, how); }           \
    KCP_VARIANT(family_##ident) = { "16_family", #ident, why, KCP_F64, KCP_HOST,      \
                                    "one model", run_##ident, NULL }
FAMILY(mutant_dplr_compose, KCP_DPLR, SWAPPED, "composes two maps in reverse order");
FAMILY(mutant_gdn2_compose, KCP_GDN2, NO_CARRY, "compose omits the earlier h");
FAMILY(mutant_gla_compose, KCP_GLA, NO_DECAY, "compose omits the later decay");
FAMILY(mutant_gla_compose_sum, KCP_GLA, SUMMED,
       "adds two decays instead of multiplying them");
FAMILY(mutant_gla_apply, KCP_GLA, STILL, "apply omits the decay");
FAMILY(twin_dplr_wire, KCP_DPLR, NONE, "correct: sends DPLR's maps");
FAMILY(twin_gdn2_wire, KCP_GDN2, NONE, "correct: sends GDN-2's maps");
FAMILY(twin_gla_wire, KCP_GLA, NONE, "correct: sends GLA's diagonals");
FAMILY(twin_gla_whole, KCP_GLA, WHOLE, "correct: sends GLA's M as K x K matrices");
