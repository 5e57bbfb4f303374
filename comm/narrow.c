/* narrow.c -- an exchange's numbers as bfloat16 on the wire, rounded once a message.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/wire.c.
 * Next: comm/form/exchange.c, which puts this between a form and the wire.
 *
 * Host memory, numbers of 8 bytes. Of a gather a rank's own row stays as it was: nobody
 * reads it there. What arrives inside a group is widened when the group has ended. */
#include "comm/lossy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct arrival { struct arrival *next; double *to; size_t numbers; uint16_t data[]; };

/* To the nearest, ties to even. The way through float is rounded to odd, so that no
 * number is rounded twice. */
//> to-bf16
uint16_t narrow_to_bf16(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (isnan(x))
        return 0x7fff;
    if (fabs((double)f) > fabs(x))
        u--;                                   /* toward zero */
    memcpy(&f, &u, sizeof f);
    if ((double)f != x)
        u |= 1;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
//< to-bf16

double narrow_from_bf16(uint16_t x)
{
    const uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t *narrowed(const double *x, size_t numbers)
{
    uint16_t *y = malloc(numbers * sizeof *y + 1);
    for (size_t i = 0; y && i < numbers; i++)
        y[i] = narrow_to_bf16(x[i]);
    return y;
}

static int narrow_send(struct kcp_comm *c, const void *data, size_t bytes, int to,
                       struct CUstream_st *stream)
{
    struct kcp_comm *over = ((struct narrow *)c)->over;
    const size_t numbers = bytes / sizeof(double);
    uint16_t *y = narrowed(data, numbers);
    const int status = y ? over->send(over, y, numbers * sizeof *y, to, stream)
                         : KCP_NO_MEMORY;
    free(y);                                   /* a host's send has copied it */
    return status;
}

/* What has arrived is widened; what has not, after a failure, is dropped. */
static void widen(struct narrow *n, int arrived)
{
    while (n->arriving) {
        struct arrival *a = n->arriving;
        for (size_t i = 0; i < a->numbers && arrived; i++)
            a->to[i] = narrow_from_bf16(a->data[i]);
        n->arriving = a->next;
        free(a);
    }
}

static int narrow_recv(struct kcp_comm *c, void *data, size_t bytes, int from,
                       struct CUstream_st *stream)
{
    struct narrow *n = (struct narrow *)c;
    const size_t numbers = bytes / sizeof(double);
    struct arrival *a = malloc(sizeof *a + numbers * sizeof *a->data);
    if (!a)
        return KCP_NO_MEMORY;
    *a = (struct arrival){ n->arriving, data, numbers };
    n->arriving = a;
    const int status = n->over->recv(n->over, a->data, numbers * sizeof *a->data, from,
                                     stream);
    if (!status && !n->grouped)
        widen(n, 1);
    return status;
}

void narrow_close(struct narrow *n) { widen(n, 0); }

static int narrow_group(struct kcp_comm *c, int begin)
{
    struct narrow *n = (struct narrow *)c;
    const int status = n->over->group(n->over, begin);
    n->grouped = begin;
    if (!begin)
        widen(n, !status);
    return status;
}

static int narrow_all_gather(struct kcp_comm *c, const void *mine, void *all,
                             size_t bytes, struct CUstream_st *stream)
{
    struct kcp_comm *over = ((struct narrow *)c)->over;
    const size_t numbers = bytes / sizeof(double), row = numbers * sizeof(uint16_t);
    uint16_t *y = narrowed(mine, numbers), *in = malloc(row * (size_t)over->R + 1);
    double *out = all;
    int status = y && in ? over->all_gather(over, y, in, row, stream) : KCP_NO_MEMORY;
    for (int r = 0; r < over->R && !status; r++)
        for (size_t i = 0; i < numbers && r != over->r; i++)
            out[r * numbers + i] = narrow_from_bf16(in[r * numbers + i]);
    free(y);
    free(in);
    return status;
}

void narrow_open(struct narrow *n, struct kcp_comm *over)
{
    *n = (struct narrow){
        .comm = { .R = over->R, .r = over->r, .backend = "narrow",
                  .all_gather = narrow_all_gather, .send = narrow_send,
                  .recv = narrow_recv, .group = narrow_group },
        .over = over };
}
