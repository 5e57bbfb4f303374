/* split_sequence.c -- checks how segments are cut into strips (parts) to use all SMs.
 * Book: chapter 18. */
#include "cuda/host/split.h"
#include "tests/judge/judge.h"

#include <math.h>
#include <string.h>

enum { P = 132, C = 64 };

static const struct kcp_device H200 = { .sms = P, .bandwidth = KCP_BANDWIDTH };

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
        EXPECT(rep, cost <= least, "HV %d: cost %g, optimum %g", HV, cost, least);
        cut += L > 0;
    }
    EXPECT(rep, cut > 50 && cut < 300, "%d of 300 batches cut, expected 51-299", cut);
    return KCP_OK;
}
KCP_CHECK(check_08_cheapest) = { "08_forward", "strips_cheapest",
    "strips (parts of a sequence) are whole chunks, and by the cost model no other "
    "number of strips is faster", cheapest };

/* Checks kcp_strip_length on shapes whose fastest strip length was measured. */
static int named(struct kcp_report *rep)
{
    static const struct { int HV; int64_t T, strip; } is[] = {
        { 96, 8192, 0 }, { 32, 65536, 16384 }, { 32, 32768, 8192 }, { 4, 300, 0 },
        { 132, 1 << 20, 0 }, { 2, 0, 0 } };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        const int cu[] = { 0, (int)is[i].T };
        const struct kcp_context x = { .NS = is[i].T > 0, .cu = (int *)cu };
        const int64_t strip = kcp_strip_length(&x, is[i].HV, C, P);
        EXPECT(rep, strip == is[i].strip, "%d heads, T = %d: strips of %lld tokens, "
               "expected %lld", is[i].HV, cu[1], (long long)strip,
               (long long)is[i].strip);
    }
    return KCP_OK;
}
KCP_CHECK(check_08_named) = { "08_forward", "strips_named",
    "the cost model selects the cuts that were measured to be fastest: four strips "
    "for 32 heads, none for 96 heads", named };

/* Returns the result of kcp_fused_chunks (chunks per strip), or -1 if another strip
 * length costs less. */
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
                                   is[i].crossing, 0 };
        const int got = records(&c, is[i].T), windows = kcp_launches(&c);
        EXPECT(rep, got == is[i].strip, "%d heads, T %d: strips of %d chunks, not %d",
               is[i].HV, is[i].T, got, is[i].strip);
        if (!got)
            EXPECT(rep, windows == is[i].windows, "%d heads, T %d: %d windows, not %d",
                   is[i].HV, is[i].T, windows, is[i].windows);
    }
    return KCP_OK;
}
KCP_CHECK(check_08_fused) = { "08_forward", "strips_fused",
    "in the fused forward, the cost model selects the number of strips (parts) that "
    "was measured to be fastest, and by the model no other number is faster", fused };

/* Compares costs on a GPU with 0.7 of an H200's bandwidth with costs on an H200. */
static int slower(struct kcp_report *rep)
{
    const double excess = 1 / 0.7 - 1;
    for (int HV = 2; HV <= 128; HV *= 2)
        for (int KG = 1; KG <= 128; KG += 127) {
            const int cu[] = { 0, 65536 };
            const struct kcp_context x = { .NS = 1, .cu = (int *)cu, .NC = 65536 / C };
            struct kcp_cut c = { &x, HV, HV, KG, 128, P, 0, 0 };
            const double factors = kcp_factors_time(&c), ratio = kcp_launch_ratio(&c);
            const double whole = kcp_fused_cost(&c, 65536);
            const double strips = kcp_fused_cost(&c, 8192);
            c.excess = excess;
            const double share = KG == 1 ? KCP_SHARE_HEAD : KCP_SHARE_CHANNEL;
            const double more = kcp_factors_time(&c) / factors - 1;
            EXPECT(rep, fabs(more - share * excess) < 1e-9,
                   "%d heads: factors take %g more, expected %g", HV, more,
                   share * excess);
            EXPECT(rep, fabs(kcp_launch_ratio(&c) - ratio) < 1e-9,
                   "%d heads: ratio %g, expected %g", HV, kcp_launch_ratio(&c), ratio);
            const double fold = 7 * KCP_FOLD;
            const double times[] = { kcp_fused_cost(&c, 65536) / whole,
                                     (kcp_fused_cost(&c, 8192) - fold) /
                                         (strips - fold) };
            for (int i = 0; i < 2; i++)
                EXPECT(rep, times[i] > 1 && times[i] < 1 + KCP_SHARE_STEP * excess,
                       "%d heads: %g times the cost on an H200", HV, times[i]);
        }
    return KCP_OK;
}
KCP_CHECK(check_08_slower) = { "08_forward", "strips_slower",
    "with slower memory, the times of factors and scans grow by the share that memory "
    "bounds, the time of folds does not", slower };

