/* checks.c -- compares the outputs and states of the chunked form with the recurrence.
 *
 * Book: chapter 04.  Checked by: itself, it can fail.  Next: ref/05_affine.c.
 */
#include "tests/03_wy/batch.h"

static const double gates[] = { 0, -1, -5, -50 };
static const int chunks[] = { 4, 8, 16, 64 };

static int recurrence(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 32 && !status; j++) {
        struct batch x;
        struct tensor_set step = { .n = 0 };
        const double gate = gates[j / 8];
        status = batch_make(&x, j % 2 ? KCP_GDN : KCP_KDA, chunks[j / 2 % 4], gate,
                            UP_TO_GATE);
        tensor_set_copy(&step, &x.set);
        status = status ? status : batch_stage(&x, &step, "01_step");
        if (!status) {
            const double o = batch_apart(&x, "o", &step, "o");
            const double S = batch_apart(&x, "h_out", &step, "ht");
            EXPECT(rep, o <= 1e-13 && S <= 1e-13,
                   "%s, C = %d, gate %g: o differs by %g, final states by %g",
                   j % 2 ? "GDN" : "KDA", x.c.C, gate, o, S);
        }
        tensor_set_free(&step);
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_04_recurrence) = { "04_chunk", "recurrence",
    "o and ht equal the recurrence's for C = 4 to 64, partial chunks and gates "
    "down to -50", recurrence };
