// cluster.cuh -- thread-block clusters: block rank, synchronization, remote arrivals.
// Book: chapter 18.
#ifndef KCP_TILE_CLUSTER_CUH
#define KCP_TILE_CLUSTER_CUH

#include "mbarrier.cuh"

// %cluster_ctarank, called by any thread: returns this block's rank in its cluster.
static __device__ __forceinline__ uint32_t cluster_rank(void)
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

// mapa and mbarrier.arrive.shared::cluster: each calling thread arrives once at the
// barrier that block `rank` has at the shared-memory offset of `bar`. Before the call,
// every block must have initialized its barriers and called cluster_sync. Block `rank`
// must not have exited.
static __device__ __forceinline__ void mbarrier_arrive_cluster(uint64_t *bar, int rank)
{
    jitter();
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(smem_addr(bar)),
        "r"(rank)
        : "memory");
}

// barrier.cluster.arrive and .wait, called by all threads of the cluster. The threads
// of a warp may arrive separately, e.g. if one of them was the producer, but .aligned
// needs them together.
static __device__ __forceinline__ void cluster_sync(void)
{
    jitter();
    __syncwarp();
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

#ifdef KCP_OMIT
#define mbarrier_arrive_cluster OMIT(mbarrier_arrive_cluster)
#define cluster_sync() OMIT_BARRIER(cluster_sync)
#endif

#endif
