/* self_carried.c -- the judge judged: a state that is not carried from chunk to chunk.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself: of one chunk the
 * same code is right.  Next: planted_08.c.
 *
 * Once planted in a kernel at one size and model alone, it passed. Here every chunk is
 * handed to the reference as a stretch of its own, in chapters 04, 05, 09 and 11 and in
 * these within the layers, so that no GPU is needed. Limits are those of bf16: those of
 * fp32 and of double are narrower.
 */
#include "checked.h"
#include "self_plants.h"

#include <stdlib.h>
#include <string.h>

/* One stretch of at most one chunk, tokens from..to of the rank. The reference would
 * refuse such a grid, which is of a part of its tokens: it is asked as from inside. */
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

int planted_in_layer;

/* ---- one chunk a stretch: the plant is right, by its values */
static void is_fair(struct kcp_report *rep, const struct plant *p, const char *words)
{
    const struct kcp_variant v = { p->stage, "planted", "", p->storage, KCP_HOST, "any",
                                   p->run, NULL };
    struct verdict t = { .outcome = FAIL };
    struct kcase k;
    char why[160];
    const int bad = case_parse(words, &k, why, sizeof why) ||
                    judge_case(stage_find(p->stage), &v, &k, KCP_F64, &t);
    EXPECT(rep, !bad && t.outcome == PASS && t.worst.tol > 0, "%s, %s: %s", p->stage,
           words, t.why);
}

/* ---- several: it is seen at each size and model */
static struct kcase *several(const char *stage, int least_ranks, int *n)
{
    int all, m = 0;
    struct kcase *list = cases_anchors(stage_find(stage), 1, 1, 0, 0, &all);
    for (int i = 0; i < all; i++)
        if (list[i].call.R >= least_ranks) list[m++] = list[i];
    *n = m;
    return list;
}

static void is_seen(struct kcp_report *rep, const struct plant *p,
                    const struct kcase *list, int n)
{
    const struct sight seen = plant_seen(p, list, n, 1);
    EXPECT(rep, seen.cases, "%s, %s K=%d V=%d, %02d within: no state carried, and no "
           "case sees it; %s", p->stage, model_name[planted_at.model], planted_at.K,
           planted_at.V, planted_in_layer, seen.why);
}

static void go_to(int i)
{
    planted_at = (struct planted_at){ planted_sizes[i / 2][0], planted_sizes[i / 2][1],
                                      i % 2 };
}

static int carried(struct kcp_report *rep)
{
    static const struct plant plants[] = {
        { "04_chunk", uncarried_04, KCP_F64, KCP_BF16, 0 },
        { "05_affine", uncarried_05, KCP_F64, KCP_BF16, 0 },
        { "09_chunk_backward", uncarried_09, KCP_F64, KCP_BF16, 0 },
        { "11_merge_backward", uncarried_11, KCP_F64, KCP_BF16, 0 } };
    for (int p = 0; p < 4; p++) {
        int n;
        struct kcase *list = several(plants[p].stage, 1, &n);
        is_fair(rep, &plants[p], "live kda H=1 HV=2 K=8 V=12 C=16 lengths=16,7,0,12 h0 "
                "dht l2norm");
        is_fair(rep, &plants[p], "live gdn H=1 HV=2 K=8 V=12 C=16 lengths=16,7,0,12 h0 "
                "dht l2norm");
        for (int i = 0; i < 2 * PLANTED_SIZES; i++) {
            go_to(i);
            is_seen(rep, &plants[p], list, n);
        }
        planted_at.K = 0;
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_carried) = { "00_judge", "carried",
    "a state that is not carried from chunk to chunk is seen at each size and model",
    carried };

/* At one size and model one chapter after the other, for they share cases. */
static void within(struct kcp_report *rep, const struct plant *p, const int chapter[2])
{
    int n;
    struct kcase *list = several(p->stage, 3, &n);
    for (int i = 0; i < 2; i++) {
        planted_in_layer = chapter[i];
        is_fair(rep, p, "live kda R=3 H=1 HV=2 K=8 V=12 C=16 lengths=36,9 h0 dht "
                "l2norm");
        is_fair(rep, p, "live gdn R=3 H=1 HV=2 K=8 V=12 C=16 lengths=36,9 h0 dht "
                "l2norm");
    }
    for (int i = 0; i < 4 * PLANTED_SIZES; i++) {
        planted_in_layer = chapter[i % 2];
        go_to(i / 2);
        is_seen(rep, p, list, n);
    }
    planted_at.K = planted_in_layer = 0;
    free(list);
}

static int carried_within(struct kcp_report *rep)
{
    static const struct plant plants[] = {
        { "08_forward", planted_08, KCP_F64, KCP_BF16, 0 },
        { "13_backward", planted_13, KCP_F64, KCP_BF16, 0 } };
    static const int chapters[][2] = { { 4, 5 }, { 9, 11 } };
    for (int p = 0; p < 2; p++) within(rep, &plants[p], chapters[p]);
    return KCP_OK;
}
KCP_CHECK(check_00_carried_within) = { "00_judge", "carried_within",
    "and so is one inside of 08 and 13, there where 04, 05, 09 and 11 have it",
    carried_within };
