/* fold.c -- runs the student's fold on blocks of columns, in rows whose pitch is not V.
 * Book: staff.md.  Used by: the last row of 07_merge.lab.
 * This variant of stage 07 calls `apply` of the student's table lab_mapops as the
 * exchange algorithm `pipeline` does: for Vb columns of S from column v0 on.
 */
#include "kcp.h"
#include "comm.h"
#include "stages.h"

#include <stdlib.h>
#include <string.h>

extern const struct kcp_mapops lab_mapops;

enum { WIDE = 3, SPARE = 2 };          /* per row: used numbers, unused numbers */

/* Computes Vb columns of S [HV,K,V] from column v0. `rows` has pitch Vb + SPARE. */
static int block(const struct kcp_merge *a, int v0, int Vb, double *rows)
{
    const int HV = a->HV, K = a->K, V = a->V, backward = a->pass == KCP_BACKWARD;
    const int j0 = a->range[0], j1 = a->range[1], ld = Vb + SPARE;
    const int64_t map = (int64_t)HV * K * (V + K);
    int status = KCP_OK;
    for (int s = j0; s < j1 && !status; s++) {
        const int j = backward ? j0 + j1 - 1 - s : s;
        status = lab_mapops.apply(HV, K, V, (const double *)a->maps + j * map, backward,
                                  s == j0, v0, Vb, rows, ld, rows, ld, NULL);
    }
    for (int64_t i = 0; i < (int64_t)HV * K; i++)
        memcpy((double *)a->S + i * V + v0, rows + i * ld, sizeof(double) * (size_t)Vb);
    return status;
}

static int by_blocks(void *args)
{
    const struct kcp_merge *a = args;
    double *rows = calloc((size_t)(a->HV * a->K * (WIDE + SPARE)), sizeof *rows);
    int status = rows ? KCP_OK : KCP_NO_MEMORY;
    for (int v0 = 0; v0 < a->V && !status; v0 += WIDE) {
        const int Vb = a->V - v0 < WIDE ? a->V - v0 : WIDE;
        memset(rows, 0, sizeof *rows * (size_t)(a->HV * a->K * (WIDE + SPARE)));
        status = block(a, v0, Vb, rows);
    }
    free(rows);
    return status;
}

KCP_VARIANT(lab_07_merge_blocks) = {
    "07_merge", "blocks", "yours, by blocks of columns",
    KCP_F64, KCP_HOST, "any", by_blocks, NULL
};
