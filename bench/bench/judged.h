/* judged.h -- a verdict on each timed row, in the process that timed it.
 *
 * Book: chapter 18.  Checked by: KCP_BENCH_WRONG, a mistake that must fail.
 * Next: judged.c.
 */
#ifndef KCP_BENCH_JUDGED_H
#define KCP_BENCH_JUDGED_H

#include "bench.h"

/* The number of judged value heads, and their worst slice. heads 0: not judged, because
 * ranks are processes without shared memory. */
struct judged {
    int heads, channels;
    enum outcome outcome;
    struct worst worst;
};

/* Runs the variant again into outputs filled with NaN and compares four value heads
 * (whole groups; of a convolution parts of its channels) with the reference in double.
 * Reference results are cached until the inputs change. */
int judge_timed(struct runner *x, const struct kcp_stage *st,
                const struct kcp_variant *v, char *args, struct judged *out);
void judge_timed_end(const struct runner *x);          /* frees the cache */

#endif
