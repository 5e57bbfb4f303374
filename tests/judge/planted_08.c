/* planted_08.c -- a copy of ref/08_forward.c whose scans do not carry the state.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_lists.c.
 * Next: planted_13.c. */
#include "ref.h"
#include "plants.h"

static int uncarried_scan(struct kcp_chunk *a)
{
    return planted_chapter == 4 ? uncarried_04(a) : ref_chunk(a);
}

static int uncarried_map(struct kcp_affine *a)
{
    return planted_chapter == 5 ? uncarried_05(a) : ref_affine(a);
}

#undef ref_chunk
#define ref_chunk uncarried_scan
#undef ref_affine
#define ref_affine uncarried_map
#undef ref_forward
#define ref_forward forward
static int forward(struct kcp_forward *a);
#include "ref/08_forward.c"

int planted_08(void *args) { return forward(args); }
