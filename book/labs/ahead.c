/* ahead.c -- counts the copies in flight in the loop of a student's kernel.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=17_stages.  Next: descriptors.c.
 * This file replaces ref/17_block.c in the student's object. A chunk has four copies.
 * The variant "ahead" requires that the copies of the next two chunks, or of all chunks
 * that remain, are in flight while a chunk is multiplied.
 */
#define block_chunk plain_chunk
#define block_commit plain_commit
#include "17_block.c"
#undef block_chunk
#undef block_commit
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_stages_lab;
void block_commit(struct block_copies *q);
void block_chunk(const struct kcp_ladder *a, const struct block_stage *m, int64_t t,
                 int n, int v0, int v1, double *S);

static const struct block_copies *queue;
static int late;

void block_commit(struct block_copies *q)
{
    queue = q;
    plain_commit(q);
}

/* Returns the number of chunks after the chunk that begins at token t. */
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

static int ahead(void *args)
{
    late = 0;
    queue = NULL;
    const int status = lab_17_stages_lab.run(args);
    if (!status && late)
        return failed("during %d chunks the copies in flight are not those of the next"
                    " two chunks", late);
    return status;
}

KCP_VARIANT(lab_17_stages_ahead) = { "17_ladder", "ahead", "yours, copies counted",
    KCP_F64, KCP_HOST, "any", ahead, NULL };
