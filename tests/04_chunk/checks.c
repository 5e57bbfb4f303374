/* checks.c -- compares the outputs and states of the chunked form with the recurrence.
 *
 * Book: chapter 04.  Checked by: itself, it can fail.  Next: ref/05_affine.c.
 */
#include "tests/03_wy/batch.h"

/* Runs chapters 02 to 04, and compares o and the final states with the recurrence,
 * which reads the outputs of chapter 02. */
static int against_step(struct kcp_report *rep, enum kcp_model model, int C,
                        double gate, enum batch_gates gates, double tol)
{
    struct batch x;
    struct tensor_set step = { .n = 0 };
    int status = batch_make(&x, model, C, gate, gates);
    tensor_set_copy(&step, &x.set);
    status = status ? status : batch_stage(&x, &step, "01_step");
    if (!status) {
        const double o = batch_apart(&x, "o", &step, "o");
        const double S = batch_apart(&x, "h_out", &step, "ht");
        EXPECT(rep, o <= tol && S <= tol, "%s, C = %d, gate %g: o differs by %g, final "
               "states by %g", model_name[model], C, gate, o, S);
    }
    tensor_set_free(&step);
    batch_free(&x);
    return status;
}

static int recurrence(struct kcp_report *rep)
{
    static const double gates[] = { 0, -1, -5, -50 };
    static const int chunks[] = { 4, 8, 16, 64 };
    int status = KCP_OK;
    for (int j = 0; j < 32 && !status; j++)
        status = against_step(rep, j % 2 ? KCP_GDN : KCP_KDA, chunks[j / 2 % 4],
                              gates[j / 8], UP_TO_GATE, 1e-13);
    return status;
}
KCP_CHECK(check_04_recurrence) = { "04_chunk", "recurrence",
    "o and ht equal those of the recurrence for C = 4 to 64, partial chunks and "
    "gates down to -50", recurrence };

/* G is a running sum of gates. Without a lower limit, one gate of -1e30 would make G
 * lose all digits of the other gates. */
static int closed(struct kcp_report *rep)
{
    static const double far[] = { -60, -800, -1e8, -1e30, -1.7e308 };
    int status = KCP_OK;
    for (int j = 0; j < 10 && !status; j++)
        status = against_step(rep, j % 2 ? KCP_GDN : KCP_KDA, 16, far[j / 2],
                              SOME_GATES, 1e-11);
    return status;
}
KCP_CHECK(check_04_closed) = { "04_chunk", "closed",
    "o and ht equal those of the recurrence if some gates are -60 to -1.7e308",
    closed };
