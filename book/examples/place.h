/* place.h -- memory, number conversion and ranks for the examples, on the host or on
 * GPUs.
 * Book: chapter 08.
 *
 * In your program the framework provides device memory, bf16 tensors, a stream, and an
 * ncclComm_t for kcp_nccl_from. For GPUs, compile with -DKCP_WITH_CUDA; for ranks that
 * mpirun starts, with -DKCP_WITH_MPI -lkcp_mpi. */
#pragma once

#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef KCP_WITH_CUDA
#include <cuda_runtime_api.h>
#endif
#ifdef KCP_WITH_MPI
#include <kcp_mpi.h>
#endif

struct place {
    struct kcp_layer layer;
    int R, gpu, local;            /* local: 1 + MPI's local rank; 0 without MPI */
    char why[200];
};

/* Reads argv: the number of ranks (unless mpirun gives it), then cpu, bf16 or f32. */
static int place_choose(struct place *p, int argc, char **argv)
{
    const char *as = argc > 2 ? argv[2] : "cpu";
    int status = KCP_OK;
    p->R = argc > 1 ? atoi(argv[1]) : 3;
#ifdef KCP_WITH_MPI
    struct kcp_mpi mpi;
    status = kcp_mpi_start(&mpi, p->why, sizeof p->why);
    if (mpi.R > 1) {
        p->R = mpi.R;
        p->local = 1 + mpi.local;
    }
#endif
    p->gpu = strcmp(as, "cpu") != 0;
    if (!p->gpu) {
        kcp_layer_ref(&p->layer);
        return status;
    }
    if (strcmp(as, "bf16") && strcmp(as, "f32")) {
        snprintf(p->why, sizeof p->why, "found %s, expected cpu, bf16 or f32", as);
        return KCP_BAD;
    }
    if (status) return status;
    return kcp_layer_gpu(&p->layer, strcmp(as, "f32") ? KCP_BF16 : KCP_F32, NULL,
                         p->why, sizeof p->why);
}

/* ---- memory: of the host, or of the calling rank's GPU */
static int place_copy(const struct place *p, void *to, const void *from, size_t bytes)
{
#ifdef KCP_WITH_CUDA
    if (p->gpu)
        return cudaMemcpy(to, from, bytes, cudaMemcpyDefault) ? KCP_CUDA : KCP_OK;
#endif
    memcpy(to, from, bytes);
    return KCP_OK;
}

static void *place_room(const struct place *p, size_t bytes)
{
    void *x = NULL;
#ifdef KCP_WITH_CUDA
    if (p->gpu) return cudaMalloc(&x, bytes + 8) ? NULL : x;
#endif
    x = calloc(bytes + 8, 1);
    return x;
}

static void place_free(const struct place *p, const void *x)
{
#ifdef KCP_WITH_CUDA
    if (p->gpu) cudaFree((void *)x);
    else
#endif
        free((void *)x);
}

/* ---- conversion from double to the type of an array and back. KCP_ACTV: the layer's
 * storage type; KCP_ACC: the type of sums */
static size_t place_bytes(const struct place *p, enum kcp_store store)
{
    const enum kcp_storage s = p->layer.storage;
    if (s == KCP_F64) return 8;
    return s == KCP_BF16 && store == KCP_ACTV ? 2 : 4;
}

static void *place_put(const struct place *p, enum kcp_store store, const double *x,
                       int64_t n)
{
    const size_t e = place_bytes(p, store);
    char *y = calloc((size_t)n + 1, 8);
    for (int64_t i = 0; y && i < n; i++) {
        const float f = (float)x[i];
        uint32_t u;
        memcpy(&u, &f, 4);
        const uint16_t half = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
        const void *number = &half;
        if (e == 8) number = &x[i];
        if (e == 4) number = &f;
        memcpy(y + (size_t)i * e, number, e);
    }
    void *there = y ? place_room(p, (size_t)n * e) : NULL;
    if (there && place_copy(p, there, y, (size_t)n * e)) {
        place_free(p, there);
        there = NULL;
    }
    free(y);
    return there;
}

static int place_get(const struct place *p, enum kcp_store store, double *x,
                     const void *from, int64_t n)
{
    const size_t e = place_bytes(p, store);
    char *y = malloc((size_t)n * e + 8);
    const int status = y ? place_copy(p, y, from, (size_t)n * e) : KCP_NO_MEMORY;
    for (int64_t i = 0; !status && i < n; i++) {
        uint32_t u = 0;
        float f;
        memcpy((char *)&u + (e == 2 ? 2 : 0), y + (size_t)i * e, e == 2 ? 2 : 4);
        memcpy(&f, &u, 4);
        x[i] = f;
        if (e == 8) memcpy(&x[i], y + i * 8, 8);
    }
    free(y);
    return status;
}

