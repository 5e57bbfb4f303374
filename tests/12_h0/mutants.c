/* mutants.c -- saves and restores initial states with one deliberate error per flag.
 * Book: chapter 12. */
#include "kcp.h"

#include <string.h>

#define MUTANTS(MUTANT)                                                               \
    MUTANT(keeps_last, LAST,                                                          \
           "errata 6: saves the last segment's state, not the first's")               \
    MUTANT(no_fill, NO_FILL, "does not write h_back of segments after the first")     \
    MUTANT(no_start, NO_START,                                                        \
           "sets h_back of later segments to 0 even if h0 is given")                  \
    MUTANT(to_last, SHIFTED,                                                          \
           "copies the saved state to the last segment, not the first")               \
    MUTANT(turned, TURNED, "reads the state as [V,K]")                                \
    MUTANT(one_head, ONE_HEAD, "every head gets the state of head 0")                 \
    MUTANT(everywhere, EVERYWHERE, "copies the saved state to all segments, not one") \
    MUTANT(from_start, FROM_START, "saves the first segment's h0, not its h_in")      \
    MUTANT(writes_nothing, NOTHING, "returns at once")
#include "tests/mutants.h"

/* Returns the index to read for element e. TURNED exchanges K and V. */
static int64_t at(const struct kcp_h0 *a, int flags, int64_t e)
{
    const int64_t KV = (int64_t)a->K * a->V, kv = e % KV;
    if (flags & ONE_HEAD) return kv;
    return flags & TURNED ? e - kv + kv % a->K * a->V + kv / a->K : e;
}

static int mutate(struct kcp_h0 *a, int flags)
{
    const int64_t size = (int64_t)a->HV * a->K * a->V;
    const double *h_in = a->h_in, *h_start = a->h_start, *kept_in = a->h_kept_in;
    double *h_kept = a->h_kept, *h_back = a->h_back;
    const int own = flags & (LAST | SHIFTED) ? a->NS - 1 : 0;

    if (flags & NOTHING || a->NS == 0) return KCP_OK;
    for (int64_t e = 0; e < size && a->pass == KCP_FORWARD; e++) {
        const double *from = flags & FROM_START && h_start ? h_start : h_in;
        h_kept[e] = from[(flags & LAST ? own * size : 0) + at(a, flags, e)];
    }
    for (int s = 0; s < a->NS && a->pass == KCP_BACKWARD; s++)
        for (int64_t e = 0; e < size; e++) {
            const int given = h_start && !(flags & NO_START);
            const double start = given ? h_start[s * size + e] : 0;
            if (s == (flags & SHIFTED ? own : 0) || flags & EVERYWHERE)
                h_back[s * size + e] = kept_in[at(a, flags, e)];
            else if (!(flags & NO_FILL)) h_back[s * size + e] = start;
        }
    return KCP_OK;
}

#define MUTANT_STAGE m12, "12_h0", "any shape", mutate
MUTANTS(MUTANT)
MUTANT_TWIN
