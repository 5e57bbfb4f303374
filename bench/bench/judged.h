/* judged.h -- the verdict on what was timed, in the process that timed it.
 *
 * Book: chapter 18.  Checked by: KCP_BENCH_WRONG, a mistake that must fail.
 * Next: judged.c.
 */
#ifndef KCP_BENCH_JUDGED_H
#define KCP_BENCH_JUDGED_H

#include "bench.h"

/* How many value heads were judged, and the worst of their slices. heads 0: none was,
 * for ranks that are processes have no memory that one of them can read. */
struct judged {
    int heads, channels;
    enum outcome outcome;
    struct worst worst;
};

/* Runs the variant once more, into outputs that are NaN before, and holds four value
 * heads (groups whole; of a convolution as many parts of its channels) to the reference
 * in double. What the references say is kept until the inputs are others. */
int judge_timed(struct runner *x, const struct kcp_stage *st,
                const struct kcp_variant *v, char *args, struct judged *out);
void judge_timed_end(const struct runner *x);          /* what was kept is freed */

#endif
