/* warp.c -- counts the products and the reads of shared memory of a student's warp.
 * Book: staff.md.  Used by: make grade LAB=17_products, 17_ldmatrix.
 * This file replaces ref/17_warp.c in the student's object. The variant "products"
 * counts mma. If a chunk has fewer mma than its tokens need, a product did not call
 * warp_mma; if more than a full chunk needs, a tile was computed twice. The variant
 * "banks" counts reads of shared memory. If 16 x 16 numbers take more than four reads,
 * rows of these numbers share a bank; if fewer, warp_ldmatrix did not read all numbers.
 */
#define warp_mma plain_mma
#define warp_ldmatrix plain_ldmatrix
#include "17_warp.c"
#undef warp_mma
#undef warp_ldmatrix
#include "book/labs/frame.h"
#include "ref.h"

/* A student's object has one of these two variants. */
extern const struct kcp_variant lab_17_products_lab __attribute__((weak));
extern const struct kcp_variant lab_17_ldmatrix_lab __attribute__((weak));
void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b);
int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans);

static int64_t products, reads;

void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b)
{
    products++;
    plain_mma(d, a, b);
}

int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans)
{
    const int read = plain_ldmatrix(x, shared, byte, trans);
    reads += read;
    return read;
}

static int tiles(int n, int size) { return (n + size - 1) / size; }

/* Runs the lab, then tests *counter. A warp may add at most `whole` per chunk, and must
 * add at least `by8` per 8 tokens plus `by16` per 16 tokens. */
static int counted(const struct kcp_variant *lab, void *args, const char *what,
                   const int64_t *counter, int whole, int by8, int by16)
{
    const struct kcp_ladder *a = args;
    const int *cu = a->cu, *cn = a->cn;
    int64_t least = 0, most = 0;
    for (int s = 0; s < a->NS; s++)
        for (int c = cn[s]; c < cn[s + 1]; c++) {
            const int left = cu[s + 1] - cu[s] - (c - cn[s]) * a->C;
            const int len = left < a->C ? left : a->C;
            const int64_t warps = (int64_t)a->HV * tiles(a->V, 16);
            least += warps * (by8 * tiles(len, 8) + by16 * tiles(len, 16));
            most += warps * whole;
        }
    products = reads = 0;
    const int status = lab->run(args);
    if (!status && (*counter < least || *counter > most))
        return failed("found %lld %s, expected %lld to %lld", (long long)*counter, what,
                      (long long)least, (long long)most);
    return status;
}

static int counted_products(void *args)
{
    const int K = ((const struct kcp_ladder *)args)->K;
    return counted(&lab_17_products_lab, args, "mma", &products, 16 * tiles(K, 16),
                   tiles(K, 16), tiles(K, 8));
}

static int counted_reads(void *args)
{
    const int K = ((const struct kcp_ladder *)args)->K;
    return counted(&lab_17_ldmatrix_lab, args, "reads of shared memory", &reads,
                   32 * tiles(K, 16), 0, 8 * tiles(K, 16));
}

KCP_VARIANT(lab_17_products_products) = { "17_ladder", "products", "yours, counted",
    KCP_F64, KCP_HOST, "any", counted_products, NULL };
KCP_VARIANT(lab_17_ldmatrix_banks) = { "17_ladder", "banks", "yours, reads counted",
    KCP_F64, KCP_HOST, "any", counted_reads, NULL };
