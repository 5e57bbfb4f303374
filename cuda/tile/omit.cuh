// omit.cuh -- a build in which one wait, arrival, fence or barrier can be left out.
// Book: users.md, "Find a race".
//
// With KCP_OMIT defined, each use of a function that waits, arrives or orders memory is
// a place. Its number is a hash of the function's name, the file and the line. At run
// time `omission.place` selects the place that does nothing. Other builds contain no
// code of this file. The headers of tile/ define the macros after the functions:
//     #define mbarrier_wait OMIT(mbarrier_wait)
// The preprocessor does not expand a name inside the name's own macro. OMIT has no
// arguments of the call, so that templates such as cp_async_wait<0>() work too.
//
// An omission shows only if warps or copies run at different speeds. So in most blocks
// one warp or warpgroup is slow, warps also sleep after barriers, and some stores of
// the copy engine read shared memory late.
#ifndef KCP_TILE_OMIT_CUH
#define KCP_TILE_OMIT_CUH

#ifdef KCP_OMIT
enum { OMIT_MARKS = 1 << 20 };
static const unsigned OMIT_NONE = 0, OMIT_MARK = ~0u;

struct omission {
    unsigned place;                      // OMIT_NONE, OMIT_MARK, or a place
    unsigned char *reached;              // [OMIT_MARKS], set if place is OMIT_MARK
    unsigned char *sink;                 // [OMIT_SINK], written by stores without use
};
enum { OMIT_SINK = 1 << 18 };
static __device__ struct omission omission;

// The host program sets the variable of each object before the first launch.
extern "C" int kcp_omission_add(const void *symbol);
static const int omission_added __attribute__((used)) = kcp_omission_add(&omission);

// FNV-1a of the name, the file's last two path components, and the line.
static __host__ __device__ constexpr unsigned omit_place(const char *name,
                                                         const char *file, int line)
{
    unsigned h = 0x811c9dc5u;
    int last = 0, folder = 0;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x01000193u;
    for (int i = 0; file[i]; i++)
        if (file[i] == '/') {
            folder = last;
            last = i + 1;
        }
    for (file += folder; *file; file++) h = (h ^ (unsigned char)*file) * 0x01000193u;
    for (; line; line /= 10) h = (h ^ (unsigned)(line % 10)) * 0x01000193u;
    return h;
}

template <unsigned place>
static __device__ __forceinline__ int omitted(void)
{
    const unsigned now = *(volatile unsigned *)&omission.place;
    if (now == OMIT_MARK) omission.reached[place % OMIT_MARKS] = 1;
    return now == place;
}

// Sleeps as jitter() does, but a slow warp or warpgroup sleeps in half of the calls,
// for up to 8 us. Which warps of a block are slow changes every 0.13 ms.
static __device__ __forceinline__ void omit_jitter(int few = 3, int bits = 12)
{
    unsigned now;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now));
    const unsigned block = blockIdx.x * 0x7f4a7c15u
                         + (blockIdx.y * 5 + blockIdx.z) * 0x6c62272eu;
    const unsigned x = ((now >> 17) * 0x9e3779b9u + block) * 0x85ebca6bu >> 16;
    const unsigned by = x % 4 == 1 ? 128 : 32;   // threads that are slow together
    const unsigned parts = (blockDim.x + by - 1) / by;
    const int slow = x % 4 && x / 4 % parts == threadIdx.x / by;
    if (slow) few = few > 4 ? few - 3 : 1;
    jitter(few, slow ? 13 : bits);
}
#define jitter omit_jitter

// Where something is left out, half of the warps sleep, so that the others run ahead.
static __device__ __forceinline__ void omit_skew(void) { jitter(1, 14); }

// Before one of four stores of the copy engine: eight large stores. The engine then
// reads the source of the store that follows later. They belong to that store's group.
// Shared memory of a block begins after 1 KiB that the system reserves.
static __device__ __forceinline__ void omit_slow_store(void)
{
    unsigned now, bytes;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now));
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    if ((now * 0x85ebca6bu >> 16) % 4 || !omission.sink) return;
    bytes = (bytes < 98304u ? bytes : 98304u) & ~15u;
    for (int i = 0; i < 8 && bytes; i++)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::
                     "l"(omission.sink), "r"(1024), "r"(bytes) : "memory");
}

#define OMITTED(name) omitted<omit_place(#name, __FILE__, __LINE__)>()
#define OMIT(name) OMITTED(name) ? omit_skew() : name
// After a barrier all warps are equally far, so warps must sleep again.
#define OMIT_BARRIER(name, ...) \
    (OMITTED(name) ? omit_skew() : (name(__VA_ARGS__), jitter()))
#undef __syncthreads
#define __syncthreads() \
    (OMITTED(__syncthreads) ? omit_skew() : (jitter(), __syncthreads(), jitter()))
#endif

#endif
