/* banks.c -- counts a warp's reads of shared memory in a student's kernel.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=17_ldmatrix.  Next: apart.h.
 * This file replaces ref/17_warp.c in the student's object. The variant "banks"
 * requires four reads per block of 16 by 16. With more, two rows of a block share a
 * bank. With fewer, a block was read without warp_ldmatrix.
 */
#define warp_ldmatrix plain_ldmatrix
#include "17_warp.c"
#undef warp_ldmatrix
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_ldmatrix_lab;
int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans);

static int64_t times;

int warp_ldmatrix(double (*x)[8], const double *shared, const int *byte, int trans)
{
    const int read = plain_ldmatrix(x, shared, byte, trans);
    times += read;
    return read;
}

static int tiles(int n, int size) { return (n + size - 1) / size; }

static int counted(void *args)
{
    const struct kcp_ladder *a = args;
    const int *cu = a->cu, *cn = a->cn;
    int64_t least = 0, most = 0;
    for (int s = 0; s < a->NS; s++)
        for (int c = cn[s]; c < cn[s + 1]; c++) {
            const int left = cu[s + 1] - cu[s] - (c - cn[s]) * a->C;
            const int len = left < a->C ? left : a->C;
            const int64_t warps = (int64_t)a->HV * tiles(a->V, 16);
            const int64_t blocks = 2 * warps * tiles(a->K, 16);
            least += 4 * blocks * tiles(len, 16);
            most += 4 * blocks * 4;
        }
    times = 0;
    const int status = lab_17_ldmatrix_lab.run(args);
    if (!status && (times < least || times > most))
        return failed("shared memory is read %lld times, should be %lld to %lld",
                    (long long)times, (long long)least, (long long)most);
    return status;
}

KCP_VARIANT(lab_17_ldmatrix_banks) = { "17_ladder", "banks", "yours, reads counted",
    KCP_F64, KCP_HOST, "any", counted, NULL };
