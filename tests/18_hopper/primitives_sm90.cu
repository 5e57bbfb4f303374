// primitives_sm90.cu -- checks that each wait, arrival and copy of tile/ is needed.
// Book: chapter 18, "Real world".
// Checked by: itself: complete kernels are right; without a primitive they are wrong.
// Next: ../../cuda/tile/jitter.cuh.
//
// Each small kernel can leave out one primitive, and has random sleeps (KCP_JITTER). A
// complete kernel must give right results in all launches. A kernel without a primitive
// must give wrong results in some launches, otherwise the sleeps prove nothing.
#ifndef KCP_JITTER
#define KCP_JITTER
#endif
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/tile/cluster.cuh"
#include "cuda/tile/launch.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warpgroup_store.cuh"

enum missing { RIGHT, FULL_WAIT, EMPTY_WAIT, LATE_ARRIVAL, COPY_WAIT, COPY_ARRIVAL,
               BLOCK_BARRIER, GROUP_BARRIER, CLUSTER_BARRIER, STORE_WAIT, OTHER_RELEASE,
               GRID_WAIT, FORMS };
static const char *const form_name[] = { "right", "wait for full", "wait for empty",
    "release after the last read", "wait for cp.async", "arrival after cp.async",
    "__syncthreads", "barrier of a warpgroup", "barrier of a cluster",
    "wait until a store has read", "release of the peer block",
    "griddepcontrol.wait" };

enum { THREADS = 128, STAGES = 2, CHUNKS = 48, BLOCKS = 64 };
enum { PARTS = 64, STORED = 6 };                // numbers per thread, rows per block

// Warp 4 fills pipeline stages with TMA loads, and other threads sum the numbers.
// A missing wait must not cause a deadlock. A thread that does not wait for `full`
// before its reads therefore waits after its reads, and a producer that does not wait
// for `empty` waits for `seen`, at which all threads arrive before their reads.
static __global__ void by_engine(int without, const int4 *x, int *y)
{
    __shared__ __align__(128) int4 tile[STAGES][THREADS];
    __shared__ uint64_t full[STAGES], empty[STAGES], seen[STAGES];
    const int t = threadIdx.x;
    const int4 *from = x + (int64_t)blockIdx.x * CHUNKS * THREADS;
    if (t == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], THREADS);
            mbarrier_init(&seen[i], THREADS);
        }
        mbarrier_fence_init();
    }
    if (t < THREADS)
        for (int i = 0; i < STAGES; i++) tile[i][t] = make_int4(0, 0, 0, 0);
    fence_proxy_async();
    __syncthreads();
    if (t == THREADS)
        for (int c = 0; c < CHUNKS; c++) {
            const int at = c % STAGES, phase = c / STAGES;
            if (phase)
                mbarrier_wait(without == EMPTY_WAIT ? &seen[at] : &empty[at],
                              phase - 1);
            mbarrier_arrive_expect_tx(&full[at], sizeof tile[0]);
            tma_load_1d(tile[at], from + c * THREADS, sizeof tile[0], &full[at]);
        }
    int sum = 0;
    for (int c = 0; c < CHUNKS && t < THREADS; c++) {
        const int at = c % STAGES;
        if (without != FULL_WAIT) mbarrier_wait(&full[at], c / STAGES);
        mbarrier_arrive(&seen[at]);
        if (without == LATE_ARRIVAL) mbarrier_arrive(&empty[at]);
        jitter(1);
        sum += (c + 1) * ((volatile int4 *)tile[at])[THREADS - 1 - t].x;
        if (without == FULL_WAIT) mbarrier_wait(&full[at], c / STAGES);
        if (without != LATE_ARRIVAL) mbarrier_arrive(&empty[at]);
    }
    if (t < THREADS) y[blockIdx.x * THREADS + t] = sum;
}