/* A window is the range of chunks of one launch. */
static int windows(struct kcp_report *rep)
{
    struct stream s = stream_of(9, "windows");
    int many = 0;
    for (int i = 0; i < 2000; i++) {
        const int NC = 1 + (int)(uniform(&s) * (i % 2 ? 40 : 2000));
        const int HV = 1 + (int)(uniform(&s) * 66), V = i % 3 ? 128 : 64;
        const int cu[] = { 0, NC * C };
        const struct kcp_context x = { .NS = 1, .cu = (int *)cu, .NC = NC };
        const struct kcp_cut c = { &x, HV, HV, i % 5 ? 128 : 1, V, P, 0, 0 };
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
        EXPECT(rep, at == NC, "%d chunks, but launches end after chunk %d", NC, at);
        for (int m = 2; m <= 8 && n > 1; m++)
            EXPECT(rep, kcp_launches_cost(&c, n) <= kcp_launches_cost(&c, m),
                   "%d chunks: %d windows; %d cost less", NC, n, m);
        many += n > 2;
    }
    EXPECT(rep, many > 100, "%d of 2000 calls use over 2 launches, expected over 100",
           many);
    return KCP_OK;
}
KCP_CHECK(check_08_windows) = { "08_forward", "strips_windows",
    "launches (windows of chunks) get shorter and contain each chunk once, and by the "
    "cost model no other number of launches is faster", windows };

/* ---- walks: the map of a launch's chunks (a window) is computed concurrently with
 * the factors of the next window */

enum walk_mistake { RIGHT, TURNED, NO_LAST, EARLY, NO_MISTAKES };

/* Appends chunk c's map y -> a y + b to x, the map y -> x[0] y + x[1]. */
static void chunk_map(double *x, int c)
{
    const double a = 0.5 + c % 7 * 0.11, b = 1 + c % 5;
    x[0] *= a;
    x[1] = a * x[1] + b;
}

/* Simulates a walk (a rank's loop over launches) with error `planted`. Returns 0 if
 * the map of each strip (part) covers all chunks up to the strip's end, and all
 * factors are written before they are read. */
static int walk_is_wrong(int NC, int strip_chunks, int leaves,
                         enum walk_mistake planted)
{
    struct kcp_walk_window w = { 0 };
    double maps[64][2];
    const int L = strip_chunks ? strip_chunks : NC, strips = (NC + L - 1) / L;
    int made = 0, walked = 0, windows = 0, wrong = 0;
    while (kcp_walk_next(&w, NC, strip_chunks, leaves)) {
        const int last = w.first + w.count == NC;
        wrong |= w.count < 1 || w.first != made || w.first / L != w.strip;
        if (planted != EARLY) made = w.first + w.count;
        windows++;
        if (w.is_read && !(planted == NO_LAST && last)) {
            double x[2] = { 1, 0 };
            const int from = planted == TURNED ? w.strip - 1 : w.from;
            if (from >= 0) memcpy(x, maps[from], sizeof x);
            for (int c = w.first; c < w.first + w.count; c++) chunk_map(x, c);
            wrong |= w.first + w.count > made;
            memcpy(maps[w.strip], x, sizeof x);
            walked = w.first + w.count;
        }
        made = w.first + w.count;
    }
    double x[2] = { 1, 0 };
    for (int c = 0; c < NC; c++) {
        chunk_map(x, c);
        const int end = (c + 1) % L == 0 || c + 1 == NC;
        if (!end || c >= walked) continue;
        for (int i = 0; i < 2; i++) wrong |= fabs(maps[c / L][i] - x[i]) > 1e-9;
    }
    return wrong || made != NC || walked < (leaves ? NC : (strips - 1) * L) || !windows;
}

