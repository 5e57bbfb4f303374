/* warp.c -- counts the products of a warp in a student's kernel.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=17_products.  Next: banks.c.
 * This file replaces ref/17_warp.c in the student's object. The variant "products"
 * requires as many mma as the chunk's tiles need. With fewer, a product was computed
 * without warp_mma. With more, a tile was computed twice.
 */
#define warp_mma plain_mma
#include "17_warp.c"
#undef warp_mma
#include "kcp.h"
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_products_lab;
void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b);

static int64_t products;

void warp_mma(struct fragment_d *d, const struct fragment_a *a,
              const struct fragment_b *b)
{
    products++;
    plain_mma(d, a, b);
}

static int tiles(int n, int size) { return (n + size - 1) / size; }

static int counted(void *args)
{
    const struct kcp_ladder *a = args;
    const int K = a->K, *cu = a->cu, *cn = a->cn;
    int64_t least = 0, most = 0;
    for (int s = 0; s < a->NS; s++)
        for (int c = cn[s]; c < cn[s + 1]; c++) {
            const int left = cu[s + 1] - cu[s] - (c - cn[s]) * a->C;
            const int len = left < a->C ? left : a->C;
            const int64_t warps = (int64_t)a->HV * tiles(a->V, 16);
            least += warps * tiles(K, 16) * tiles(len, 8);
            least += warps * tiles(K, 8) * tiles(len, 16);
            most += warps * tiles(K, 16) * 16;
        }
    products = 0;
    const int status = lab_17_products_lab.run(args);
    if (!status && (products < least || products > most))
        return failed("%lld mma, should be %lld to %lld",
                          (long long)products, (long long)least, (long long)most);
    return status;
}

KCP_VARIANT(lab_17_products_products) = { "17_ladder", "products", "yours, counted",
    KCP_F64, KCP_HOST, "any", counted, NULL };
