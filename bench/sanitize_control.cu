// sanitize_control.cu -- kernels with a fault for each tool of compute-sanitizer.
//
// Book: chapter 18.
// Usage: sanitize-control memcheck|racecheck|initcheck|synccheck|none|late|turns.
// `late` (a fault for racecheck) and `turns` (no fault) use mbarriers.
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#ifdef KCP_HOPPER
#include "cuda/tile/launch.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/wgmma.cuh"
#endif

enum fault { NONE, MEMCHECK, RACECHECK, INITCHECK, SYNCCHECK, TURNS, LATE, FAULTS };
static const char *const faults[FAULTS] = { "none", "memcheck", "racecheck",
                                            "initcheck", "synccheck", "turns", "late" };

// Each thread reads a number that another thread has written. The faults are a read
// past the end of `x`, an uninitialized `x`, no barrier between write and read, and a
// barrier that half of each warp does not reach.
__global__ void neighbour(int fault, const int *x, int *y)
{
    __shared__ int row[64];
    const int t = threadIdx.x;
    row[t] = x[t];
    if (fault != RACECHECK) __syncthreads();
    y[t] = row[63 - t] + (fault == MEMCHECK && t == 63 ? x[1 << 20] : 0);
    if (fault == SYNCCHECK && t % 32 < 16) __syncthreads();
    if (fault == SYNCCHECK && t < 16) __syncwarp(0xffff0000);
}

enum { THREADS = 128, COUNT = 8, STAGES = 2 };

#ifdef KCP_HOPPER
// A pipeline as in tile/pipeline.cuh: each thread copies 16 bytes and reads 16 bytes of
// another thread. With fault LATE, a copy overwrites bytes that other threads may read.
__global__ void pipeline_phases(int fault, const int4 *x, int *y)
{
    __shared__ int4 tile[STAGES][THREADS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int t = threadIdx.x;
    int sum = 0;
    if (t < STAGES) {
        mbarrier_init(&full[t], THREADS);
        mbarrier_init(&empty[t], THREADS);
    }
    __syncthreads();
    for (int i = -1; i < COUNT; i++) {
        const int at = i & 1, next = at ^ 1;
        if (i + 1 < COUNT) {
            if (i + 1 >= STAGES && fault != LATE)
                mbarrier_wait(&empty[next], (i + 1) / STAGES - 1);
            cp_async_16(&tile[next][t], x + (i + 1) * THREADS + t, 1);
            cp_async_commit();
            cp_async_wait<0>();
            mbarrier_arrive(&full[next]);
        }
        if (i < 0) continue;
        mbarrier_wait(&full[at], i / STAGES);
        sum += tile[at][THREADS - 1 - t].x;
        mbarrier_arrive(&empty[at]);
    }
    y[t] = sum;
}
#endif

int main(int argc, char **argv)
{
    int fault = -1, *x, *y;
    for (int i = NONE; argc == 2 && i < FAULTS; i++)
        if (!strcmp(argv[1], faults[i])) fault = i;
    if (fault < 0) {
        fprintf(stderr, "sanitize-control: found '%s', expected "
                "memcheck, racecheck, initcheck, synccheck, none, turns or late\n",
                argc == 2 ? argv[1] : "");
        return 2;
    }
    const size_t bytes = COUNT * THREADS * sizeof(int4);
    if (cudaMalloc((void **)&x, bytes) || cudaMalloc((void **)&y, bytes)) {
        fprintf(stderr, "sanitize-control: no GPU found\n");
        return 3;
    }
    if (fault != INITCHECK) cudaMemset(x, 0, bytes);
    if (fault < TURNS) neighbour<<<1, 64>>>(fault, x, y);
#ifdef KCP_HOPPER
    else pipeline_phases<<<1, THREADS>>>(fault, (int4 *)x, y);
#endif
    return cudaDeviceSynchronize() != cudaSuccess;
}
