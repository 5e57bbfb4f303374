/* hops.c -- checks the kernel that applies a map and writes the state to the next rank.
 *
 * Book: chapter 20, "Code: kernels".
 *
 * Two streams of one GPU act as two ranks. Shapes are so small that the blocks of both
 * ranks' kernels are resident concurrently. All numbers are small integers. */
#include "tests/judge/judge.h"

#ifdef KCP_WITH_CUDA
#include "core/window.h"
#include "moves.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 64, ROUNDS = 9 };
struct shape { int HV, K, V, backward, first; };

struct two {
    struct shape s;
    struct kcp_window w[2];
    struct CUstream_st *stream[2];
    float *map[2], *S[2];              /* in GPU memory */
    float *host_map[2], *host_S, *want;
    size_t maps, states;               /* numbers */
    unsigned seed;
};

static int draw(struct two *x, int most)
{
    x->seed = x->seed * 1664525u + 1013904223u;
    return (int)((x->seed >> 16) % (2 * most + 1)) - most;
}

/* Computes y = M S + h (backward: M^T S + h) per head, or y = h if `first` is 1. */
static void apply(const struct shape *s, int first, const float *map, const float *S,
                  float *y)
{
    const int VK = s->V + s->K;
    for (int n = 0; n < s->HV; n++)
        for (int i = 0; i < s->K; i++)
            for (int v = 0; v < s->V; v++) {
                const float *m = map + (size_t)n * s->K * VK;
                float sum = m[i * VK + v];
                for (int p = 0; p < s->K && !first; p++)
                    sum += (s->backward ? m[p * VK + s->V + i] : m[i * VK + s->V + p])
                         * S[((size_t)n * s->K + p) * s->V + v];
                y[((size_t)n * s->K + i) * s->V + v] = sum;
            }
}

static int open_two(struct two *x)
{
    const size_t bytes = kcp_window_bytes(2, MOST_BLOCKS);
    int err = 0;
    x->maps = (size_t)x->s.HV * x->s.K * (x->s.V + x->s.K);
    x->states = (size_t)x->s.HV * x->s.K * x->s.V;
    x->host_S = malloc(4 * x->states);
    x->want = malloc(4 * x->states);
    for (int r = 0; r < 2; r++) {
        void *at = NULL;
        x->host_map[r] = malloc(4 * x->maps);
        err |= cudaMalloc(&at, bytes) || cudaMemset(at, 0, bytes) ||
               cudaMalloc((void **)&x->map[r], 4 * x->maps) ||
               cudaMalloc((void **)&x->S[r], 4 * x->states) ||
               cudaStreamCreateWithFlags(&x->stream[r], cudaStreamNonBlocking);
        x->w[r] = (struct kcp_window){ .R = 2, .r = r, .blocks = MOST_BLOCKS };
        x->w[0].at[r] = at;
    }
    x->w[1].at[0] = x->w[0].at[0];
    x->w[1].at[1] = x->w[0].at[1];
    err |= cudaHostAlloc((void **)&x->w[0].lost, sizeof(int), cudaHostAllocPortable);
    if (!err) *x->w[0].lost = 0;
    x->w[1].lost = x->w[0].lost;
    const int full = !x->host_S || !x->want || !x->host_map[0] || !x->host_map[1];
    return err || full || cudaDeviceSynchronize() ? KCP_CUDA : KCP_OK;
}

static void close_two(struct two *x)
{
    for (int r = 0; r < 2; r++) {
        if (x->stream[r]) cudaStreamDestroy(x->stream[r]);
        cudaFree(x->w[0].at[r]);
        cudaFree(x->map[r]);
        cudaFree(x->S[r]);
        free(x->host_map[r]);
    }
    if (x->w[0].lost) cudaFreeHost(x->w[0].lost);
    free(x->host_S);
    free(x->want);
}

static int fill(struct two *x)
{
    int err = 0;
    for (int r = 0; r < 2; r++) {
        for (size_t i = 0; i < x->maps; i++) x->host_map[r][i] = (float)draw(x, 1);
        err |= cudaMemcpy(x->map[r], x->host_map[r], 4 * x->maps,
                          cudaMemcpyHostToDevice);
    }
    for (size_t i = 0; i < x->states; i++) x->host_S[i] = (float)draw(x, 2);
    err |= cudaMemcpy(x->S[0], x->host_S, 4 * x->states, cudaMemcpyHostToDevice);
    err |= cudaMemset(x->S[1], 0xff, 4 * x->states);
    return err || cudaDeviceSynchronize() ? KCP_CUDA : KCP_OK;
}

