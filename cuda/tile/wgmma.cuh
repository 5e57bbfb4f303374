// group.cuh -- the tensor core of sm_90a as a few small functions: a warpgroup at once.
// Book: chapter 05, "A warpgroup at once"; chapter 18.
// Checked by: every variant that includes it.
// Next: 05_affine/v3_group_sm90.cu.
//
// A warpgroup is four warps, and its A is 64 x 16: each warp holds 16 rows of it as in
// mma.cuh. So is D, 64 x N: warp i has rows 16 i .. 16 i + 15, in tiles of 8 columns. B
// lies in shared memory, where a panel is [64][64] bf16: row r at byte 128 r, its eight
// pieces of 16 bytes in the order piece ^ (r % 8), so that eight rows meet all banks.
#ifndef KCP_GROUP_CUH
#define KCP_GROUP_CUH

#include "mma.cuh"

enum { PANEL = 64 * 64 };                // elements; a panel begins at 1024 bytes

// Byte of element (row, 8 piece) in a panel.
static __device__ __forceinline__ int in_panel(int row, int piece)
{
    return row * 128 + ((piece ^ (row & 7)) << 4);
}

// What tells the tensor core where B is: the address, the distance of panels and of
// groups of eight rows, in 16 bytes, and how a row is ordered. Rows of X are B's
// columns (B = X^T): one panel, 16 columns of X a step, the next step 32 bytes on.
static __device__ __forceinline__ uint64_t rows_at(const bf16 *X)
{
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (shared_at(X) >> 4 & 0x3fff);
}

// Rows of X are B's rows (B = X): 16 rows of X a step, 2048 bytes on; a second panel,
// of X's next 64 columns, `panel` elements on.
static __device__ __forceinline__ uint64_t columns_at(const bf16 *X, int panel = PANEL)
{
    return 1ull << 62 | 64ull << 32 | (uint64_t)(panel / 8) << 16
         | (shared_at(X) >> 4 & 0x3fff);
}

enum { STEP_ROWS = 32 >> 4, STEP_COLUMNS = 2048 >> 4, NEXT_PANEL = 2 * PANEL >> 4 };

// Registers written before are seen by the products that follow.
static __device__ __forceinline__ void group_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void group_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most `left` of the newest groups of products are still under way.
template <int left>
static __device__ __forceinline__ void group_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory");
}

// The compiler may not move what touches d across this line.
template <int tiles>
static __device__ __forceinline__ void hold(float (*d)[4])
{
    #pragma unroll
    for (int i = 0; i < tiles; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
                     :: "memory");
}

#define D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D16(i) D4(i), D4(i + 1), D4(i + 2), D4(i + 3)

// d [64,64] = a b, or += with add; turned: b is given by columns_at.
template <int turned>
static __device__ __forceinline__ void group_mma_64(float (*d)[4], const uint32_t *a,
                                                    uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "{%32,%33,%34,%35}, %36, p, 1, 1, %38; }"
        : D16(0), D16(4) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),
          "n"(turned));
}

// d [64,64] = X Y^T, or += with add: 16 columns of both, given by rows_at.
static __device__ __forceinline__ void group_mma_rows(float (*d)[4], uint64_t X,
                                                      uint64_t Y, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, p, 1, 1, 0, 0; }"
        : D16(0), D16(4) : "l"(X), "l"(Y), "r"(add));
}

// d [64,128] += a b.
template <int turned>
static __device__ __forceinline__ void group_mma_128(float (*d)[4], const uint32_t *a,
                                                     uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "{%64,%65,%66,%67}, %68, 1, 1, 1, %69;"
        : D16(0), D16(4), D16(8), D16(12)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(turned));
}

// ---- barriers in shared memory: `count` arrivals, or a turn, open one
static __device__ __forceinline__ void turn_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared_at(bar)), "r"(count)
                 : "memory");
}

static __device__ __forceinline__ void turn_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(shared_at(bar))
                 : "memory");
}

// Until turn number `turn` (0, 1, ...) of the barrier is over.
static __device__ __forceinline__ void turn_wait(uint64_t *bar, int turn)
{
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n }"
                 :: "r"(shared_at(bar)), "r"(turn & 1) : "memory");
}

// Kernels for sm_90a are for no other chip.
static inline int on_hopper(void)
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
}

// What this thread wrote to shared memory, copies that arrived included, becomes
// visible to the tensor core and the copy engine, which have another path there; and
// the engine may write where this thread has read or written.
static __device__ __forceinline__ void show_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
