/* checks.c -- compares the outputs and states of the chunked form with the recurrence.
 * Book: chapter 04. */
#include "tests/03_wy/batch.h"

static const char *const names[][2] = { { "o", "o" }, { "h_out", "ht" } };

static int to_13_digits(struct kcp_report *rep, struct batch *x, const char *what)
{
    return batch_against_step(rep, x, what, KCP_FORWARD, names, 2, 1e-13);
}

static int to_11_digits(struct kcp_report *rep, struct batch *x, const char *what)
{
    return batch_against_step(rep, x, what, KCP_FORWARD, names, 2, 1e-11);
}

static int recurrence(struct kcp_report *rep)
{
    return batch_each(rep, UP_TO_GATE, to_13_digits);
}
KCP_CHECK(check_04_recurrence) = { "04_chunk", "recurrence",
    "o and ht equal those of the recurrence for C = 4 to 64, partial chunks and "
    "gates down to -700", recurrence };

static int closed(struct kcp_report *rep)
{
    return batch_each(rep, SOME_GATES, to_11_digits);
}
KCP_CHECK(check_04_closed) = { "04_chunk", "closed",
    "o and ht equal those of the recurrence if some gates are -60 to -1.7e308",
    closed };
