/* descriptors.c -- counts the products of a warpgroup in a student's kernel.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=17_descriptor.  Next: orders.c.
 * This file replaces ref/17_block.c in the student's object. The variant "products"
 * requires one wgmma per step of 16 rows: K / 16 for w S and four for the update of S.
 */
#define warpgroup_mma plain_mma
#include "17_block.c"
#undef warpgroup_mma
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_descriptor_lab;
void warpgroup_mma(double *d, int columns, const double (*a)[16], const double *shared,
                   uint64_t descriptor, int mn_major);

static int64_t products;

void warpgroup_mma(double *d, int columns, const double (*a)[16], const double *shared,
                   uint64_t descriptor, int mn_major)
{
    products++;
    plain_mma(d, columns, a, shared, descriptor, mn_major);
}

static int counted(void *args)
{
    const struct kcp_ladder *a = args;
    const int64_t groups = (int64_t)a->NC * a->HV * ((a->V + 63) / 64);
    const int64_t due = groups * ((a->K + 15) / 16 + 4);
    products = 0;
    const int status = lab_17_descriptor_lab.run(args);
    if (!status && products != due)
        return failed("%lld wgmma, expected %lld", (long long)products,
                      (long long)due);
    return status;
}

KCP_VARIANT(lab_17_descriptor_products) = { "17_ladder", "products", "yours, counted",
    KCP_F64, KCP_HOST, "any", counted, NULL };
