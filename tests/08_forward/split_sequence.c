/* split_sequence.c -- the rule that cuts a rank's segments: few chains fill a chip.
 *
 * Book: chapter 18.  Checked by: itself, against every cut there is.
 * Next: ref/09_chunk_backward.c. */
#include "core/split.h"
#include "tests/judge/judge.h"


enum { P = 132, C = 64 };

static int64_t length(int HV, int64_t a, int64_t b)
{
    const int cu[] = { 0, (int)a, (int)(a + b) };
    const struct kcp_context x = { .NS = b ? 2 : a > 0, .cu = (int *)cu };
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
 * and records to hide. Strips of how many chunks; -1: another number costs less. */
static int records(const struct kcp_cut *c, int64_t T)
{
    const int best = kcp_fused_chunks(c);
    const double cost = kcp_fused_cost(c, best ? best * C : T);
    for (int m = 2; m <= 64; m++) {
        const int64_t L = (T + m * C - 1) / (m * C) * C;
        if (L < T && kcp_fused_cost(c, L) < cost) return -1;
    }
    return best;
}

static int fused(struct kcp_report *rep)
{
    const struct { int HV, KG, T, crossing, strip, windows; } is[] = {
        { 96, 128, 8192, 0, 0, 1 },   { 32, 128, 65536, 0, 0, 6 },
        { 32, 1, 8192, 0, 0, 3 },     { 64, 128, 32768, 0, 0, 1 },
        { 8, 128, 65536, 0, 128, 1 }, { 32, 128, 32768, 1, 256, 1 },
        { 4, 128, 300, 0, 0, 2 },     { 132, 128, 1 << 20, 0, 0, 1 },
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        const int cu[] = { 0, is[i].T };
        const struct kcp_context x = { .NS = 1, .cu = (int *)cu,
                                       .NC = (is[i].T + C - 1) / C };
        const struct kcp_cut c = { &x, is[i].HV, is[i].HV, is[i].KG, 128, P,
                                   is[i].crossing };
        const int got = records(&c, is[i].T), windows = kcp_launches(&c);
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

/* Windows cover every chunk once, none is empty, none has more than the one before, and
 * no number of them costs less. */
static int windows(struct kcp_report *rep)
{
    struct stream s = stream_of(9, "windows");
    int many = 0;
    for (int i = 0; i < 2000; i++) {
        const int NC = 1 + (int)(uniform(&s) * (i % 2 ? 40 : 2000));
        const int HV = 1 + (int)(uniform(&s) * 66), V = i % 3 ? 128 : 64;
        const int cu[] = { 0, NC * C };
        const struct kcp_context x = { .NS = 1, .cu = (int *)cu, .NC = NC };
        const struct kcp_cut c = { &x, HV, HV, i % 5 ? 128 : 1, V, P, 0 };
        const int n = kcp_launches(&c), full = HV * V / 64 > P / 2;
        const double ratio = full ? 1 : kcp_launch_ratio(&c);
        EXPECT(rep, (n > 1) == (NC >= 4 && !full), "%d chunks of %d heads: %d windows",
               NC, HV, n);
        int before = NC, at = 0;
        for (int j = 0; j < n; j++) {
            const int end = kcp_launch_begin(NC, ratio, n, j + 1);
            EXPECT(rep, kcp_launch_begin(NC, ratio, n, j) == at && end > at &&
                   end - at <= before + 1, "%d chunks: window %d from %d to %d", NC, j,
                   at, end);
            before = end - at;
            at = end;
        }
        EXPECT(rep, at == NC, "%d chunks: windows end at %d", NC, at);
        for (int m = 2; m <= 8 && n > 1; m++)
            EXPECT(rep, kcp_launches_cost(&c, n) <= kcp_launches_cost(&c, m),
                   "%d chunks: %d windows, %d cost less", NC, n, m);
        many += n > 2;
    }
    EXPECT(rep, many > 100, "%d of 2000 have more than two windows", many);
    return KCP_OK;
}
KCP_CHECK(check_08_windows) = { "08_forward", "strips_windows",
    "windows cover every chunk once, shrink, and no number of them costs less",
    windows };
