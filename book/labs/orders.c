/* orders.c -- runs a kernel's roles (producer, consumers) and copies in random orders.
 * Book: staff.md.  Used by: make grade LAB=17_roles.
 * This file replaces ref/17_block.c in the student's object. The variant "orders" runs
 * the kernel ten times. Each step runs a random role or completes a random copy. The
 * variant "ahead" runs no consumer until the producer waits. Then the copies of exactly
 * four chunks must have been issued. If the roles deadlock, both variants print the
 * barrier, pipeline stage and phase for which each role waits.
 */
#define block_run plain_run
#define block_passed plain_passed
#define block_barrier_init plain_barrier_init
#include "17_block.c"
#undef block_run
#undef block_passed
#undef block_barrier_init
#include "book/labs/frame.h"
#include "ref.h"

extern const struct kcp_variant lab_17_roles_lab;
int block_run(int step(void *m, int role, int i), void *m, int roles, int chunks,
              struct block_copies *q);

void block_barrier_init(struct block_barrier *b, int count);
int block_passed(const struct block_barrier *b, int phase);

/* The barriers of a block, in the order in which ref/17_roles.c initialises them
 * (`full` and `empty` of each stage), and the barrier for which each role waits. */
enum { MOST_BARRIERS = 16, MOST_ROLES = 8 };
static const struct block_barrier *barrier[MOST_BARRIERS];
static struct { const struct block_barrier *at; int phase, chunk; } waits[MOST_ROLES];
static int nbarriers, running, (*their_step)(void *m, int role, int i);

enum order { PLAIN, ANY, PRODUCER_FIRST };
static enum order order;
static int held;            /* number of chunks while no consumer may run, else 0 */
static int other;           /* 1 if the producer's first wait is not after 4 chunks */
static unsigned drawn = 1;

void block_barrier_init(struct block_barrier *b, int count)
{
    if (nbarriers < MOST_BARRIERS) barrier[nbarriers++] = b;
    plain_barrier_init(b, count);
}

int block_passed(const struct block_barrier *b, int phase)
{
    const int passed = plain_passed(b, phase);
    waits[running].at = passed ? NULL : b;
    waits[running].phase = phase;
    return passed;
}

/* Runs a step of a role. With PRODUCER_FIRST, no consumer runs until the producer
 * waits. */
static int watched(void *m, int role, int i)
{
    running = role;
    waits[role].at = NULL;
    if (held && role) return 0;
    const int went = their_step(m, role, i);
    waits[role].chunk = i + went;
    if (held && (!went || i + 1 == held)) {
        other |= went || i != 4;
        held = 0;
    }
    return went;
}

/* Prints one line with the barrier for which each role waits. */
static int deadlock(int roles, int chunks)
{
    char line[600] = "";
    size_t n = 0;
    static const char *const role_name[] = { "producer", "consumer 0", "consumer 1" };
    for (int role = 0; role < roles && n < sizeof line - 120; role++) {
        const struct block_barrier *b = waits[role].at;
        int j = 0;
        while (j < nbarriers && barrier[j] != b) j++;
        n += snprintf(line + n, sizeof line - n, "%s%s", role ? "; " : ": ",
                      role_name[role]);
        if (waits[role].chunk == chunks)
            n += snprintf(line + n, sizeof line - n, " has done all chunks");
        else if (b)
            n += snprintf(line + n, sizeof line - n, " at chunk %d waits for %s of"
                          " stage %d, phase %d; the barrier is in phase %d, with %d of"
                          " %d arrivals, %lld bytes missing", waits[role].chunk,
                          j % 2 ? "empty" : "full", j / 2, waits[role].phase,
                          b->phase, b->arrived, b->count, (long long)b->bytes);
        else
            n += snprintf(line + n, sizeof line - n, " at chunk %d returns 0 and waits"
                          " for no barrier", waits[role].chunk);
    }
    return failed("deadlock%s", line);
}

static int random_of(int n)
{
    drawn = drawn * 1103515245u + 12345u;
    return (int)(drawn / 65536 % (unsigned)n);
}

/* Tries a step of a random role or completes a random copy. Returns 1 if a step
 * or copy was done, 0 if the role must wait or there is no copy. */
static int one_step(int step(void *m, int role, int i), void *m, int roles, int chunks,
                    int *done, struct block_copies *q)
{
    const int role = random_of(roles + 1);
    if (role == roles) {
        if (!q->n) return 0;
        block_carry_out(q, random_of(q->n));
        return 1;
    }
    if (done[role] == chunks || !step(m, role, done[role])) return 0;
    done[role]++;
    return 1;
}

static int at_random(int step(void *m, int role, int i), void *m, int roles, int chunks,
                     struct block_copies *q)
{
    int done[8] = { 0 }, idle = 0, left = 1;
    while (left && idle < 200) {
        idle = one_step(step, m, roles, chunks, done, q) ? 0 : idle + 1;
        left = 0;
        for (int role = 0; role < roles; role++) left += chunks - done[role];
    }
    return left ? KCP_BAD : KCP_OK;
}

int block_run(int step(void *m, int role, int i), void *m, int roles, int chunks,
              struct block_copies *q)
{
    their_step = step;
    held = order == PRODUCER_FIRST && chunks > 4 ? chunks : 0;
    const int status = order == ANY ? at_random(watched, m, roles, chunks, q)
                                    : plain_run(watched, m, roles, chunks, q);
    if (status == KCP_BAD) deadlock(roles, chunks);
    nbarriers = 0;
    return status;
}

static int orders(void *args)
{
    int status = KCP_OK;
    order = ANY;
    for (int i = 0; i < 10 && !status; i++) status = lab_17_roles_lab.run(args);
    order = PLAIN;
    return status;
}

static int ahead(void *args)
{
    order = PRODUCER_FIRST;
    other = 0;
    const int status = lab_17_roles_lab.run(args);
    order = PLAIN;
    if (!status && other)
        return failed("found no wait of the producer after exactly 4 chunks");
    return status;
}

KCP_VARIANT(lab_17_roles_orders) = { "17_ladder", "orders", "yours, in any order",
    KCP_F64, KCP_HOST, "any", orders, NULL };
KCP_VARIANT(lab_17_roles_ahead) = { "17_ladder", "ahead", "yours, producer first",
    KCP_F64, KCP_HOST, "any", ahead, NULL };
