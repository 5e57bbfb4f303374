/* in_turn.c -- ranks that share a GPU use it one at a time: kcp-check --in-turn.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli/cli.sh, on the host.  Next: device.cu.
 *
 * compute-sanitizer's racecheck loses its way, or never ends, when two threads of a
 * process launch kernels at once. So one rank has the turn, until it waits for others:
 * its calls give the turn away and take it back, and a copy between ranks has it. */
#include "judge.h"
#include <pthread.h>

int ranks_in_turn;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static struct kcp_comm own;                /* the calls as threads.c made them */

void turn_begin(void)
{
    if (ranks_in_turn) pthread_mutex_lock(&turn);
}

void turn_end(void)
{
    if (ranks_in_turn) pthread_mutex_unlock(&turn);
}

static int all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    turn_end();
    const int err = own.all_gather(c, mine, all, bytes, stream);
    turn_begin();
    return err;
}

static int send_to(struct kcp_comm *c, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    turn_end();
    const int err = own.send(c, data, bytes, to, stream);
    turn_begin();
    return err;
}

static int recv_from(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    turn_end();
    const int err = own.recv(c, data, bytes, from, stream);
    turn_begin();
    return err;
}

static int show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                struct CUstream_st *stream)
{
    turn_end();
    const int err = own.show(c, mine, all, bytes, stream);
    turn_begin();
    return err;
}

static int barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    turn_end();
    const int err = own.barrier(c, stream);
    turn_begin();
    return err;
}

struct started { int (*body)(struct kcp_comm *, void *); void *arg; };

/* With the turn, so that own is written by one at a time, and always the same. */
static int body_in_turn(struct kcp_comm *c, void *arg)
{
    const struct started *s = arg;
    turn_begin();
    own = *c;
    c->all_gather = all_gather;
    c->send = send_to;
    c->recv = recv_from;
    c->barrier = barrier;
    c->show = show;
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
