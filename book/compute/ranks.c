/* ranks.c -- runs ranks without threads: a rank that waits is started again later.
 * Book: page "compute".
 *
 * The ranks run one after another. If a rank receives a message that is not there yet,
 * the call returns KCP_COMM, so the rank's function returns early. When the other ranks
 * have run, the rank is started again from the beginning: it sends the same messages,
 * which are not posted twice, and this time finds the message. comm/form/ and ref/ run
 * unchanged. */
#include "page.h"

#include <stdlib.h>
#include <string.h>

struct post posts[MOST_POSTS];
int nposts, starts, page_pass;

/* `clock` is the largest step received so far. A message does not depend on messages
 * received in the same group, so `next` becomes `clock` at the group's end. */
struct member {
    struct kcp_comm comm;      /* must be first */
    int clock, next, grouped, waits;
    int sent[MOST_R], received[MOST_R], gathers;
};

/* Returns post number n of this rank pair and pass, or NULL. */
static struct post *find(int from, int to, int n)
{
    for (int i = 0; i < nposts; i++)
        if (posts[i].from == from && posts[i].to == to &&
            posts[i].pass == page_pass && n-- == 0)
            return &posts[i];
    return NULL;
}

static int post(struct member *m, const void *data, size_t bytes, int to, int n)
{
    if (find(m->comm.r, to, n)) return KCP_OK;
    double *copy = malloc(bytes);
    if (nposts == MOST_POSTS || !copy) return KCP_NO_MEMORY;
    memcpy(copy, data, bytes);
    posts[nposts++] = (struct post){ m->comm.r, to, page_pass, m->clock + 1, bytes,
                                     copy };
    return KCP_OK;
}

/* Copies the message, or marks the rank as waiting. */
static int take(struct member *m, const struct post *p, void *to, size_t bytes)
{
    if (!p || p->bytes != bytes) {
        m->waits = 1;
        return m->grouped && !p ? KCP_OK : KCP_COMM;
    }
    memcpy(to, p->data, bytes);
    m->next = p->step > m->next ? p->step : m->next;
    if (!m->grouped) m->clock = m->next;
    return KCP_OK;
}

static int sim_send(struct kcp_comm *comm, const void *data, size_t bytes, int to,
                    struct CUstream_st *stream)
{
    struct member *m = (struct member *)comm;
    comm->traffic.bytes += (int64_t)bytes;
    comm->traffic.messages++;
    return post(m, data, bytes, to, m->sent[to]++);
}

static int sim_recv(struct kcp_comm *comm, void *to, size_t bytes, int from,
                    struct CUstream_st *stream)
{
    struct member *m = (struct member *)comm;
    return take(m, find(from, comm->r, m->received[from]++), to, bytes);
}

static int sim_gather(struct kcp_comm *comm, const void *mine, void *all, size_t bytes,
                      struct CUstream_st *stream)
{
    struct member *m = (struct member *)comm;
    const int n = m->gathers++;
    int status = post(m, mine, bytes, -1, n);
    comm->traffic.bytes += (comm->R - 1) * (int64_t)bytes;
    comm->traffic.collectives++;
    for (int r = 0; r < comm->R && !status; r++)
        status = take(m, find(r, -1, n), (char *)all + (size_t)r * bytes, bytes);
    return status;
}

static int sim_group(struct kcp_comm *comm, int begin)
{
    struct member *m = (struct member *)comm;
    m->grouped = begin;
    m->clock = m->next;
    return m->waits ? KCP_COMM : KCP_OK;
}

static int sim_barrier(struct kcp_comm *comm, struct CUstream_st *stream)
{
    return KCP_OK;
}

static void sim_fail(struct kcp_comm *comm, int status, const char *why)
{
}

void ranks_backward(struct kcp_comm *comm)
{
    struct member *m = (struct member *)comm;
    page_pass = KCP_BACKWARD;
    *m = (struct member){ .comm = m->comm };
}

int ranks_run(int R, int (*body)(struct kcp_comm *, void *), void *arg)
{
    int done[MOST_R] = { 0 }, left = R, before = -1;
    starts = 0;
    for (int i = 0; i < nposts; i++) free(posts[i].data);
    nposts = 0;
    while (left && left * 10000 + nposts != before) {      /* a round made progress */
        before = left * 10000 + nposts;
        for (int r = 0; r < R; r++) {
            struct member m = { .comm = { .R = R, .r = r, .backend = "simulated",
                .send = sim_send, .recv = sim_recv, .all_gather = sim_gather,
                .group = sim_group, .barrier = sim_barrier, .fail = sim_fail } };
            if (done[r]) continue;
            starts++;
            page_pass = KCP_FORWARD;
            const int status = body(&m.comm, arg);
            if (status && !m.waits) return status;
            done[r] = !status;
            left -= !status;
        }
    }
    return left ? KCP_COMM : KCP_OK;
}
