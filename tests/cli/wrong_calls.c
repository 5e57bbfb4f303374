/* wrong_calls.c -- runs MPI ranks that make wrong or unusual calls.
 * Book: chapter 20.
 *
 *   kcp-wrong-calls WAY    peer, empty, cross: status 0. alone: status 2. Other ways:
 *                          status 1, and each rank prints the rank that failed and why.
 * This program is linked with a build of mpi.c that sends pieces of 1,000 bytes. */
#include "comm/backend/kcp_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 18, TIMES = 4 };
static char *x, *y;

static int rank_of_three(struct kcp_comm *c, size_t sent, size_t received)
{
    if (c->r == 0) return c->send(c, x, sent, 1, NULL);
    return c->r == 1 ? c->recv(c, y, received, 0, NULL) : c->barrier(c, NULL);
}

static int unequal(struct kcp_comm *c)
{
    return c->all_gather(c, x, y, c->r == 1 ? 100 : 200, NULL);
}

static int unequal_long(struct kcp_comm *c)
{
    return c->all_gather(c, x, y, c->r == 1 ? 100000 : 200, NULL);
}

static int too_short(struct kcp_comm *c) { return rank_of_three(c, 10, 20); }
static int too_long(struct kcp_comm *c) { return rank_of_three(c, 20, 10); }

static int fails(struct kcp_comm *c)
{
    if (c->r != 1) return c->barrier(c, NULL);
    c->fail(c, KCP_BAD, "out of paper");
    return KCP_BAD;
}

static int disagree(struct kcp_comm *c)
{
    return c->r == 1 ? c->recv(c, y, 10, 0, NULL) : c->barrier(c, NULL);
}

static int alone(struct kcp_comm *c)
{
    if (c->r == 1) {
        fprintf(stderr, "rank 1 refuses its options\n");
        exit(kcp_mpi_end(2));
    }
    return c->barrier(c, NULL);
}

static int peer(struct kcp_comm *c)
{
    const int to[] = { -1, c->r, c->R };
    for (int i = 0; i < 3; i++)
        if (c->send(c, x, 1, to[i], NULL) != KCP_BAD ||
            c->recv(c, y, 1, to[i], NULL) != KCP_BAD)
            return KCP_MISMATCH;
    return c->barrier(c, NULL);
}

static int empty(struct kcp_comm *c)
{
    int status = KCP_OK;
    if (c->r < 2) status = rank_of_three(c, 0, 0);
    return status ? status : c->all_gather(c, x, y, 0, NULL);
}

/* Sends to the next rank and receives from the previous rank, in one group. */
static int cross(struct kcp_comm *c)
{
    const int next = (c->r + 1) % c->R, before = (c->r + c->R - 1) % c->R;
    int status = c->group(c, 1);
    for (int k = 0; k < TIMES * BYTES; k++)
        x[k] = (char)(k * 31 + k / 1000 + c->r);
    for (int k = 0; k < TIMES && !status; k++) {
        status = c->send(c, x + k * BYTES, BYTES, next, NULL);
        if (!status) status = c->recv(c, y + k * BYTES, BYTES, before, NULL);
    }
    const int end = c->group(c, 0);
    for (int k = 0; k < TIMES * BYTES && !status && !end; k++)
        if (y[k] != (char)(k * 31 + k / 1000 + before)) return KCP_MISMATCH;
    return status ? status : end;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int (*run)(struct kcp_comm *); } ways[] = {
        { "unequal", unequal }, { "unequal_long", unequal_long },
        { "short", too_short }, { "long", too_long }, { "fails", fails },
        { "disagree", disagree },
        { "alone", alone }, { "peer", peer }, { "empty", empty }, { "cross", cross } };
    struct kcp_mpi mpi;
    struct kcp_comm *c = NULL;
    char why[300] = "";
    int rank = -1, status = kcp_mpi_start(&mpi, why, sizeof why);
    if (!status) status = kcp_mpi_world(&c, why, sizeof why);
    if (status) {
        fprintf(stderr, "kcp-wrong-calls: %s\n", why);
        return kcp_mpi_end(2);
    }
    x = calloc(1, TIMES * BYTES);
    y = calloc((size_t)mpi.R, TIMES * BYTES);
    status = KCP_BAD;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && x && y; i++)
        if (argc == 2 && !strcmp(argv[1], ways[i].name)) status = ways[i].run(c);
    if (c->lost(c, &rank, why, sizeof why)) {
        printf("rank %d of %d: status %d, rank %d: %s\n", mpi.r, mpi.R, status, rank,
               why);
        return kcp_mpi_end(1);
    }
    printf("rank %d of %d: status %d\n", mpi.r, mpi.R, status);
    c->free(c);
    return kcp_mpi_end(status ? 1 : 0);
}
