/* planted.c -- a state that is not carried from chunk to chunk.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_lists.c: where there
 * is one chunk the same code is right.  Next: planted_08.c.
 *
 * Every chunk is handed to the reference as a stretch, in chapters 04, 05, 09 and 11.
 */
#include "checked.h"
#include "plants.h"

/* One stretch of at most one chunk, tokens from..to of the rank. A grid of a part of
 * the tokens would be refused, so the check of the call is left out. */
struct grid { int cu[2], cn[2], sc[1]; };

static struct grid grid_of(int from, int to)
{
    return (struct grid){ { from, to }, { 0, to > from }, { 0 } };
}

#define ALONE(x, grid)                                                                \
    (x).NS = 1;                                                                       \
    (x).NC = (grid).cn[1];                                                            \
    (x).cu = (grid).cu;                                                               \
    (x).cn = (grid).cn;                                                               \
    (x).sc = (grid).sc

/* Chunk c of stretch s; of a stretch without tokens there is one, which is empty. */
static struct grid chunk_of(const int *cu, const int *cn, int s, int c, int C)
{
    const int from = cu[s] + c * C;
    return grid_of(from, c + 1 < cn[s + 1] - cn[s] ? from + C : cu[s + 1]);
}

static int chunks_of(const int *cn, int s)
{
    return cn[s + 1] > cn[s] ? cn[s + 1] - cn[s] : 1;
}

static const void *row(const void *states, int64_t at)
{
    return states ? (const double *)states + at : NULL;
}

int uncarried_04(void *args)
{
    const struct kcp_chunk *a = args;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int *cu = a->cu, *cn = a->cn;
    int status = KCP_OK;
    if (!planted_here(args)) return ref_chunk(args);
    kcp_checked_enter();
    for (int s = 0; s < a->NS; s++)
        for (int c = 0; c < chunks_of(cn, s) && !status; c++) {
            struct kcp_chunk x = *a;
            struct grid grid = chunk_of(cu, cn, s, c, a->C);
            ALONE(x, grid);
            x.h = (double *)a->h + (cn[s] + c) * KV;
            x.h_out = (double *)a->h_out + s * KV;
            x.h_in = c ? NULL : row(a->h_in, s * KV);
            status = ref_chunk(&x);
        }
    kcp_checked_leave();
    return status;
}

/* Each chunk begins with [0 | I] again: the map is that of the last one. */
int uncarried_05(void *args)
{
    const struct kcp_affine *a = args;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    const int *cu = a->cu, *cn = a->cn;
    int status = KCP_OK;
    if (!planted_here(args)) return ref_affine(args);
    kcp_checked_enter();
    for (int s = 0; s < a->NS && !status; s++) {
        struct kcp_affine x = *a;
        const int last = chunks_of(cn, s) - 1;
        struct grid grid = chunk_of(cu, cn, s, last, a->C);
        ALONE(x, grid);
        x.want = (const int *)a->want + s;
        x.h_start = last ? NULL : row(a->h_start, s * KV);
        x.map = (double *)a->map + s * map;
        status = ref_affine(&x);
    }
    kcp_checked_leave();
    return status;
}

int uncarried_09(void *args)
{
    const struct kcp_chunk_backward *a = args;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int *cu = a->cu, *cn = a->cn;
    int status = KCP_OK;
    if (!planted_here(args)) return ref_chunk_backward(args);
    kcp_checked_enter();
    for (int s = 0; s < a->NS; s++)
        for (int c = chunks_of(cn, s) - 1; c >= 0 && !status; c--) {
            struct kcp_chunk_backward x = *a;
            struct grid grid = chunk_of(cu, cn, s, c, a->C);
            const int is_last = c == chunks_of(cn, s) - 1;
            ALONE(x, grid);
            x.dh = (double *)a->dh + (cn[s] + c) * KV;
            x.dh_in = (double *)a->dh_in + s * KV;
            x.dh_out = is_last ? row(a->dh_out, s * KV) : NULL;
            status = ref_chunk_backward(&x);
        }
    kcp_checked_leave();
    return status;
}

/* Backwards: the map is that of the first chunk, which comes last. */
int uncarried_11(void *args)
{
    const struct kcp_merge_backward *a = args;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int64_t map = (int64_t)a->HV * a->K * (a->V + a->K);
    const int *cu = a->cu, *cn = a->cn;
    int status = KCP_OK;
    if (!planted_here(args)) return ref_merge_backward(args);
    kcp_checked_enter();
    for (int s = 0; s < a->NS && !status; s++) {
        struct kcp_merge_backward x = *a;
        struct grid grid = chunk_of(cu, cn, s, 0, a->C);
        ALONE(x, grid);
        x.want = (const int *)a->want + s;
        x.dh_end = chunks_of(cn, s) > 1 ? NULL : row(a->dh_end, s * KV);
        x.dmap = (double *)a->dmap + s * map;
        status = ref_merge_backward(&x);
    }
    kcp_checked_leave();
    return status;
}