static int walks(struct kcp_report *rep)
{
    struct stream s = stream_of(9, "walks");
    int seen[NO_MISTAKES] = { 0 };
    for (int i = 0; i < 500; i++) {
        const int NC = 2 + (int)(uniform(&s) * (i % 2 ? 30 : 2000));
        const int least = NC / 60 + 1, leaves = i % 3 > 0;
        const int strip = i % 4 ? least + (int)(uniform(&s) * NC) : 0;
        EXPECT(rep, !walk_is_wrong(NC, strip, leaves, RIGHT),
               "%d chunks, strips of %d: wrong windows", NC, strip);
        for (int m = RIGHT; m < NO_MISTAKES; m++)
            seen[m] += walk_is_wrong(NC, strip, leaves, (enum walk_mistake)m);
    }
    EXPECT(rep, seen[TURNED] > 250 && seen[NO_LAST] > 250 && seen[EARLY] > 250,
           "errors found in %d, %d and %d of 500 walks, expected over 250 each",
           seen[TURNED], seen[NO_LAST], seen[EARLY]);
    return KCP_OK;
}
KCP_CHECK(check_08_walks) = { "08_forward", "walks",
    "successive launches cover all chunks in order and give the map of each strip (part"
    " of a sequence), and three deliberate errors are found", walks };

/* Checks which parts of a rank's map (KCP_WANT_*) are computed launch by launch. */
static int walkers(struct kcp_report *rep)
{
    const struct { int H, V, KG, R, r, walk; int64_t T; int strip, want; } is[] = {
        { 32, 128, 128, 2, 0, 0, 131072, 0, KCP_WANT_H },
        { 32, 128, 128, 2, 1, 0, 131072, 0, KCP_WANT_H | KCP_WANT_M },
        { 32, 128, 1, 2, 0, 0, 131072, 0, KCP_WANT_H },
        { 32, 128, 128, 4, 3, 0, 131072, 0, KCP_WANT_H | KCP_WANT_M },
        { 32, 128, 128, 4, 1, 0, 131072, 0, 0 },       /* M needed: strips fill SMs */
        { 32, 128, 128, 4, 1, KCP_SEQUENTIAL, 131072, 0, KCP_WANT_H | KCP_WANT_M },
        { 32, 128, 128, 2, 0, KCP_BLELLOCH, 131072, 0, 0 },
        { 32, 64, 128, 2, 1, 0, 131072, 0, 0 },        /* K is not V */
        { 8, 128, 128, 2, 0, 0, 131072, 0, 0 },        /* strips are faster */
        { 96, 128, 128, 2, 0, KCP_SEQUENTIAL, 131072, 0, 0 },      /* no free SMs */
        { 32, 128, 128, 2, 0, 0, 8192, 0, 0 },         /* too short */
        { 32, 128, 128, 2, 0, KCP_SEQUENTIAL, 8192, 0, KCP_WANT_H },
        { 8, 128, 128, 2, 1, KCP_SEQUENTIAL, 8192, 64, KCP_WANT_H | KCP_WANT_M },
        { 32, 128, 128, 1, 0, KCP_SEQUENTIAL, 8192, 0, 0 } };      /* one rank */
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        const int64_t cu[] = { 0, is[i].T };
        struct kcp_plan *plan;
        if (kcp_plan_make(&plan, 1, cu, is[i].R, NULL, 0, C, 1, NULL)) return KCP_BAD;
        const struct kcp_context *x = &plan->ctx[is[i].r];
        const struct kcp_call c = {
            .T = x->cu[x->NS], .N = 1, .NS = x->NS, .NC = x->NC, .R = is[i].R,
            .r = is[i].r, .H = is[i].H, .HV = is[i].H, .K = 128, .V = is[i].V, .C = C,
            .KG = is[i].KG, .model = is[i].KG == 1 ? KCP_GDN : KCP_KDA,
            .walk = (enum kcp_walk)is[i].walk, .strip_chunks = is[i].strip,
            .plan = plan };
        const int want = kcp_fused_walk(&c, &H200);
        EXPECT(rep, want == is[i].want, "call %zu: map parts %d, expected %d", i, want,
               is[i].want);
        kcp_plan_free(plan);
    }
    return KCP_OK;
}
KCP_CHECK(check_08_walkers) = { "08_forward", "walkers",
    "a map that another rank reads is computed launch by launch if that costs less, or "
    "if it is requested and possible", walkers };
