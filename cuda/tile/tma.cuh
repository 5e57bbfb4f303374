// tma.cuh -- TMA, the copy engine of Hopper: contiguous bytes and boxes of a tensor.
// Book: chapter 17, "Warps with roles"; chapter 18.
#ifndef KCP_TILE_TMA_CUH
#define KCP_TILE_TMA_CUH

#include <cudaTypedefs.h>

#include "mbarrier.cuh"
#include "proxy.cuh"
#include "swizzle.cuh"

// cp.async.bulk, called by one thread: copies contiguous bytes from global to shared
// memory. `to`, `from` and `bytes` are multiples of 16. Before the call, the bytes must
// be announced at `bar` (mbarrier_arrive_expect_tx), all users of `to` must have
// released `to`, and each thread that wrote `to` must have called fence_proxy_async.
static __device__ __forceinline__ void tma_load_1d(void *to, const void *from,
                                                   uint32_t bytes, uint64_t *bar)
{
    jitter();
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(smem_addr(to)),
                 "l"(from), "r"(bytes), "r"(smem_addr(bar))
                 : "memory");
}

// cp.async.bulk with commit_group, called by one thread: copies from shared to global
// memory. Each thread that wrote `from` must have called fence_proxy_async and then
// have passed a barrier with the calling thread.
static __device__ __forceinline__ void tma_store_1d(void *to, const void *from,
                                                    uint32_t bytes)
{
    jitter();
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(smem_addr(from)), "r"(bytes)
                 : "memory");
}

// cp.async.bulk.wait_group.read, called by the thread that issued the stores: waits
// until the stores have read their sources, which may then be overwritten.
static __device__ __forceinline__ void tma_store_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    jitter();
}

// cp.async.bulk.multicast, called by one thread of a cluster of two blocks: copies to
// the shared-memory offset of `to` in both blocks, which must have released it. A block
// may announce the bytes at its `bar` later: the phase waits for that arrival, too.
static __device__ __forceinline__ void tma_load_1d_multicast(void *to, const void *from,
                                                             uint32_t bytes,
                                                             uint64_t *bar)
{
    const uint16_t both = 3;
    jitter();
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(smem_addr(to)),
                 "l"(from), "r"(bytes), "r"(smem_addr(bar)), "h"(both)
                 : "memory");
}

// Host: encodes the tensor map of x [T,heads,K], bf16 (cuTensorMapEncodeTiled). A box
// is 64 channels of one head in `rows` rows, written as a swizzle128 tile. Rows past T
// are read as zero. Returns 0 if the driver lacks or rejects the call.
static inline int tensor_map_of_heads(CUtensorMap *map, const void *x, int64_t T,
                                      int heads, int K, uint32_t rows)
{
    static void *known;                  // all threads store the same value
    void *found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSuccess;
    if (!found)
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                         cudaEnableDefault, &how);
    __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    if (!found) return 0;
    const PFN_cuTensorMapEncodeTiled_v12000 encode =
        (PFN_cuTensorMapEncodeTiled_v12000)found;
    const cuuint64_t size[3] = { (cuuint64_t)K, (cuuint64_t)heads, (cuuint64_t)T };
    const cuuint64_t step[2] = { 2 * size[0], 2 * size[0] * size[1] };
    const cuuint32_t box[3] = { 64, 1, rows }, every[3] = { 1, 1, 1 };
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)x, size, step, box,
                  every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// cp.async.bulk.tensor.3d, called by one thread: copies the box that starts at row t
// and channel `channel` of head n to a swizzle128 tile. The rules of tma_load_1d apply.
// `map` is a __grid_constant__ kernel argument.
static __device__ __forceinline__ void tma_load_3d(void *to, const CUtensorMap &map,
                                                   int channel, int n, int t,
                                                   uint64_t *bar)
{
    jitter();
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                     smem_addr(to)),
                 "l"(&map), "r"(channel), "r"(n), "r"(t), "r"(smem_addr(bar))
                 : "memory");
}

// cp.async.bulk.prefetch.tensor.3d, called by one thread: loads a box into L2.
static __device__ __forceinline__ void tma_prefetch_3d(const CUtensorMap &map,
                                                       int channel, int n, int t)
{
    asm volatile(
        "cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(
            &map),
        "r"(channel), "r"(n), "r"(t)
        : "memory");
}

// Like tma_load_3d, but copies to the offset of `to` in both blocks of a cluster.
// The rules of tma_load_1d_multicast apply.
static __device__ __forceinline__ void tma_load_3d_multicast(void *to,
                                                             const CUtensorMap &map,
                                                             int channel, int n, int t,
                                                             uint64_t *bar)
{
    const uint16_t both = 3;
    jitter();
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(smem_addr(to)),
                 "l"(&map), "r"(channel), "r"(n), "r"(t), "r"(smem_addr(bar)),
                 "h"(both)
                 : "memory");
}

// cp.async.bulk.tensor.3d with commit_group, called by one thread: stores a swizzle128
// tile to a box of a tensor. The rules of tma_store_1d apply.
static __device__ __forceinline__ void tma_store_3d(const CUtensorMap &map,
                                                    const void *from, int channel,
                                                    int n, int t)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3}], [%4];\n"
                 "cp.async.bulk.commit_group;" ::"l"(&map),
                 "r"(channel), "r"(n), "r"(t), "r"(smem_addr(from))
                 : "memory");
}

// fence.mbarrier_init and the proxy fence: make initialized barriers visible to TMA and
// other blocks. Called by the thread that initialized the barriers, before
// __syncthreads or cluster_sync.
static __device__ __forceinline__ void mbarrier_fence_init(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_proxy_async();
}

#ifdef KCP_OMIT
#include "omit_stores.cuh"
#endif

#endif
