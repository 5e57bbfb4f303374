/* checks.c -- compares the simulated exchange with formulas of chapters 07 and 20.
 * Book: chapter 20. */
#include "model.h"
#include "tests/judge/judge.h"

static double steps(int R) { return ceil(log2(R)); }

/* Checks that all-gather, chain, and a scan over 2^n ranks take exactly the times that
 * their formulas give, and that pipeline and other scans take at most those times. */
static int forms(struct kcp_report *rep)
{
    const struct wire wires[3] = { inside, gathered, between };
    for (int i = 0; i < 3; i++)
        for (int R = 2; R <= 64; R++) {
            const struct wire w = wires[i];
            const double b = B() / w.bw, both = (B() + BM()) / w.bw;
            const double all = w.a + (R - 1) * both + (R - 2) * t_MS();
            const double hop = (R - 1) * (w.a + b) + (R - 2) * t_MS();
            const double piped = (R + 6) * (w.a + b / 8 + t_MS() / 8);
            const double least_piped = (R - 1) * (w.a + b / 8);
            const double tree = steps(R) * (w.a + both) + 2 * (steps(R) - 1) * t_MM();
            const double least = R & (R - 1) ? w.a + both : tree;
            EXPECT(rep, fabs(gather(w, R) - all) < 1e-9,
                   "all-gather, %d ranks: %g, not %g", R, gather(w, R), all);
            EXPECT(rep, fabs(chain(w, R, 1) - hop) < 1e-9,
                   "chain, %d ranks: %g, not %g", R, chain(w, R, 1), hop);
            EXPECT(rep, chain(w, R, 8) <= piped && chain(w, R, 8) >= least_piped,
                   "pipeline, %d ranks: %g, formula %g", R, chain(w, R, 8), piped);
            EXPECT(rep, scan(w, R, 1) > least - 1e-9 && scan(w, R, 1) < tree + 1e-9,
                   "scan, %d ranks: %g, formula %g", R, scan(w, R, 1), tree);
        }
    return KCP_OK;
}
KCP_CHECK(check_19_forms) = { "20_clusters", "forms",
    "the four exchange forms, simulated on up to 64 ranks, take at most the "
    "times that their formulas give", forms };

/* Checks that two levels take the time of a scan per level and of the last send and
 * update, and that doubling the nodes adds about one step. */
static int levels(struct kcp_report *rep)
{
    const double last = inside.a + B() / inside.bw + t_MS();
    for (int R = 16; R <= 4096; R *= 2) {
        const double want = scan(inside, 8, 1) + scan(between, R / 8, 8) + last;
        const double got = two_levels(R, 8), one = scan(between, R, 1);
        const double more = R < 4096 ? two_levels(2 * R, 8) - got : 0;
        const double step = between.a + (B() + BM()) / 8 / between.bw - 1e-9;
        EXPECT(rep, fabs(got - want) < 1e-9,
               "%d ranks: two levels take %g us, expected %g us", R, got, want);
        EXPECT(rep, R == 4096 || (more >= step && more <= step + 2 * t_MM() + 2e-9),
               "doubling %d ranks adds %g us, expected a step of %g us", R, more, step);
        EXPECT(rep, R < 64 || got < one / 2,
               "%d ranks: 2 levels %g us, 1 level %g us, ratio over 1/2", R, got, one);
    }
    return KCP_OK;
}
KCP_CHECK(check_19_levels) = { "20_clusters", "levels",
    "an exchange in two levels over up to 4096 ranks takes one scan per level, then "
    "sends and updates one state", levels };