// Each thread copies 16 bytes by cp.async and adds a number that another thread copied.
// The threads synchronize with mbarriers if `counted` is 1, else with __syncthreads.
template <int counted>
static __global__ void by_threads(int without, const int4 *x, int *y)
{
    __shared__ __align__(128) int4 tile[STAGES][THREADS];
    __shared__ uint64_t full[STAGES];
    const int t = threadIdx.x;
    const int4 *from = x + (int64_t)blockIdx.x * CHUNKS * THREADS;
    int sum = 0;
    if (t < STAGES) mbarrier_init(&full[t], THREADS);
    __syncthreads();
    for (int c = 0; c < CHUNKS; c++) {
        const int at = c % STAGES;
        cp_async_16(&tile[at][t], from + c * THREADS + t, 1);
        if (counted) {
            if (without == COPY_ARRIVAL) mbarrier_arrive(&full[at]);
            else cp_async_mbarrier_arrive(&full[at]);
            mbarrier_wait(&full[at], c / STAGES);
        } else {
            cp_async_commit();
            if (without != COPY_WAIT) cp_async_wait<0>();
            if (without == BLOCK_BARRIER) jitter(1);
            else __syncthreads();
        }
        sum += (c + 1) * ((volatile int4 *)tile[at])[THREADS - 1 - t].x;
        if (without != BLOCK_BARRIER) __syncthreads();
    }
    cp_async_commit();
    cp_async_wait<0>();
    y[blockIdx.x * THREADS + t] = sum;
}

// In each step, each thread of a warpgroup adds the value of another thread.
static __global__ void by_groups(int without, const int4 *x, int *y)
{
    __shared__ int row[2][THREADS];
    const int t = threadIdx.x;
    int value = x[(int64_t)blockIdx.x * THREADS + t].x;
    for (int c = 0; c < CHUNKS; c++) {
        ((volatile int *)row[c % 2])[t] = value;
        if (without != GROUP_BARRIER) warpgroup_sync();
        else jitter(1);
        value += ((volatile int *)row[c % 2])[(t + 37) % THREADS];
    }
    y[blockIdx.x * THREADS + t] = value;
}

// TMA stores rows to global memory from one buffer, which the next row overwrites.
static __global__ void by_stores(int without, const int4 *x, int *y)
{
    __shared__ __align__(128) int row[PARTS * THREADS];
    const int t = threadIdx.x;
    int *to = y + (int64_t)blockIdx.x * PARTS * THREADS * STORED;
    const int value = x[(int64_t)blockIdx.x * THREADS + t].x;
    for (int c = 0; c < STORED; c++) {
        for (int i = PARTS - 1; i >= 0; i--) row[i * THREADS + t] = value + c * (i + 1);
        fence_proxy_async();
        __syncthreads();
        if (t == 0) {
            tma_store_1d(to + c * PARTS * THREADS, row, sizeof row);
            if (without != STORE_WAIT) tma_store_wait_read();
        }
        __syncthreads();
    }
    if (t == 0) tma_store_wait_read();
    __syncthreads();
}

// Each of two blocks loads half of a pipeline stage for both blocks, so both blocks
// must first release the stage. The first cluster_sync() lets both blocks initialize
// their mbarriers before any thread arrives at an mbarrier.
static __global__ void by_pairs(int without, const int4 *x, int *y)
{
    __shared__ __align__(128) int4 tile[STAGES][THREADS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int t = threadIdx.x, me = cluster_rank(), both = without != OTHER_RELEASE;
    const int4 *from = x + (int64_t)(blockIdx.x / 2) * CHUNKS * THREADS;
    const uint32_t half = sizeof tile[0] / 2;
    int sum = 0;
    if (t == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], both ? 2 * THREADS : THREADS);
        }
        mbarrier_fence_init();
    }
    cluster_sync();
    if (t == THREADS)
        for (int c = 0; c < CHUNKS; c++) {
            const int at = c % STAGES, phase = c / STAGES;
            if (phase) mbarrier_wait(&empty[at], phase - 1);
            mbarrier_arrive_expect_tx(&full[at], sizeof tile[0]);
            tma_load_1d_multicast((char *)tile[at] + me * half,
                                  (const char *)(from + c * THREADS) + me * half, half,
                                  &full[at]);
        }
    for (int c = 0; c < CHUNKS && t < THREADS; c++) {
        const int at = c % STAGES;
        mbarrier_wait(&full[at], c / STAGES);
        jitter(1);
        sum += (c + 1) * ((volatile int4 *)tile[at])[THREADS - 1 - t].x;
        mbarrier_arrive_cluster(&empty[at], me);
        if (both) mbarrier_arrive_cluster(&empty[at], me ^ 1);
    }
    cluster_sync();
    if (t < THREADS) y[blockIdx.x * THREADS + t] = sum;
}

