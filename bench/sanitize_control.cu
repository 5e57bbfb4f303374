// sanitize_control.cu -- one fault a tool of compute-sanitizer must see, and none.
//
// Book: chapter 18.  Checked by: sanitize.sh, which runs it first.
// Next: sanitize.sh.  sanitize-control memcheck|racecheck|initcheck|synccheck|none, and
// for racecheck turns|late|lane|mapped|both: barriers in shared memory, as kernels for
// sm_90a use; for initcheck stored: numbers that the copy engine wrote.
#include "kcp.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#ifdef KCP_HOPPER
#include "cuda/tile/cluster.cuh"
#include "cuda/tile/launch.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/wgmma.cuh"
#endif

enum fault { NONE, MEMCHECK, RACECHECK, INITCHECK, SYNCCHECK, TURNS, LATE, LANE,
             MAPPED, BOTH, STORED };
static const char *const faults[] = { "none", "memcheck", "racecheck", "initcheck",
                                      "synccheck", "turns", "late", "lane",
                                      "mapped", "both", "stored" };

// Each thread adds its neighbour's number: past the end, unwritten, with no barrier
// between write and read, or a barrier without half a warp.
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
// The pipeline of tile/pipeline.cuh, small: each thread copies 16 bytes and reads
// another's. TURNS: right, each thread arrives for itself. LATE: nobody waits until all
// have read what is replaced. LANE: right too, lane 0 arrives for its warp behind
// __syncwarp; the tool does not follow that from lane to lane, and reports 31 lanes of
// 32. MAPPED: right too, each thread arrives for itself at the address that a cluster
// has for the barrier. BOTH: right, two blocks at the same pace: each thread tells its
// own block's barrier directly and the other's at its address.
__device__ void arrive(int fault, uint64_t *bar)
{
    if (fault == LANE) __syncwarp();
    if (fault != LANE || threadIdx.x % 32 == 0) mbarrier_arrive(bar);
}

__device__ void consumer_release(int fault, uint64_t *bar)
{
    if (fault == MAPPED) mbarrier_arrive_cluster(bar, cluster_rank());
    else arrive(fault, bar);
    if (fault == BOTH) mbarrier_arrive_cluster(bar, cluster_rank() ^ 1);
}

__global__ void pipeline_phases(int fault, const int4 *x, int *y)
{
    __shared__ int4 tile[STAGES][THREADS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int t = threadIdx.x, arrivals = fault == LANE ? THREADS / 32 : THREADS;
    int sum = 0;
    if (t < STAGES) {
        mbarrier_init(&full[t], arrivals);
        mbarrier_init(&empty[t], fault == BOTH ? 2 * THREADS : arrivals);
    }
    if (fault == BOTH) cluster_sync();
    else __syncthreads();
    for (int i = -1; i < COUNT; i++) {
        const int at = i & 1, next = at ^ 1;
        if (i + 1 < COUNT) {
            if (i + 1 >= STAGES && fault != LATE)
                mbarrier_wait(&empty[next], (i + 1) / STAGES - 1);
            cp_async_16(&tile[next][t], x + (i + 1) * THREADS + t, 1);
            cp_async_commit();
            cp_async_wait<0>();
            arrive(fault, &full[next]);
        }
        if (i < 0) continue;
        mbarrier_wait(&full[at], i / STAGES);
        sum += tile[at][THREADS - 1 - t].x;
        consumer_release(fault, &empty[at]);
    }
    y[blockIdx.x * THREADS + t] = sum;
    if (fault == BOTH) cluster_sync();
}

// STORED: right, each number is written by the copy engine before it is read.
__global__ void stored(int *x)
{
    __shared__ __align__(16) int row[64];
    row[threadIdx.x] = threadIdx.x;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        tma_store_1d(x, row, sizeof row);
        tma_store_wait_read();
    }
    __syncthreads();                     // the row lives until it has been read
}

static void launch_pipeline(int fault, int4 *x, int *y)
{
    if (fault == STORED) {
        stored<<<1, 64>>>((int *)x);
        neighbour<<<1, 64>>>(NONE, (const int *)x, y);
        return;
    }
    cudaLaunchAttribute a = {};
    cudaLaunchConfig_t c = {};
    const unsigned blocks = fault == BOTH ? 2 : 1;
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = blocks;
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
    c.gridDim = dim3(blocks);
    c.blockDim = dim3(THREADS);
    c.attrs = &a;
    c.numAttrs = 1;
    cudaLaunchKernelEx(&c, pipeline_phases, fault, x, y);
}
#endif

int main(int argc, char **argv)
{
    int fault = -1, *x, *y;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("sanitize-control %s\n", kcp_version());
        return 0;
    }
    for (int i = NONE; argc == 2 && i <= STORED; i++)
        if (!strcmp(argv[1], faults[i])) fault = i;
    if (fault < 0) {
        fprintf(stderr, "sanitize-control: found '%s', expected a tool, none, turns, "
                "late, lane, mapped, both or stored\n", argc == 2 ? argv[1] : "");
        return 2;
    }
    const size_t bytes = COUNT * THREADS * sizeof(int4);
    if (cudaMalloc((void **)&x, bytes) || cudaMalloc((void **)&y, bytes)) {
        puts("sanitize-control: no device");
        return 3;
    }
    if (fault != INITCHECK && fault != STORED) cudaMemset(x, 0, bytes);
    if (fault < TURNS) neighbour<<<1, 64>>>(fault, x, y);
#ifdef KCP_HOPPER
    else launch_pipeline(fault, (int4 *)x, y);
#endif
    return cudaDeviceSynchronize() != cudaSuccess;
}
