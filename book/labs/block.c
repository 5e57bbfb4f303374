/* block.c -- counts loads, copies in flight and products of a student's thread block.
 * Book: staff.md.  Used by: make grade LAB=17_shared, 17_stages, 17_descriptor.
 * This file replaces ref/17_block.c in the student's object.
 * - Variant "sectors": the loads must fetch as many 32-byte sectors as w and kg have.
 *   If they fetch fewer, block_load did not load all of w and kg; if more, neighbouring
 *   lanes read distant addresses.
 * - Variant "ahead": while a chunk is multiplied, the copies of the next two chunks
 *   must be in flight (fewer if fewer chunks remain). A chunk has four copies.
 * - Variant "products": per chunk, head and 64 columns, the product w S must take
 *   K / 16 wgmma (one per 16 rows of S), and the update of S must take four.
 */
#define block_load plain_load
#define block_chunk plain_chunk
#define block_commit plain_commit
#define warpgroup_mma plain_mma
#include "17_block.c"
#undef block_load
#undef block_chunk
#undef block_commit
#undef warpgroup_mma
#include "book/labs/frame.h"
#include "ref.h"

/* A student's object has one of these three variants. */
extern const struct kcp_variant lab_17_shared_lab __attribute__((weak));
extern const struct kcp_variant lab_17_stages_lab __attribute__((weak));
extern const struct kcp_variant lab_17_descriptor_lab __attribute__((weak));
int block_load(double *shared, const int *to, const double *global, const int64_t *from,
               const int *count);
void block_commit(struct block_copies *q);
void block_chunk(const struct kcp_ladder *a, const struct block_stage *m, int64_t t,
                 int n, int v0, int v1, double *S);
void warpgroup_mma(double *d, int columns, const double (*a)[16], const double *shared,
                   uint64_t descriptor, int mn_major);

static int64_t sectors, products;
static const struct block_copies *queue;
static int late;

int block_load(double *shared, const int *to, const double *global, const int64_t *from,
               const int *count)
{
    const int n = plain_load(shared, to, global, from, count);
    sectors += n;
    return n;
}

void block_commit(struct block_copies *q)
{
    queue = q;
    plain_commit(q);
}

/* Returns how many chunks of the sequence follow the chunk that begins at token t. */
static int64_t chunks_after(const struct kcp_ladder *a, int64_t t)
{
    const int *cu = a->cu;
    for (int s = 0; s < a->NS; s++)
        if (t >= cu[s] && t < cu[s + 1]) return (cu[s + 1] - t - 1) / a->C;
    return 0;
}

void block_chunk(const struct kcp_ladder *a, const struct block_stage *m, int64_t t,
                 int n, int v0, int v1, double *S)
{
    const int64_t after = chunks_after(a, t), due = after < 2 ? after : 2;
    if (!queue || queue->n != 4 * due) late++;
    plain_chunk(a, m, t, n, v0, v1, S);
}

void warpgroup_mma(double *d, int columns, const double (*a)[16], const double *shared,
                   uint64_t descriptor, int mn_major)
{
    products++;
    plain_mma(d, columns, a, shared, descriptor, mn_major);
}

static int counted_sectors(void *args)
{
    const struct kcp_ladder *a = args;
    const int64_t least = 2 * a->T * a->HV * a->K / 16;
    if (a->K % 16) return failed("K is not a multiple of 16");
    sectors = 0;
    const int status = lab_17_shared_lab.run(args);
    if (!status && sectors != least)
        return failed("the loads fetch %lld sectors of 32 bytes, expected %lld",
                      (long long)sectors, (long long)least);
    return status;
}

static int ahead(void *args)
{
    late = 0;
    queue = NULL;
    const int status = lab_17_stages_lab.run(args);
    if (!status && late)
        return failed("expected four copies in flight for each of the next two"
                      " chunks, found another number during %d chunks", late);
    return status;
}

static int counted_products(void *args)
{
    const struct kcp_ladder *a = args;
    const int64_t groups = (int64_t)a->NC * a->HV * ((a->V + 63) / 64);
    const int64_t due = groups * ((a->K + 15) / 16 + 4);
    products = 0;
    const int status = lab_17_descriptor_lab.run(args);
    if (!status && products != due)
        return failed("%lld wgmma, expected %lld", (long long)products, (long long)due);
    return status;
}

KCP_VARIANT(lab_17_shared_sectors) = { "17_ladder", "sectors", "yours, counted",
    KCP_F64, KCP_HOST, "K a multiple of 16", counted_sectors, NULL };
KCP_VARIANT(lab_17_stages_ahead) = { "17_ladder", "ahead", "yours, copies counted",
    KCP_F64, KCP_HOST, "any", ahead, NULL };
KCP_VARIANT(lab_17_descriptor_products) = { "17_ladder", "products", "yours, counted",
    KCP_F64, KCP_HOST, "any", counted_products, NULL };