// Each thread adds a number that the other block wrote before the cluster barrier.
static __global__ void by_cluster(int without, const int4 *x, int *y)
{
    __shared__ int row[2][THREADS];
    const int t = threadIdx.x, me = cluster_rank();
    int value = x[(int64_t)blockIdx.x * THREADS + t].x;
    row[0][t] = row[1][t] = 0;
    cluster_sync();
    for (int c = 0; c < CHUNKS; c++) {
        store_in_block(&row[c % 2][(t + 37) % THREADS], me ^ 1, value);
        if (without != CLUSTER_BARRIER) cluster_sync();
        else jitter(1);
        value += ((volatile int *)row[c % 2])[t];
    }
    cluster_sync();
    y[blockIdx.x * THREADS + t] = value;
}

// The first kernel writes `middle` late. The next kernel in the stream reads `middle`.
static __global__ void first_kernel(const int4 *x, int *middle)
{
    const int at = blockIdx.x * THREADS + threadIdx.x;
    griddepcontrol_launch_dependents();
    for (int i = 0; i < 20; i++) __nanosleep(1000);
    middle[at] = x[at].x;
}

static __global__ void next_kernel(int without, const int *middle, int *y)
{
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (without != GRID_WAIT) griddepcontrol_wait();
    y[at] = ((volatile const int *)middle)[at] + 1;
    if (without == GRID_WAIT) griddepcontrol_wait();
}

// ---- on the host

static int launch_as(void (*kernel)(int, const int4 *, int *), int without, int threads,
                     int cluster, const int4 *x, int *y)
{
    cudaLaunchAttribute a = {};
    cudaLaunchConfig_t c = {};
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = cluster;
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
    c.gridDim = dim3(BLOCKS);
    c.blockDim = dim3(threads);
    c.attrs = &a;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, without, x, y) != cudaSuccess;
}

static int launch_next(int without, const int4 *x, int *y)
{
    int *middle = y + BLOCKS * THREADS;
    cudaLaunchAttribute a = {};
    cudaLaunchConfig_t c = {};
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = dim3(BLOCKS);
    c.blockDim = dim3(THREADS);
    c.attrs = &a;
    c.numAttrs = 1;
    if (cudaMemset(middle, 0, BLOCKS * THREADS * sizeof *middle)) return 1;
    first_kernel<<<BLOCKS, THREADS>>>(x, middle);
    return cudaLaunchKernelEx(&c, next_kernel, without, (const int *)middle, y) !=
           cudaSuccess;
}

// Launches kernel number `program` without primitive `without`. RIGHT: all are present.
static int launch_program(int program, int without, const int4 *x, int *y)
{
    switch (program) {
    case 0: return launch_as(by_engine, without, THREADS + 32, 1, x, y);
    case 1: return launch_as(by_threads<0>, without, THREADS, 1, x, y);
    case 2: return launch_as(by_threads<1>, without, THREADS, 1, x, y);
    case 3: return launch_as(by_groups, without, THREADS, 1, x, y);
    case 4: return launch_as(by_stores, without, THREADS, 1, x, y);
    case 5: return launch_as(by_pairs, without, THREADS + 32, 2, x, y);
    case 6: return launch_as(by_cluster, without, THREADS, 2, x, y);
    default: return launch_next(without, x, y);
    }
}
enum { SUMS = 2, GROUPS, STORES, PAIRS, CLUSTERS, GRIDS, PROGRAMS };
static const int program_of[FORMS] = { 0, 0, 0, 0, 1, 2, 1, GROUPS, CLUSTERS, STORES,
                                       PAIRS, GRIDS };

enum { INTS = BLOCKS * THREADS * PARTS * STORED };

