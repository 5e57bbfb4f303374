/* split_sequence.h -- into how many strips a rank cuts its segments, to fill a chip.
 *
 * Book: chapter 18, "When to split a sequence".  Checked by: tests/08_forward/checks.c.
 * Next: split_sequence.cuh. */
#ifndef KCP_STRIPS_H
#define KCP_STRIPS_H

#include "kcp.h"

/* In links of chapter 04's scan, a chunk each: a link of chapter 05's, and one strip
 * more to compose and to fold. Measured on an H200: see chapter 18. */
#define KCP_LINK_M 1.0
#define KCP_LINK_FOLD 5.0
enum { KCP_MOST_STRIPS = 64 };

/* What the walk costs on P processors with strips of L tokens, L a multiple of C. */
static inline double kcp_strip_cost(const struct kcp_context *x, int HV, int C, int P,
                                   int64_t L)
{
    int64_t strips = 0, most = 1, longest = 0;
    for (int s = 0; s < x->NS; s++) {
        const int64_t len = x->cu[s + 1] - x->cu[s], m = (len + L - 1) / L;
        strips += m;
        most = m > most ? m : most;
        longest = len > longest ? len : longest;
    }
    const int64_t links = ((L < longest ? L : longest) + C - 1) / C;
    const int64_t waves = (strips * HV + P - 1) / P;
    return (double)(waves * links) * (most > 1 ? 1 + KCP_LINK_M : 1)
         + (double)(strips - x->NS) * KCP_LINK_FOLD;
}

/* The cheapest length of a strip, or 0 when whole segments are: a strip more costs
 * every chunk its map and is worth it only while processors stand idle. */
static inline int64_t kcp_strip_length(const struct kcp_context *x, int HV, int C,
                                       int P)
{
    int64_t longest = 0, best = 0;
    for (int s = 0; s < x->NS; s++)
        if (x->cu[s + 1] - x->cu[s] > longest) longest = x->cu[s + 1] - x->cu[s];
    if (longest == 0) return 0;
    double least = kcp_strip_cost(x, HV, C, P, longest);
    for (int m = 2; m <= KCP_MOST_STRIPS; m++) {
        const int64_t L = (longest + (int64_t)m * C - 1) / ((int64_t)m * C) * C;
        const double cost = kcp_strip_cost(x, HV, C, P, L);
        if (L < longest && cost < least) {
            least = cost;
            best = L;
        }
    }
    return best;
}

#endif
