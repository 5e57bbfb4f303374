/* comm.c -- layers with wrong communication, selected by -DWRONG=name.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/wrong_comm.sh:
 * HONEST passes, each other one fails.  Next: liar.c.
 *
 * This file wraps the judge's communicator for one built-in variant, which
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

/* The judge's communicator for this rank; ranks may be threads. */
static __thread struct kcp_comm *real;

/* SHORT: the last eighth of each message is not sent. SHIFTED: messages start 16 bytes
 * too late. SILENT: nothing is sent, but the status is 0. ELSEWHERE, with NCCL: rank 1
 * first waits for the GPU of rank 0, while rank 0 waits for rank 1. */
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
static int gather(struct kcp_comm *c, const void *mine, void *all, size_t bytes,
                  struct CUstream_st *s)
{
    wait_elsewhere(c);
    const size_t n = WRONG == SHORT ? bytes / 128 * 112 : bytes;
    if (WRONG == SILENT) return KCP_OK;
    const int status = real->all_gather(real, begin_of(mine), all, n, s);
    c->traffic = real->traffic;
    return status;
}

static int send_to(struct kcp_comm *c, const void *x, size_t bytes, int to,
                   struct CUstream_st *s)
{
    wait_elsewhere(c);
    const size_t n = WRONG == SHORT ? bytes / 128 * 112 : bytes;
    if (WRONG == SILENT) return KCP_OK;
    const int status = real->send(real, begin_of(x), n, to, s);
    c->traffic = real->traffic;
    return status;
}

static int receive(struct kcp_comm *c, void *x, size_t bytes, int from,
                   struct CUstream_st *s)
{
    wait_elsewhere(c);
    const size_t n = WRONG == SHORT ? bytes / 128 * 112 : bytes;
    if (WRONG == SILENT) return KCP_OK;
    return real->recv(real, x, n, from, s);
}

static int same_group(struct kcp_comm *c, int begin)
{
    (void)c;
    return real->group(real, begin);
}

static int same_barrier(struct kcp_comm *c, struct CUstream_st *s)
{
    (void)c;
    return real->barrier(real, s);
}

static int same_show(struct kcp_comm *c, const void *mine_, void *all, size_t bytes,
                     struct CUstream_st *s)
{
    (void)c;
    return real->show(real, mine_, all, bytes, s);
}

static void same_fail(struct kcp_comm *c, int status, const char *why)
{
    (void)c;
    real->fail(real, status, why);
}

static struct kcp_variant mine;
static const struct kcp_variant *layer;

/* Every stage's args struct begins with a struct kcp_call. */
static int on_wrong_comm(void *args)
{
    struct kcp_call *a = args;
    struct kcp_comm *whole = a->comm;
    if (!whole) return layer->run(a);
    struct kcp_comm between = *whole;
    real = whole;
    between.all_gather = gather;
    between.send = send_to;
    between.recv = receive;
    between.barrier = same_barrier;
    between.fail = same_fail;
    if (whole->group) between.group = same_group;
    if (whole->show) between.show = same_show;
    a->comm = &between;
    const int status = layer->run(a);
    a->comm = whole;
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
