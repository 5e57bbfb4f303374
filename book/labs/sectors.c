/* sectors.c -- counts the sectors that the loads of a student's kernel fetch.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=17_shared.  Next: ahead.c.
 * This file replaces ref/17_block.c in the student's object. The variant "sectors"
 * requires as many sectors as w and kg have. With fewer, block_load did not load all of
 * w and kg. With more, neighbouring lanes read distant addresses.
 */
#define block_load plain_load
#include "17_block.c"
#undef block_load
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_shared_lab;
int block_load(double *shared, const int *to, const double *global, const int64_t *from,
               const int *count);

static int64_t sectors;

int block_load(double *shared, const int *to, const double *global, const int64_t *from,
               const int *count)
{
    const int n = plain_load(shared, to, global, from, count);
    sectors += n;
    return n;
}

static int counted(void *args)
{
    const struct kcp_ladder *a = args;
    const int64_t least = 2 * a->T * a->HV * a->K / 16;
    if (a->K % 16) return failed("K is no multiple of 16");
    sectors = 0;
    const int status = lab_17_shared_lab.run(args);
    if (!status && sectors != least)
        return failed("%lld sectors of 32 bytes are fetched, should be %lld",
                    (long long)sectors, (long long)least);
    return status;
}

KCP_VARIANT(lab_17_shared_sectors) = { "17_ladder", "sectors", "yours, counted",
    KCP_F64, KCP_HOST, "K a multiple of 16", counted, NULL };
