/* wrong.h -- declares a second version of forward, with errors selected by flags.
 * Book: chapter 08. */
#ifndef KCP_08_FORWARD_WRONG_H
#define KCP_08_FORWARD_WRONG_H

#include "ref.h"

enum {
    NO_M = 1, TURNED = 2, ONE_LESS = 4, ONE_MORE = 8, FIRST_SEQ = 16, NO_H0 = 32,
    H0_TWICE = 64, H0_LATE = 128, STALE_GATE = 256, DECAY_FIRST = 512, UNDECAYED = 1024,
    LAST_CHUNK = 2048, WRONG_HEAD = 4096, EMPTY_IS_ZERO = 8192, NO_CU = 1 << 14,
    NO_LAYOUT = 1 << 15, OWN_SCALE = 1 << 16, HT_EARLY = 1 << 17, EMPTY_HT = 1 << 18,
    UNGATED = 1 << 19, NOTHING = 1 << 20, M_DECAY = 1 << 21, OUTWARD = 1 << 22,
    WINDOWS_TURNED = 1 << 23, WINDOW_LEFT = 1 << 24, WINDOW_EARLY = 1 << 25,
    GATE_STRIDE = 1 << 26, UNCARRIED = 1 << 27, GATE_BF16 = 1 << 28,
    DROPPED = 1 << 29,
};

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

#endif
