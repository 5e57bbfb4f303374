/* comm.c -- layers with wrong communication, selected by -DWRONG=name.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * This file changes the judge's communicator for one built-in variant, which
 * -DSTAGE='"stage"' and -DLAYER='"name"' select. */
#define _GNU_SOURCE
#include "layer.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

enum { HONEST, SHORT, SHIFTED, SILENT, ELSEWHERE };
#ifndef LAYER
#define STAGE "08_forward"
#define LAYER "v3_prepare_scan"
#endif

/* The unchanged communicator, one per thread because ranks may be threads. */
static __thread struct kcp_comm real;

/* SHORT: the last eighth of each message is not sent. SHIFTED: each message is read
 * from an address 16 bytes too high. SILENT: nothing is sent, but the status is 0.
 * ELSEWHERE: with NCCL, rank 1 first waits for rank 0's GPU, which waits for rank 1. */
static void wait_elsewhere(const struct kcp_comm *c)
{
    int (*get)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cudaGetDevice");
    int (*set)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "cudaSetDevice");
    int (*wait)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cudaDeviceSynchronize");
    int device = 0;
    if (WRONG != ELSEWHERE || c->r != 1 || !get || !set || !wait) return;
    usleep(100000);
    get(&device);
    set(0);
    wait();
    set(device);
}

static const void *begin_of(const void *x)
{
    return (const char *)x + (WRONG == SHIFTED ? 16 : 0);
}

static size_t part_of(size_t bytes)
{
    return WRONG == SHORT ? bytes / 128 * 112 : bytes;
}

static int gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                  struct CUstream_st *s)
{
    wait_elsewhere(c);
    return WRONG == SILENT ? KCP_OK
                           : real.all_gather(c, begin_of(mine), all, part_of(bytes), s);
}

static int send_to(struct kcp_comm *c, const void *x, size_t bytes, int to,
                   struct CUstream_st *s)
{
    wait_elsewhere(c);
    return WRONG == SILENT ? KCP_OK
                           : real.send(c, begin_of(x), part_of(bytes), to, s);
}

static int receive(struct kcp_comm *c, void *x, size_t bytes, int from,
                   struct CUstream_st *s)
{
    wait_elsewhere(c);
    return WRONG == SILENT ? KCP_OK : real.recv(c, x, part_of(bytes), from, s);
}

static struct kcp_variant mine;
static const struct kcp_variant *layer;

/* Every stage's args struct begins with a struct kcp_call. */
static int on_wrong_comm(void *args)
{
    struct kcp_comm *c = ((struct kcp_call *)args)->comm;
    if (!c) return layer->run(args);
    real = *c;
    c->all_gather = gather;
    c->send = send_to;
    c->recv = receive;
    const int status = layer->run(args);
    c->all_gather = real.all_gather;
    c->send = real.send;
    c->recv = real.recv;
    return status;
}

__attribute__((constructor)) static void loaded(void)
{
    if (kcp_variants(STAGE, LAYER, &layer, 1) != 1) return;
    mine = *layer;
    mine.name = "wrong_comm";
    mine.run = on_wrong_comm;
}
const struct kcp_variant *const kcp_variant = &mine;
