/* planted_08.c -- ref/08_forward.c once more, with other scans within.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_carried.c, which
 * wants it right without a mistake, and seen with one.  Next: planted_13.c.
 */
#include "ref.h"
#include "self_plants.h"

static int its_scan(struct kcp_chunk *a)
{
    return planted_in_layer == 4 ? uncarried_04(a) : ref_chunk(a);
}

static int its_map(struct kcp_affine *a)
{
    return planted_in_layer == 5 ? uncarried_05(a) : ref_affine(a);
}

#define ref_chunk its_scan
#define ref_affine its_map
#define ref_forward forward
static int forward(struct kcp_forward *a);
#include "ref/08_forward.c"

int planted_08(void *args) { return forward(args); }
