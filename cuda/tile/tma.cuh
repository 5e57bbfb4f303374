// bulk.cuh -- Hopper's copy engine, and registers that warpgroups hand to one another.
// Book: chapter 18, "Code: kernels".
// Checked by: every variant that includes it.
// Next: 08_forward/v3_records.cuh.
#ifndef KCP_BULK_CUH
#define KCP_BULK_CUH

#include <cudaTypedefs.h>

#include "wgmma.cuh"

// A contiguous piece of global memory to shared memory, both aligned to 16 bytes; bar
// counts the bytes.
static __device__ __forceinline__ void bulk_copy(void *to, const void *from,
                                                 uint32_t bytes, uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :: "r"(shared_at(to)), "l"(from), "r"(bytes), "r"(shared_at(bar))
                 : "memory");
}

// And back to global memory; bulk_read: what was sent has been read, its place is free.
static __device__ __forceinline__ void bulk_store(void *to, const void *from,
                                                  uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;"
                 :: "l"(to), "r"(shared_at(from)), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void bulk_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// The same to this place in both blocks of a cluster; each one's bar counts them.
static __device__ __forceinline__ void bulk_copy_both(void *to, const void *from,
                                                      uint32_t bytes, uint64_t *bar)
{
    const uint16_t both = 3;
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;"
                 :: "r"(shared_at(to)), "l"(from), "r"(bytes), "r"(shared_at(bar)),
                 "h"(both) : "memory");
}

// Rows of a head of x [T,heads,K], bf16, as the copy engine takes them: 64 channels of
// so many rows at once, in the order of a panel (group.cuh); zeros past row T. 0 where
// the driver does not know how.
static inline int head_rows(CUtensorMap *map, const void *x, int64_t T, int heads,
                            int K, uint32_t rows)
{
    static void *known;                  // ranks that are threads find the same
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

// Rows from t on of head n, 64 channels, to a panel; bar counts the bytes.
static __device__ __forceinline__ void copy_rows(void *to, const CUtensorMap &map,
                                                 int channel, int n, int t,
                                                 uint64_t *bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 :: "r"(shared_at(to)), "l"(&map), "r"(channel), "r"(n), "r"(t),
                 "r"(shared_at(bar)) : "memory");
}

// Blocks of a cluster: who am I, an arrival at another's barrier, and all wait for all.
static __device__ __forceinline__ uint32_t cluster_rank(void)
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

static __device__ __forceinline__ void turn_arrive_at(uint64_t *bar, int rank)
{
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
                 :: "r"(shared_at(bar)), "r"(rank) : "memory");
}

static __device__ __forceinline__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::: "memory");
}

// Arrive, and announce so many bytes of copies: the turn is over when they are there.
static __device__ __forceinline__ void turn_expect(uint64_t *bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_at(bar)), "r"(bytes) : "memory");
}

// An arrival of this thread, once the copies are there that copy_async asked for.
static __device__ __forceinline__ void copies_arrive(uint64_t *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"
                 :: "r"(shared_at(bar)) : "memory");
}

// Barriers are set up by one thread; the copy engine must see them too.
static __device__ __forceinline__ void turns_show(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    show_async();
}

// A warpgroup gives registers away, or takes them: n a thread from here on.
template <int n>
static __device__ __forceinline__ void give_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(n));
}

template <int n>
static __device__ __forceinline__ void take_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(n));
}

// Four 8 x 8 tiles of bf16 from registers to shared memory, each transposed on its way;
// lane 8 j + i has the address of row i of tile j.
static __device__ __forceinline__ void store_tiles_t(bf16 *row, const uint32_t *r)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};"
                 :: "r"(shared_at(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

#endif
