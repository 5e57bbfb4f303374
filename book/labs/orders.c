/* orders.c -- roles and copies in random orders, around a student's rung.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=17_roles.  Next: frame.h.
 * It stands for ref/17_block.c in the student's object. The variant "orders" lets any
 * role go that can, and ends any copy that is under way, at random, ten times over.
 * The variant "ahead" lets the producer go first, as long as it can: then, before any
 * consumer's first chunk, four chunks are asked for, and no fifth.
 */
#define block_run plain_run
#include "17_block.c"
#undef block_run
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_roles_lab;
int block_run(int role(void *m, int who, int i), void *m, int roles, int chunks,
              struct block_copies *q);

enum order { PLAIN, ANY, PRODUCER_FIRST };
static enum order order;
static unsigned drawn = 1;
static int other;                      /* a producer that was not four chunks ahead */

static int random_of(int n)
{
    drawn = drawn * 1103515245u + 12345u;
    return (int)(drawn / 65536 % (unsigned)n);
}

/* One role, or the engine, at random; 0 when it cannot go. */
static int one_step(int role(void *m, int who, int i), void *m, int roles, int chunks,
                    int *done, struct block_copies *q)
{
    const int who = random_of(roles + 1);
    if (who == roles) {
        if (!q->n) return 0;
        block_carry_out(q, random_of(q->n));
        return 1;
    }
    if (done[who] == chunks || !role(m, who, done[who])) return 0;
    done[who]++;
    return 1;
}

static int at_random(int role(void *m, int who, int i), void *m, int roles, int chunks,
                     struct block_copies *q)
{
    int done[8] = { 0 }, idle = 0, left = 1;
    while (left && idle < 200) {
        idle = one_step(role, m, roles, chunks, done, q) ? 0 : idle + 1;
        left = 0;
        for (int who = 0; who < roles; who++) left += chunks - done[who];
    }
    return left ? KCP_BAD : KCP_OK;
}

int block_run(int role(void *m, int who, int i), void *m, int roles, int chunks,
              struct block_copies *q)
{
    if (order == ANY) return at_random(role, m, roles, chunks, q);
    if (order == PRODUCER_FIRST && chunks > 4) {
        int done[8] = { 0 }, who = 0;
        while (done[0] < chunks && role(m, 0, done[0])) done[0]++;
        other |= done[0] != 4;
        for (int idle = 0; idle <= roles; who = (who + 1) % roles) {
            while (q->n) block_carry_out(q, 0);
            idle++;
            if (done[who] == chunks || !role(m, who, done[who])) continue;
            done[who]++;
            idle = 0;
        }
        for (who = 0; who < roles; who++)
            if (done[who] < chunks) return KCP_BAD;
        return KCP_OK;
    }
    return plain_run(role, m, roles, chunks, q);
}

static int orders(void *args)
{
    int status = KCP_OK;
    order = ANY;
    for (int i = 0; i < 10 && !status; i++) status = lab_17_roles_lab.run(args);
    order = PLAIN;
    return status ? told("in some order all wait for one another") : status;
}

static int ahead(void *args)
{
    order = PRODUCER_FIRST;
    other = 0;
    const int status = lab_17_roles_lab.run(args);
    order = PLAIN;
    if (!status && other) return told("the producer is not four chunks ahead");
    return status;
}

KCP_VARIANT(lab_17_roles_orders) = { "17_ladder", "orders", "yours, in any order",
    KCP_F64, KCP_HOST, "any", orders, NULL };
KCP_VARIANT(lab_17_roles_ahead) = { "17_ladder", "ahead", "yours, producer first",
    KCP_F64, KCP_HOST, "any", ahead, NULL };
