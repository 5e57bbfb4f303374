/* planted_13.c -- a copy of ref/13_backward.c whose scans do not carry the state.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_lists.c.
 * Next: plants.h. */
#include "ref.h"
#include "plants.h"

static int uncarried_scan(struct kcp_chunk_backward *a)
{
    return planted_chapter == 9 ? uncarried_09(a) : ref_chunk_backward(a);
}

static int uncarried_map(struct kcp_merge_backward *a)
{
    return planted_chapter == 11 ? uncarried_11(a) : ref_merge_backward(a);
}

#undef ref_chunk_backward
#define ref_chunk_backward uncarried_scan
#undef ref_merge_backward
#define ref_merge_backward uncarried_map
#undef ref_backward
#define ref_backward backward
static int backward(struct kcp_backward *a);
#include "ref/13_backward.c"

int planted_13(void *args) { return backward(args); }