// Computes a program's expected results on the host. Returns the number of results.
static int expected_of_program(int program, const int4 *x, int *y)
{
    static int row[2 * THREADS], next[2 * THREADS];
    const int pairs = program == PAIRS, sums = program <= SUMS || pairs;
    for (int b = 0; b < BLOCKS && sums; b++)
        for (int t = 0; t < THREADS; t++) {
            const int4 *from = x + (int64_t)(pairs ? b / 2 : b) * CHUNKS * THREADS;
            unsigned sum = 0;
            for (int c = 0; c < CHUNKS; c++)
                sum += (c + 1) * (unsigned)from[c * THREADS + THREADS - 1 - t].x;
            y[b * THREADS + t] = (int)sum;
        }
    const int wide = program == CLUSTERS ? 2 : 1;
    const int rows = program == GROUPS || program == CLUSTERS;
    for (int b = 0; b < BLOCKS && rows; b += wide) {
        for (int t = 0; t < wide * THREADS; t++) row[t] = x[b * THREADS + t].x;
        for (int c = 0; c < CHUNKS; c++) {
            for (int t = 0; t < wide * THREADS; t++) {
                const int other = wide == 2 ? (t / THREADS ^ 1) * THREADS : 0;
                const int from = wide == 2 ? (t % THREADS + THREADS - 37) % THREADS
                                           : (t + 37) % THREADS;
                next[t] = (int)((unsigned)row[t] + (unsigned)row[other + from]);
            }
            memcpy(row, next, sizeof row);
        }
        memcpy(y + b * THREADS, row, wide * THREADS * sizeof *y);
    }
    for (int b = 0; b < BLOCKS && program == STORES; b++)
        for (int c = 0; c < STORED; c++)
            for (int i = 0; i < PARTS * THREADS; i++)
                y[((int64_t)b * STORED + c) * PARTS * THREADS + i] =
                    x[b * THREADS + i % THREADS].x + c * (i / THREADS + 1);
    for (int i = 0; i < BLOCKS * THREADS && program == GRIDS; i++) y[i] = x[i].x + 1;
    return program == STORES ? INTS : BLOCKS * THREADS;
}

struct bench_of_forms { int4 *x, *on_host; int *y, *want, *got; };

// Returns how many of `launches` launches gave wrong results, or -1 if a launch failed.
static int wrong_launches(const struct bench_of_forms *m, int program, int without,
                          int launches)
{
    const int n = expected_of_program(program, m->on_host, m->want);
    int wrong = 0;
    for (int i = 0; i < launches; i++) {
        if (cudaMemset(m->y, 0xff, (size_t)n * sizeof *m->y) ||
            launch_program(program, without, m->x, m->y) ||
            cudaDeviceSynchronize() != cudaSuccess ||
            cudaMemcpy(m->got, m->y, (size_t)n * sizeof *m->y,
                       cudaMemcpyDeviceToHost) != cudaSuccess) return -1;
        wrong += memcmp(m->got, m->want, (size_t)n * sizeof *m->want) != 0;
    }
    return wrong;
}

static void judge_forms(struct kcp_report *rep, const struct bench_of_forms *m)
{
    for (int program = 0; program < PROGRAMS; program++) {
        const int wrong = wrong_launches(m, program, RIGHT, 60);
        EXPECT(rep, wrong == 0, "program %d, nothing omitted: wrong in %d of 60 "
                                "launches",
               program, wrong);
    }
    for (int form = RIGHT + 1; form < FORMS; form++) {
        const int wrong = wrong_launches(m, program_of[form], form, 60);
        EXPECT(rep, wrong > 0, "without the %s: wrong in %d of 60 launches",
               form_name[form], wrong);
    }
}

static int primitives(struct kcp_report *rep)
{
    struct bench_of_forms m = {};
    const size_t ints = INTS * sizeof(int);
    const size_t bytes = (size_t)BLOCKS * CHUNKS * THREADS * sizeof(int4);
    uint64_t seed = 18;
    if (!device_memory() || !device_is_sm90()) {
        printf("  18_hopper gpu_primitives: no sm_90 GPU\n");
        return KCP_NA;
    }
    m.on_host = (int4 *)alloc_or_exit(bytes);
    m.want = (int *)alloc_or_exit(ints);
    m.got = (int *)alloc_or_exit(ints);
    for (size_t i = 0; i < bytes / 4; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ((int *)m.on_host)[i] = (int)(seed >> 44);
    }
    int status = cudaMalloc((void **)&m.x, bytes) != cudaSuccess ||
                 cudaMalloc((void **)&m.y, ints) != cudaSuccess ||
                 cudaMemcpy(m.x, m.on_host, bytes, cudaMemcpyHostToDevice) !=
                     cudaSuccess;
    EXPECT(rep, !status, "allocation on the GPU");
    if (!status) judge_forms(rep, &m);
    cudaFree(m.x);
    cudaFree(m.y);
    free(m.on_host);
    free(m.want);
    free(m.got);
    return KCP_OK;
}
KCP_CHECK(check_18_primitives) = { "18_hopper", "gpu_primitives",
    "a kernel without one wait, arrival or copy of tile/ gives wrong results",
    primitives };