/* ---- arrays of an example: random numbers, a list of allocations, a digest */

/* Returns element e of random array `which`, in (-1, 1), equal on every rank. */
static double number(int which, int64_t e)
{
    uint64_t x = (uint64_t)(e + 1000003 * which) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 31) * 0x94d049bb133111ebu;
    return (double)(x >> 12) / (double)(1ull << 51) - 1;
}

/* A rank's allocations, which are freed together. */
struct shelf { const struct place *place; void *x[32]; int n, full; };

static void *keep(struct shelf *s, void *x)
{
    s->full |= !x;
    s->x[s->n++] = x;
    return x;
}

/* Returns an array of `rows` rows of `width` random numbers. Row 0 belongs to token
 * `first`. */
static void *draw(struct shelf *s, enum kcp_store store, int which, int64_t first,
                  int64_t rows, int64_t width)
{
    double *x = malloc(sizeof *x * (size_t)(rows * width + 1));
    for (int64_t e = 0; x && e < rows * width; e++)
        x[e] = number(which, first * width + e);
    void *y = x ? place_put(s->place, store, x, rows * width) : NULL;
    free(x);
    return keep(s, y);
}

static void *room(struct shelf *s, enum kcp_store store, int64_t n)
{
    return keep(s, place_room(s->place, (size_t)n * place_bytes(s->place, store)));
}

static void *ints(struct shelf *s, const int *x, int n)
{
    void *y = place_room(s->place, sizeof *x * (size_t)n);
    if (y && place_copy(s->place, y, x, sizeof *x * (size_t)n)) s->full = 1;
    return keep(s, y);
}

/* Returns a randomly weighted sum of an output: swapped elements change the sum. */
static double digest(const struct place *p, const void *from, int64_t first, int64_t n)
{
    double sum = 0, *x = malloc(sizeof *x * (size_t)(n + 1));
    if (!x || place_get(p, KCP_ACTV, x, from, n)) n = 0;
    for (int64_t e = 0; e < n; e++) sum += x[e] * number(9, first + e);
    free(x);
    return sum;
}

/* ---- ranks: processes or threads. On GPUs, each process has a separate GPU. Each
 * thread has one too if NCCL and enough GPUs are found; else all threads share one. */
#ifdef KCP_WITH_CUDA
static int place_wire(void *to, const void *from, size_t n, struct CUstream_st *stream)
{
    if (cudaStreamSynchronize(stream)) return KCP_CUDA;
    return n && cudaMemcpy(to, from, n, cudaMemcpyDefault) ? KCP_CUDA : KCP_OK;
}

static int place_gpus(struct place *p, int (*body)(struct kcp_comm *, void *),
                      void *arg)
{
    int status = KCP_NA, gpus = 0;
    if (cudaGetDeviceCount(&gpus) || !gpus) {
        snprintf(p->why, sizeof p->why, "no GPU found");
        return KCP_NA;
    }
    if (gpus >= p->R)
        status = kcp_nccl_threads_run(p->R, body, arg, p->why, sizeof p->why);
    if (status == KCP_NA)
        status = kcp_threads_run_on(p->R, body, arg, p->why, sizeof p->why, place_wire);
    return status;
}
#endif

static int place_ranks(struct place *p, int (*body)(struct kcp_comm *, void *),
                       void *arg)
{
    struct kcp_comm *host = NULL, *gpu = NULL;
#ifdef KCP_WITH_CUDA
    if (!p->local && p->gpu) return place_gpus(p, body, arg);
#endif
    if (!p->local) return kcp_threads_run(p->R, body, arg, p->why, sizeof p->why);
    int status = KCP_NA;
#ifdef KCP_WITH_MPI
    status = kcp_mpi_world(&host, p->why, sizeof p->why);
#endif
#ifdef KCP_WITH_CUDA
    if (!status && p->gpu && cudaSetDevice(p->local - 1)) status = KCP_CUDA;
    if (!status && p->gpu) status = kcp_nccl_over(&gpu, host, p->why, sizeof p->why);
#endif
    if (!status) status = body(gpu ? gpu : host, arg);
    if (gpu) gpu->free(gpu);
    if (host) host->free(host);
    return status;
}

/* Ends MPI if MPI was started. Returns the exit status for main. */
static int place_end(int status)
{
#ifdef KCP_WITH_MPI
    return kcp_mpi_end(status);
#else
    return status;
#endif
}