static int go(struct two *x, int r, int from, int to, int first)
{
    const struct shape *s = &x->s;
    return kcp_gpu->hops->hop(s->HV, s->K, s->V, x->map[r], s->backward, first, x->S[r],
                         &x->w[r], from, to, x->stream[r]);
}

static void compare(struct kcp_report *rep, struct two *x, int r, const char *what,
                    int round)
{
    float *got = malloc(4 * x->states);
    int wrong = 0;
    const int err = cudaMemcpy(got, x->S[r], 4 * x->states, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < x->states && !err; i++) wrong += got[i] != x->want[i];
    EXPECT(rep, !err && !wrong, "%s, HV=%d K=%d V=%d backward %d first %d, round %d: "
           "%d of %zu numbers wrong, error %d", what, x->s.HV, x->s.K, x->s.V,
           x->s.backward, x->s.first, round, wrong, x->states, err);
    free(got);
}

/* Rank 0 sends a state. Rank 1 applies a map to the state and sends the result back. In
 * odd rounds the kernel of rank 1 starts before rank 0 sends. */
static int there_and_back(struct kcp_report *rep, struct two *x)
{
    for (int round = 0; round < ROUNDS; round++) {
        float *middle = malloc(4 * x->states);
        int err = middle ? fill(x) : KCP_NO_MEMORY;
        if (!err && round % 2) err = go(x, 1, 0, 0, 0);
        if (!err) err = go(x, 0, -1, 1, x->s.first);
        if (!err && round % 2 == 0) err = go(x, 1, 0, 0, 0);
        if (!err) err = go(x, 0, 1, -1, 1);
        if (!err && cudaDeviceSynchronize()) err = KCP_CUDA;
        if (err) {
            free(middle);
            return err;
        }
        apply(&x->s, x->s.first, x->host_map[0], x->host_S, middle);
        memcpy(x->want, middle, 4 * x->states);
        compare(rep, x, 1, "there", round);
        apply(&x->s, 0, x->host_map[1], middle, x->want);
        compare(rep, x, 0, "and back", round);
        free(middle);
    }
    return KCP_OK;
}

/* Rank 0 sends three messages before rank 1 receives any. The memory window (buffer)
 * holds two messages, so the third message must wait. */
static int ahead(struct kcp_report *rep, struct two *x)
{
    int err = fill(x);
    for (int i = 0; i < 3 && !err; i++) err = go(x, 0, -1, 1, i != 1);
    for (int i = 0; i < 3 && !err; i++) {
        err = go(x, 1, 0, -1, 1);
        if (!err && cudaStreamSynchronize(x->stream[1])) err = KCP_CUDA;
        apply(&x->s, i != 1, x->host_map[0], x->host_S, x->want);
        if (!err) compare(rep, x, 1, "three in flight", i);
    }
    if (!err && cudaStreamSynchronize(x->stream[0])) err = KCP_CUDA;
    return err;
}

/* Checks that a kernel stops waiting for a message when flag `lost` is set. */
static int lost(struct kcp_report *rep, struct two *x)
{
    int err = go(x, 1, 0, -1, 1);
    EXPECT(rep, cudaStreamQuery(x->stream[1]) == cudaErrorNotReady, "must still wait");
    *(volatile int *)x->w[0].lost = 1;
    if (!err && cudaStreamSynchronize(x->stream[1])) err = KCP_CUDA;
    *(volatile int *)x->w[0].lost = 0;
    return err;
}

static int hops(struct kcp_report *rep)
{
    static const struct shape shapes[] = {
        { 2, 128, 128, 0, 0 }, { 2, 128, 64, 1, 0 }, { 3, 64, 64, 0, 1 },
        { 3, 64, 32, 1, 1 },   { 2, 24, 20, 0, 0 },  { 1, 40, 128, 1, 0 } };
    if (!device_memory()) {
        printf("  (no GPU: not run)\n");
        return KCP_NA;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct two x = { .s = shapes[i], .seed = 7 + (unsigned)i };
        int err = open_two(&x);
        if (!err) err = there_and_back(rep, &x);
        if (!err) err = ahead(rep, &x);
        if (!err) err = lost(rep, &x);
        EXPECT(rep, !err, "shape %zu: status %d", i, err);
        close_two(&x);
    }
    return KCP_OK;
}
#else
static int hops(struct kcp_report *rep)
{
    (void)rep;
    printf("  (built without CUDA: not run)\n");
    return KCP_NA;
}
#endif

KCP_CHECK(check_07_hops) = { "07_merge", "gpu_hops",
    "copies through memory windows work in both directions, also with three messages "
    "in flight, and a kernel stops waiting for a lost rank", hops };
