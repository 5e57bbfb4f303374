/* narrow.c -- rounds the messages of an exchange to bfloat16.
 *
 * Book: chapter 20.
 * Checked by: tests/20_clusters/wire.c, tests/20_clusters/narrow_gpu.c.
 * Next: comm/form/exchange.c, which uses these calls for a lossy communicator.
 *
 * Converts doubles in host memory, or floats on a GPU, to bf16. A gather does not round
 * the calling rank's row, because this rank does not read that row from the result.
 * Messages received in a group are converted back after the end of the group. x->work
 * of the exchange contains the staging memory for bf16. */
#include "comm/lossy.h"
#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>

struct arrival { struct arrival *next; void *to; uint16_t *from; size_t numbers; };

static int narrow_host(uint16_t *to, const void *from, size_t numbers,
                       struct CUstream_st *stream)
{
    const double *x = from;
    for (size_t i = 0; i < numbers; i++)
        to[i] = bf16_of(x[i]);
    return KCP_OK;
}

static int widen_host(void *to, const uint16_t *from, size_t numbers,
                      struct CUstream_st *stream)
{
    double *x = to;
    for (size_t i = 0; i < numbers; i++)
        x[i] = bf16_value(from[i]);
    return KCP_OK;
}

static int norm_host(const void *of, size_t numbers, double *norm,
                     struct CUstream_st *stream)
{
    const double *x = of;
    double s = 0;
    for (size_t i = 0; i < numbers; i++)
        s += x[i] * x[i];
    *norm = sqrt(s);
    return KCP_OK;
}

const struct narrowing host_narrowing = { narrow_host, widen_host, norm_host };

const struct narrowing *narrowing_of(size_t elem)
{
    if (elem == sizeof(double))
        return &host_narrowing;
    return elem == sizeof(float) ? &cuda_narrowing : NULL;
}

/* ---- staging memory, in use until the group ends (without a group: until the call
 * ends) */
size_t narrow_bytes(size_t numbers)
{
    return (numbers * sizeof(uint16_t) + 15) / 16 * 16;
}

static uint16_t *take(struct narrow *n, size_t numbers)
{
    char *at = n->free;
    n->free += narrow_bytes(numbers);
    return (uint16_t *)at;
}

static void give_back(struct narrow *n)
{
    if (!n->grouped)
        n->free = n->staging;
}

static int narrow_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                       struct CUstream_st *stream)
{
    struct narrow *n = (struct narrow *)c;
    const size_t numbers = bytes / n->elem;
    uint16_t *y = take(n, numbers);
    int status = n->by->narrow(y, data, numbers, stream);
    if (!status)
        status = n->over->send(n->over, y, numbers * sizeof *y, to, stream);
    give_back(n);
    return status;
}

/* Converts the received messages from bf16. After a failure (arrived = 0) drops the
 * messages. */
static int widen(struct narrow *n, int arrived, struct CUstream_st *stream)
{
    int status = KCP_OK;
    while (n->arriving) {
        struct arrival *a = n->arriving;
        if (arrived && !status)
            status = n->by->widen(a->to, a->from, a->numbers, stream);
        n->arriving = a->next;
        free(a);
    }
    return status;
}

static int narrow_recv(struct kcp_comm *c, void *data, size_t bytes, int from,
                       struct CUstream_st *stream)
{
    struct narrow *n = (struct narrow *)c;
    const size_t numbers = bytes / n->elem;
    struct arrival *a = malloc(sizeof *a);
    if (!a)
        return KCP_NO_MEMORY;
    *a = (struct arrival){ n->arriving, data, take(n, numbers), numbers };
    n->arriving = a;
    n->stream = stream;
    int status = n->over->recv(n->over, a->from, numbers * sizeof *a->from, from,
                               stream);
    if (!status && !n->grouped)
        status = widen(n, 1, stream);
    give_back(n);
    return status;
}

void narrow_close(struct narrow *n) { widen(n, 0, NULL); }

static int narrow_group(struct kcp_comm *c, int begin)
{
    struct narrow *n = (struct narrow *)c;
    int status = n->over->group(n->over, begin);
    n->grouped = begin;
    if (begin)
        return status;
    if (!status)
        status = widen(n, 1, n->stream);
    give_back(n);
    return status;
}

static int narrow_all_gather(struct kcp_comm *c, const void *mine, void *all,
                             size_t bytes, struct CUstream_st *stream)
{
    struct narrow *n = (struct narrow *)c;
    const size_t numbers = bytes / n->elem, r = (size_t)c->r;
    uint16_t *in = take(n, numbers * (size_t)c->R);
    int status = n->by->narrow(in + r * numbers, mine, numbers, stream);
    if (!status)
        status = n->over->all_gather(n->over, in + r * numbers, in,
                                     numbers * sizeof *in, stream);
    for (size_t i = 0; i < (size_t)c->R && !status; i++)
        if (i != r)
            status = n->by->widen((char *)all + i * bytes, in + i * numbers, numbers,
                                  stream);
    give_back(n);
    return status;
}

void narrow_open(struct narrow *n, struct kcp_comm *over, size_t elem, void *staging)
{
    *n = (struct narrow){
        .comm = { .R = over->R, .r = over->r, .backend = "narrow",
                  .all_gather = narrow_all_gather, .send = narrow_send,
                  .recv = narrow_recv, .group = narrow_group },
        .over = over, .by = narrowing_of(elem), .elem = elem, .staging = staging,
        .free = staging };
}
