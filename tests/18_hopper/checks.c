/* checks.c -- recomputes bytes and operations of chapter 18's bounds, and strip costs.
 * Book: chapter 18.  A strip is a part of a segment. */
#include "cuda/host/split.h"
#include "tests/judge/judge.h"

#include <math.h>

enum { P = 132 };

/* Returns the bytes of all arrays of a bf16 forward call that saves nothing. */
static double bytes(int64_t T)
{
    const struct kcp_stage *s = stage_find("08_forward");
    const struct kcp_call c = { .T = T, .N = 1, .NS = 1, .NC = (int)(T / 64), .R = 1,
        .H = 96, .HV = 96, .K = 128, .V = 128, .KG = 128, .C = 64, .model = KCP_KDA };
    double sum = 0;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        int64_t dim[4];
        double n = 1;
        if (!field_used(f, &c)) continue;
        const int nd = shape_dims(&c, f->shape, dim);
        for (int d = 0; d < nd; d++) n *= (double)dim[d];
        sum += n * (double)kcp_bytes_of(&c, f->store, KCP_BF16);
    }
    return sum;
}

static int floor_bytes(struct kcp_report *rep)
{
    const double th = (bytes(8192) - bytes(4096)) / (4096 * 96);
    EXPECT(rep, fabs(th - 1282) < 0.01,
           "%g bytes per token and head, expected 1282", th);
    return KCP_OK;
}
KCP_CHECK(check_17_bytes) = { "18_hopper", "floor_bytes",
    "the arrays of a forward take 1282 bytes per token and head", floor_bytes };

/* Returns chapter 03's and 04's operations per token and head, 2 per multiply-add. */
static double operations(int C, int D)
{
    double n = 0;
    for (int i = 0; i < C; i++) {
        for (int j = 0; j <= i; j++) {
            n += D;                                /* Aqk_ij */
            n += j < i ? D : 0;                    /* L_ij */
            n += 2 * D;                            /* A_ij v_j, A_ij k_j */
            n += D;                                /* Aqk_ij v_new_j */
        }
        for (int p = 0; p < i; p++) n += p + 1;    /* row i of the inverse */
        n += 3. * D * D;                           /* w S, qg S, kg^T v_new */
    }
    return 2 * n / C;
}

static int floor_operations(struct kcp_report *rep)
{
    for (int C = 32; C <= 256; C *= 2)
        for (int D = 64; D <= 256; D *= 2) {
            const double want = 6. * D * D + 5. * C * D + C * C / 3.;
            const double got = operations(C, D);
            EXPECT(rep, fabs(got / want - 1) < 5. / C / 2, "C %d, D %d: %g, not %g", C,
                   D, got, want);
        }
    EXPECT(rep, fabs(operations(64, 128) / 141e3 - 1) < 0.01,
           "%g operations, not 141000", operations(64, 128));
    return KCP_OK;
}
KCP_CHECK(check_17_operations) = { "18_hopper", "floor_operations",
    "chapters 03 and 04 take about 6 D^2 + 5 C D + C^2 / 3 operations per token and "
    "head", floor_operations };

/* Compares kcp_strip_cost with t(m), the cost in scan steps of m equal strips. */
static int split(struct kcp_report *rep)
{
    for (int HV = 1; HV <= 160; HV++)
        for (int m = 1; m <= KCP_MOST_STRIPS; m++) {
            const int C = 64, steps = 96, cu[] = { 0, steps * m * C };
            const struct kcp_context x = { .NS = 1, .cu = (int *)cu };
            const double waves = ceil(HV * m / (double)P);
            const double want = m == 1 ? waves * steps
                : waves * steps * (1 + KCP_STEP_M) + (m - 1) * KCP_STEP_FOLD;
            const double got = kcp_strip_cost(&x, HV, C, P, (int64_t)steps * C);
            EXPECT(rep, got == want, "%d heads, %d strips: %g, not %g", HV, m, got,
                   want);
        }
    return KCP_OK;
}
KCP_CHECK(check_17_split) = { "18_hopper", "split",
    "kcp_strip_cost equals the formula t(m) for all numbers of heads and strips",
    split };
