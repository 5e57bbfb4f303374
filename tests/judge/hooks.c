/* hooks.c -- wraps calls between ranks, to count groups and to run one rank at a time.
 * Book: chapter 07.
 *
 * If ranks are threads, a send does not wait, so a missing group call changes neither
 * values nor time. In NCCL a send outside a group waits for the receiver, so if two
 * ranks both send first, both wait forever. Therefore comm.h requires groups of
 * messages, and trials count the group calls.
 *
 * With --in-turn only one rank uses the GPU at a time, because compute-sanitizer's
 * racecheck fails or never ends if two threads launch kernels concurrently. A rank
 * releases its turn while it communicates. */
#include "judge.h"

/* State per rank, used only by the thread of that rank. */
static struct hook {
    struct kcp_comm real;
    int open, is_uneven, is_outside;
} hook[CASE_RANKS];

static int all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    turn_end();
    const int status = hook[c->r].real.all_gather(c, mine, all, bytes, stream);
    turn_begin();
    return status;
}

static int send_to(struct kcp_comm *c, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    hook[c->r].is_outside |= !hook[c->r].open;
    turn_end();
    const int status = hook[c->r].real.send(c, data, bytes, to, stream);
    turn_begin();
    return status;
}

static int receive(struct kcp_comm *c, void *data, size_t bytes, int from,
                   struct CUstream_st *stream)
{
    hook[c->r].is_outside |= !hook[c->r].open;
    turn_end();
    const int status = hook[c->r].real.recv(c, data, bytes, from, stream);
    turn_begin();
    return status;
}

static int show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                struct CUstream_st *stream)
{
    turn_end();
    const int status = hook[c->r].real.show(c, mine, all, bytes, stream);
    turn_begin();
    return status;
}

static int barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    turn_end();
    const int status = hook[c->r].real.barrier(c, stream);
    turn_begin();
    return status;
}

static int group(struct kcp_comm *c, int begin)
{
    struct hook *h = &hook[c->r];
    h->open += begin ? 1 : -1;
    h->is_uneven |= h->open < 0 || h->open > 1;
    return h->real.group(c, begin);
}

static void install(struct kcp_comm *c)
{
    hook[c->r].real = *c;
    c->all_gather = all_gather;
    c->send = send_to;
    c->recv = receive;
    c->barrier = barrier;
    if (c->group) c->group = group;
    if (c->show) c->show = show;
}

void groups_count(struct kcp_comm *c)
{
    struct hook *h = &hook[c->r];
    if (!ranks_in_turn) install(c);
    h->open = h->is_uneven = h->is_outside = 0;
}

const char *groups_end(struct kcp_comm *c)
{
    const struct hook *h = &hook[c->r];
    const struct kcp_traffic traffic = c->traffic;
    if (!ranks_in_turn) *c = h->real;
    c->traffic = traffic;
    if (h->open || h->is_uneven)
        return "groups of messages are nested, or not begun and ended in pairs";
    return h->is_outside ? "a send or receive is outside a group of messages" : NULL;
}

struct started { int (*body)(struct kcp_comm *, void *); void *arg; };

static int body_in_turn(struct kcp_comm *c, void *arg)
{
    const struct started *s = arg;
    turn_begin();
    install(c);
    const int status = s->body(c, s->arg);
    turn_end();
    return status;
}

int ranks_threads(const struct memory *m, int R,
                  int (*body)(struct kcp_comm *, void *), void *arg, char *why,
                  size_t n)
{
    struct started s = { body, arg };
    return ranks_in_turn ? m->threads_run(R, body_in_turn, &s, why, n)
                         : m->threads_run(R, body, arg, why, n);
}
