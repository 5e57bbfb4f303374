/* groups.c -- groups of messages, counted: is what is sent and received inside one?
 *
 * Book: chapter 07.  Checked by: self_trials.c.  Next: trial.c, which asks it
 * of every variant.
 *
 * Over threads and TCP a send does not wait, so no value and no time shows a group that
 * is missing. Over NCCL a send outside of one ends when it is received: two ranks that
 * send first wait for ever, and in a line of ranks each waits for the next. comm.h asks
 * for groups, whether a plan's ranks happen to wait or not.
 */
#include "judge.h"

/* By rank. Whoever counts is the rank's own thread. */
static struct {
    struct kcp_comm as_it_was;
    int open, uneven, outside;
} count[CASE_RANKS];

static int counted_group(struct kcp_comm *c, int begin)
{
    count[c->r].open += begin ? 1 : -1;
    count[c->r].uneven |= count[c->r].open < 0 || count[c->r].open > 1;
    return count[c->r].as_it_was.group(c, begin);
}

static int counted_send(struct kcp_comm *c, const void *x, size_t bytes, int to,
                        struct CUstream_st *stream)
{
    count[c->r].outside |= !count[c->r].open;
    return count[c->r].as_it_was.send(c, x, bytes, to, stream);
}

static int counted_recv(struct kcp_comm *c, void *x, size_t bytes, int from,
                        struct CUstream_st *stream)
{
    count[c->r].outside |= !count[c->r].open;
    return count[c->r].as_it_was.recv(c, x, bytes, from, stream);
}

void groups_count(struct kcp_comm *c)
{
    count[c->r].as_it_was = *c;
    count[c->r].open = count[c->r].uneven = count[c->r].outside = 0;
    c->group = counted_group;
    c->send = counted_send;
    c->recv = counted_recv;
}

const char *groups_end(struct kcp_comm *c)
{
    c->group = count[c->r].as_it_was.group;
    c->send = count[c->r].as_it_was.send;
    c->recv = count[c->r].as_it_was.recv;
    if (count[c->r].open || count[c->r].uneven)
        return "begins and ends groups of messages unevenly";
    return count[c->r].outside ? "sends or receives outside a group of messages" : NULL;
}
