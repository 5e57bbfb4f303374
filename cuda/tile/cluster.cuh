// cluster.cuh -- blocks of a cluster: who am I, and arrivals at another's barrier.
// Book: chapter 18.
// Checked by: every variant that includes it.
// Next: launch.cuh.
#ifndef KCP_TILE_CLUSTER_CUH
#define KCP_TILE_CLUSTER_CUH

#include "mbarrier.cuh"

// Blocks of a cluster: who am I, an arrival at another's barrier, and all wait for all.
static __device__ __forceinline__ uint32_t cluster_rank(void)
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

static __device__ __forceinline__ void mbarrier_arrive_cluster(uint64_t *bar, int rank)
{
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(smem_addr(bar)),
        "r"(rank)
        : "memory");
}

static __device__ __forceinline__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

#endif
