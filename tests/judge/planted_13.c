/* planted_13.c -- ref/13_backward.c once more, with other scans within.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_carried.c, which
 * wants it right without a mistake, and seen with one.  Next: self_plants.h.
 */
#include "ref.h"
#include "self_plants.h"

static int its_scan(struct kcp_chunk_backward *a)
{
    return planted_in_layer == 9 ? uncarried_09(a) : ref_chunk_backward(a);
}

static int its_map(struct kcp_merge_backward *a)
{
    return planted_in_layer == 11 ? uncarried_11(a) : ref_merge_backward(a);
}

#define ref_chunk_backward its_scan
#define ref_merge_backward its_map
#define ref_backward backward
static int backward(struct kcp_backward *a);
#include "ref/13_backward.c"

int planted_13(void *args) { return backward(args); }
