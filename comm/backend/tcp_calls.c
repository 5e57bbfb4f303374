/* tcp_calls.c -- what a process rank may call: messages over its connections.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh.
 * Next: comm/backend/nccl.c, which talks of its ranks through this.
 *
 * The other end's reader takes every message at once (a very long one when somebody
 * waits for it), so a send does not wait for the receive that matches it; receives,
 * gathers and barriers wait, KCP_TIMEOUT_S at most. */
#include "tcp.h"

#include <stdlib.h>
#include <string.h>

static int take_row(struct tcp_rank *p, int r, char *row, size_t bytes)
{
    int err = KCP_OK;
    struct tcp_message *m = tcp_await(p, r, GATHERED, "all_gather");
    if (!m)
        return KCP_COMM;
    if (m->bytes != bytes)
        err = tcp_fail(p, r, KCP_COMM, "all_gather of unequal sizes");
    else if (bytes)
        memcpy(row, m->data, bytes);
    free(m);
    return err;
}

static int tcp_all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                          struct CUstream_st *stream)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    const struct frame f = { .kind = GATHERED, .rank = c->r, .bytes = bytes };
    char *row = all;
    int err = KCP_OK;
    if (bytes && row + (size_t)c->r * bytes != mine)
        memcpy(row + (size_t)c->r * bytes, mine, bytes);
    for (int r = 0; r < c->R; r++)
        tcp_expect(p, r, (int64_t)bytes);
    for (int d = 1; d < c->R && !err; d++)
        err = tcp_send_or_fail(p, (c->r + d) % c->R, f, mine, "all_gather");
    for (int r = 0; r < c->R && !err; r++)
        if (r != c->r)
            err = take_row(p, r, row + (size_t)r * bytes, bytes);
    for (int r = 0; r < c->R; r++)
        tcp_expect(p, r, NOTHING_EXPECTED);
    c->traffic.bytes += (int64_t)(c->R - 1) * (int64_t)bytes;
    c->traffic.collectives++;
    return err;
}

static int tcp_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                    struct CUstream_st *stream)
{
    const struct frame f = { .kind = MESSAGE, .rank = c->r, .bytes = bytes };
    if (to < 0 || to >= c->R || to == c->r)
        return KCP_BAD;
    c->traffic.bytes += (int64_t)bytes;
    c->traffic.messages++;
    return tcp_send_or_fail((struct tcp_rank *)c, to, f, data, "send");
}

static int tcp_recv(struct kcp_comm *c, void *data, size_t bytes, int from,
                    struct CUstream_st *stream)
{
    struct tcp_rank *p = (struct tcp_rank *)c;
    if (from < 0 || from >= c->R || from == c->r)
        return KCP_BAD;
    tcp_expect(p, from, (int64_t)bytes);
    struct tcp_message *m = tcp_await(p, from, MESSAGE, "recv");
    tcp_expect(p, from, NOTHING_EXPECTED);
    int err = m ? KCP_OK : KCP_COMM;
    if (m && m->bytes != bytes)
        err = tcp_fail(p, from, KCP_COMM, "a message of another size");
    else if (m && bytes)
        memcpy(data, m->data, bytes);
    free(m);
    return err;
}

static int tcp_group(struct kcp_comm *c, int begin)          /* sends do not wait */
{
    return KCP_OK;
}

static int tcp_show(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                    struct CUstream_st *stream)
{
    const struct kcp_traffic before = c->traffic;
    const int err = tcp_all_gather(c, mine, all, bytes, stream);
    c->traffic = before;
    return err;
}

static int tcp_barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    char none[1] = { 0 };
    return tcp_show(c, none, none, 0, stream);
}

void tcp_calls(struct kcp_comm *c)
{
    c->all_gather = tcp_all_gather;
    c->send = tcp_send;
    c->recv = tcp_recv;
    c->group = tcp_group;
    c->barrier = tcp_barrier;
    c->show = tcp_show;
}
