/* exchange.h -- a rank's segments in the order in which the walk meets them.
 *
 * Book: chapter 07.  Checked by: tests/07_merge/checks.c.  Next: exchange.c.
 * Forward walks segments in token order, backward in reverse with M^T: the forms see
 * positions 0..NS-1 of the walk and are written once. */
#ifndef KCP_EXCHANGE_H
#define KCP_EXCHANGE_H

#include "kcp.h"

struct walk {
    const struct kcp_exchange *x;
    const struct kcp_context *ctx;
    int r, NS;
    int in;                    /* positions [0,in) belong to a sequence that enters */
    int out;                   /* does the last one's sequence leave? */
    size_t map, state;         /* bytes */
};

struct walk walk_of(const struct kcp_exchange *x);
const struct kcp_segment *walk_segment(const struct walk *w, int p);
int   walk_starts(const struct walk *w, const struct kcp_segment *s);
int   walk_ends(const struct walk *w, const struct kcp_segment *s);
char *walk_map(const struct walk *w, int p);
char *walk_state(const struct walk *w, int p);
int   walk_next(const struct walk *w);      /* rank after this one in the walk */
int   walk_previous(const struct walk *w);  /* empty ranks are skipped */

/* Columns v0..v0+Vb of the states at positions p0+1..p1-1, each from the one before;
 * a position that starts a sequence keeps the state it has. */
int walk_fold(const struct walk *w, int p0, int p1, int v0, int Vb);
/* The same columns of the state with which the last position ends, to out [HV,K,Vb]. */
int walk_leave(const struct walk *w, int v0, int Vb, void *out);

/* One file a form; each counts its own work and what it hands to the wire. */
struct form {
    int (*run)(const struct walk *w);
    size_t (*work)(const struct walk *w);
    struct kcp_traffic (*formula)(const struct walk *w);
};
extern const struct form form_all_gather, form_chain, form_pipeline, form_scan;
size_t all_gather_kept(const struct walk *w);

#endif
