/* wrong.h -- declares a second version of forward, with errors selected by flags.
 * Book: chapter 08. */
#pragma once

#include "ref.h"

#define MUTANTS(MUTANT)                                                               \
    MUTANT(no_M, NO_M, "the state is only h_ext of the nearest rank")                 \
    MUTANT(turned, TURNED, "the fold multiplies by M^T")                              \
    MUTANT(one_less, ONE_LESS, "omits the map of the nearest rank")                   \
    MUTANT(one_more, ONE_MORE,                                                        \
           "the fold starts one rank before the sequence's first")                    \
    MUTANT(outward, OUTWARD,                                                          \
           "errata 19: applies maps in reverse: nearest rank first")                  \
    MUTANT(first_seq, FIRST_SEQ,                                                      \
           "errata 6: sends the map of a rank's first sequence, not its last")        \
    MUTANT(undecayed, UNDECAYED,                                                      \
           "errata 1: the map's delta rule uses the undecayed state")                 \
    MUTANT(decay_first, DECAY_FIRST,                                                  \
           "errata 7: the map computes v_new from the decayed h")                     \
    MUTANT(M_no_decay, M_DECAY, "M is a product of I - kg^T w, without the decays")   \
    MUTANT(stale_gate, STALE_GATE,                                                    \
           "the map decays by G of the chunk's second-last row")                      \
    MUTANT(last_chunk, LAST_CHUNK, "sends the map of the last chunk, not of all")     \
    MUTANT(windows_turned, WINDOWS_TURNED,                                            \
           "the map applies the second half of a segment before the first")           \
    MUTANT(window_left, WINDOW_LEFT, "the map omits the second half of a segment")    \
    MUTANT(window_early, WINDOW_EARLY,                                                \
           "in a segment's second half, each chunk reads the factors of the chunk "   \
           "before")                                                                  \
    MUTANT(ungated, UNGATED, "errata 10: kg of GDN omits exp2(G_last - G)")           \
    MUTANT(wrong_head, WRONG_HEAD, "HV > H: uses the map of the query head")          \
    MUTANT(empty_is_zero, EMPTY_IS_ZERO,                                              \
           "an empty rank sends M = 0, not the identity")                             \
    MUTANT(no_h0, NO_H0, "ignores h0")                                                \
    MUTANT(h0_late, H0_LATE, "adds h0 to the outputs but not to the map")             \
    MUTANT(h0_twice, H0_TWICE, "adds h0 to the map twice")                            \
    MUTANT(no_cu, NO_CU,                                                              \
           "LlamaFactory #10787: a sequence starts from the previous one's last "     \
           "state")                                                                   \
    MUTANT(dropped, DROPPED,                                                          \
           "FLA #1004: each rank starts from state 0, because a wrapper drops the "   \
           "context")                                                                 \
    MUTANT(no_layout, NO_LAYOUT, "treats layout [V,K] as [K,V]")                      \
    MUTANT(own_scale, OWN_SCALE,                                                      \
           "errata 15: scales by K^-1/2, not by argument 'scale'")                    \
    MUTANT(ht_early, HT_EARLY,                                                        \
           "ht is the state before the last segment, not after it")                   \
    MUTANT(empty_ht, EMPTY_HT, "ht of a sequence without tokens is 0, not h0")        \
    MUTANT(uncarried, UNCARRIED, "each chunk except the first starts from state 0")   \
    MUTANT(gate_stride, GATE_STRIDE, "HV > H: raw gates have row stride H, not HV")   \
    MUTANT(gate_bf16, GATE_BF16, "rounds gates of a wider type to bf16")              \
    MUTANT(writes_nothing, NOTHING, "returns at once")
#include "tests/mutants.h"

struct fore {
    struct kcp_forward *a;
    const struct kcp_context *ctx;
    const struct kcp_segment *seg;
    int f, full, ngot;
    void *got[32];
    double *q, *k, *g, *G, *beta, *u, *w, *kg, *qg, *Aqk;
};

/* Applies all chunks of segment s to columns [c0,c1) of X [K,ld]. `row` is memory for
 * v_new. If pre is 1, X is a map, and x->f selects errors. UNGATED acts always. */
void fore_advance(const struct fore *x, int n, int s, int c0, int c1, int ld, double *X,
                  double *row, int pre);
/* Copies a head of sequence n from h0 to S [K,ld], or from S to ht if `out` is 1. */
void fore_state(const struct fore *x, int out, int n, int head, double *S, int ld);
/* fore_describe computes this rank's map [HV,K,V+K]. fore_fold applies the maps of
 * earlier ranks to S. */
void fore_describe(const struct fore *x, double *map, double *row);
void fore_fold(const struct fore *x, const double *all, int n, double *S, double *next);
