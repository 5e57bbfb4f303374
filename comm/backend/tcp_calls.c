/* process_calls.c -- what a process rank may call: letters over its connections.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh.
 * Next: nccl.c, which talks of its ranks through this.
 *
 * The other end's reader takes every letter at once, so a send does not wait for the
 * receive that matches it; receives, gathers and barriers wait, KCP_TIMEOUT_S at most.
 */
#include "tcp.h"

#include <stdlib.h>
#include <string.h>

static int all_gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    struct process *p = (struct process *)c;
    const struct frame f = { .kind = GATHERED, .rank = c->r, .bytes = bytes };
    char *row = all;
    int err = KCP_OK;
    if (bytes && row + (size_t)c->r * bytes != mine)
        memcpy(row + (size_t)c->r * bytes, mine, bytes);
    for (int d = 1; d < c->R && !err; d++)
        err = process_reach(p, (c->r + d) % c->R, f, mine, "all_gather");
    for (int r = 0; r < c->R && !err; r++) {
        struct post *l = r == c->r ? NULL : process_wait(p, r, GATHERED, "all_gather");
        if (r == c->r)
            continue;
        if (!l)
            return KCP_COMM;
        if (l->bytes != bytes)
            err = process_announce(p, r, KCP_COMM, "all_gather of unequal sizes");
        else if (bytes)
            memcpy(row + (size_t)r * bytes, l->data, bytes);
        free(l);
    }
    c->traffic.bytes += (int64_t)(c->R - 1) * (int64_t)bytes;
    c->traffic.collectives++;
    return err;
}

static int send_to(struct kcp_comm *c, const void *data, size_t bytes, int to,
                   struct CUstream_st *stream)
{
    const struct frame f = { .kind = LETTER, .rank = c->r, .bytes = bytes };
    if (to < 0 || to >= c->R || to == c->r)
        return KCP_BAD;
    c->traffic.bytes += (int64_t)bytes;
    c->traffic.messages++;
    return process_reach((struct process *)c, to, f, data, "send");
}

static int recv_from(struct kcp_comm *c, void *data, size_t bytes, int from,
                     struct CUstream_st *stream)
{
    struct process *p = (struct process *)c;
    if (from < 0 || from >= c->R || from == c->r)
        return KCP_BAD;
    struct post *l = process_wait(p, from, LETTER, "recv");
    int err = l ? KCP_OK : KCP_COMM;
    if (l && l->bytes != bytes)
        err = process_announce(p, from, KCP_COMM, "a message of another size");
    else if (l && bytes)
        memcpy(data, l->data, bytes);
    free(l);
    return err;
}

static int group(struct kcp_comm *c, int begin)          /* sends do not wait */
{
    return KCP_OK;
}

static int barrier(struct kcp_comm *c, struct CUstream_st *stream)
{
    const struct kcp_traffic before = c->traffic;
    char none[1] = { 0 };
    const int err = all_gather(c, none, none, 0, stream);
    c->traffic = before;
    return err;
}

void process_calls(struct kcp_comm *c)
{
    c->all_gather = all_gather, c->send = send_to, c->recv = recv_from;
    c->group = group, c->barrier = barrier;
}
