/* 08_strips.c -- the rule that cuts a rank's segments so that few chains fill a chip.
 *
 * Book: chapter 17.  Checked by: itself, against every cut there is.
 * Next: 09_chunk_backward.c. */
#include "../cuda/08_forward/v3_records_cut.h"
#include "../cuda/strips.h"
#include "judge.h"


enum { P = 132, C = 64 };

static int64_t length(int HV, int64_t a, int64_t b)
{
    const int cu[] = { 0, (int)a, (int)(a + b) };
    const struct kcp_context x = { .NS = b ? 2 : a ? 1 : 0, .cu = (int *)cu };
    return kcp_strip_length(&x, HV, C, P);
}

/* Strips are whole chunks, no longer than a segment, and no cut is cheaper. */
static int cheapest(struct kcp_report *rep)
{
    struct stream s = stream_of(9, "strips");
    int cut = 0;
    for (int i = 0; i < 300; i++) {
        const int HV = 1 + (int)(uniform(&s) * 140);
        const int cu[] = { 0, 1 + (int)(uniform(&s) * 60000),
                           60001 + (int)(uniform(&s) * 90000) };
        const struct kcp_context x = { .NS = 2, .cu = (int *)cu };
        const int64_t L = kcp_strip_length(&x, HV, C, P);
        const int64_t longest = cu[1] > cu[2] - cu[1] ? cu[1] : cu[2] - cu[1];
        const double cost = kcp_strip_cost(&x, HV, C, P, L ? L : longest);
        EXPECT(rep, L % C == 0 && L >= 0 && L < longest, "HV %d: strips of %lld", HV,
               (long long)L);
        double least = kcp_strip_cost(&x, HV, C, P, longest);
        for (int m = 2; m <= KCP_MOST_STRIPS; m++) {
            const int64_t l = (longest + m * C - 1) / (m * C) * C;
            const double c = kcp_strip_cost(&x, HV, C, P, l);
            least = c < least ? c : least;
        }
        EXPECT(rep, cost <= least, "HV %d: costs %g, the least is %g", HV, cost, least);
        cut += L > 0;
    }
    EXPECT(rep, cut > 50 && cut < 300, "%d of 300 are cut", cut);
    return KCP_OK;
}
KCP_CHECK(check_08_cheapest) = { "08_forward", "strips_cheapest",
    "strips are whole chunks, and no number of them costs less by the rule", cheapest };

/* The cases that the rule was measured for. */
static int named(struct kcp_report *rep)
{
    EXPECT(rep, length(96, 8192, 0) == 0, "96 heads of 8192: strips of %lld",
           (long long)length(96, 8192, 0));
    EXPECT(rep, length(32, 65536, 0) == 16384, "32 heads of 65536: strips of %lld",
           (long long)length(32, 65536, 0));
    EXPECT(rep, length(32, 32768, 0) == 8192, "32 heads of 32768: strips of %lld",
           (long long)length(32, 32768, 0));
    EXPECT(rep, length(4, 300, 0) == 0, "a short sequence: strips of %lld",
           (long long)length(4, 300, 0));
    EXPECT(rep, length(132, 1 << 20, 0) == 0, "a head a processor: strips of %lld",
           (long long)length(132, 1 << 20, 0));
    EXPECT(rep, length(2, 0, 0) == 0, "an empty rank: strips of %lld",
           (long long)length(2, 0, 0));
    return KCP_OK;
}
KCP_CHECK(check_08_named) = { "08_forward", "strips_named",
    "the cases the rule was measured for: four strips for 32 heads, none for 96",
    named };

/* The fused forward's own rule, whose scan has two halves of a chain on two processors
 * and records to hide. */
static int records(int HV, int64_t T, int crossing, int *windows)
{
    const int cu[] = { 0, (int)T };
    const int chunks = (int)((T + C - 1) / C);
    const struct kcp_context x = { .NS = 1, .cu = (int *)cu, .NC = chunks };
    const int best = kcp_records_strip(&x, HV, 128, P, crossing);
    const double cost = kcp_records_cost(&x, HV, 128, P, crossing, best ? best * C : T);
    *windows = kcp_windows(&x, HV, 128, P, crossing);
    for (int m = 2; m <= 64; m++) {
        const int64_t L = (T + m * C - 1) / (m * C) * C;
        if (L < T && kcp_records_cost(&x, HV, 128, P, crossing, L) < cost) return -1;
    }
    return best;
}

static int fused(struct kcp_report *rep)
{
    const struct { int HV, T, crossing, strip, windows; } is[] = {
        { 96, 8192, 0, 0, 1 },    { 32, 65536, 0, 0, 4 },   { 32, 8192, 0, 0, 3 },
        { 64, 32768, 0, 0, 1 },   { 8, 65536, 0, 128, 1 },  { 32, 32768, 1, 256, 1 },
        { 4, 300, 0, 0, 2 },      { 132, 1 << 20, 0, 0, 1 },
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        int windows = 0;
        const int got = records(is[i].HV, is[i].T, is[i].crossing, &windows);
        EXPECT(rep, got == is[i].strip, "%d heads of %d: strips of %d chunks, not %d",
               is[i].HV, is[i].T, got, is[i].strip);
        if (!got)
            EXPECT(rep, windows == is[i].windows, "%d heads of %d: %d windows, not %d",
                   is[i].HV, is[i].T, windows, is[i].windows);
    }
    return KCP_OK;
}
KCP_CHECK(check_08_fused) = { "08_forward", "strips_fused",
    "the fused forward's rule: the cases it was measured for, and no cut is cheaper",
    fused };
