/* batches.c -- checks the simulation of micro-batches on cases computed by hand.
 *
 * Book: chapter 20.  Checked by: itself.  Next: tests/20_clusters/nccl.c. */
#include "batches.h"
#include "tests/judge/judge.h"

static int batches(struct kcp_report *rep)
{
    int held = 0;
    for (int n = 1; n <= 32; n++)
        for (int R = 1; R <= 8; R++) {
            const struct parts p = { 5, 3, 2, 4 }, no_front = { 0, 3, 2, 4 };
            const struct parts slow = { 1, 1, 50, 1 };
            const double line = handed_over(no_front, 1, R, n, &held);
            const double want = 4. * (n + R - 1) + (R - 1);
            EXPECT(rep, line == want, "no front, %d batches, %d ranks: %g, not %g", n,
                   R, line, want);
            const double alone = handed_over(p, 1, 1, n, &held);
            EXPECT(rep, alone == 9. * n && held == 1, "one rank: %g, %d held", alone,
                   held);
            const double all = handed_over(p, 1, R, n, &held);
            const double least = 9. * n, most = 9. * n + (R - 1) * (4 + 1 + 5);
            EXPECT(rep, all >= least && all <= most && held >= 1 && held <= n,
                   "%d batches, %d ranks: %g, not %g to %g; %d held", n, R, all, least,
                   most, held);
            const double hidden = exchange_hidden(p, n), bare = n > 1 ? 12. * n : 14;
            EXPECT(rep, fabs(hidden - bare) < 1e-9,
                   "hidden, %d batches: %g", n, hidden);
            const double wire = exchange_hidden(slow, n);
            EXPECT(rep, wire == 2 + 50. * n + 1, "wire alone, %d: %g", n, wire);
        }
    return KCP_OK;
}
KCP_CHECK(check_20_batches) = { "20_clusters", "batches",
    "simulated micro-batches take the times computed by hand", batches };
