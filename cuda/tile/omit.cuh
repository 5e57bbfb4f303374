// omit.cuh -- a build in which one wait, arrival, fence or barrier can be left out.
// Book: users.md, "Find a race".
//
// With KCP_OMIT defined, each use of a function that waits, arrives or orders memory is
// a place. Its number is a hash of the function's name, the file and the line. At run
// time `omission.place` selects the place that does nothing. Other builds contain no
// code of this file. The headers of tile/ define the macros after the functions:
//     #define warp_arrive OMIT(warp_arrive)
// The preprocessor does not expand a name inside the name's own macro. OMIT has no
// arguments of the call, so that __LINE__ is the line of the name.
//
// An omission shows only if the thread that should have waited runs ahead of the
// thread or copy that it should have waited for. Sleeps cause this (omit_jitter), and
// copies that are as late as the rules allow (omit_copies, _loads and _stores.cuh).
#pragma once

#ifdef KCP_OMIT
enum { OMIT_MARKS = 1 << 20 };
static const unsigned OMIT_NONE = 0, OMIT_MARK = ~0u;

// What kind of place is left out, which decides which copies are late.
enum { OMIT_OTHER, OMIT_FULL_WAIT, OMIT_STORE_WAIT, OMIT_COPY_WAIT, OMIT_BARRIERS,
       OMIT_LATE_LOADS,                  // a full wait whose loads by TMA are late
       OMIT_GRIDS };                     // a wait for the kernel before, which is slow

struct omission {
    unsigned place;                      // OMIT_NONE, OMIT_MARK, or a place
    unsigned kind;
    int accesses;                        // 1: slow warps also sleep before accesses
    unsigned *hung;                      // set by a wait that ends after 2 s
    unsigned char *reached;              // [OMIT_MARKS], set if place is OMIT_MARK
    unsigned char *role;                 // [OMIT_WARPS]
    unsigned char *pace;                 // [OMIT_PACES][OMIT_WARPS]
    unsigned char *bar;                  // [OMIT_BARS], barriers whose wait is left out
    struct omit_thread *thread;          // [OMIT_THREADS]
    uint4 *copies;                       // [OMIT_QUEUE][OMIT_THREADS]; NULL: not late
    struct omit_stores *stores;          // [OMIT_STORERS]
    struct omit_load *loads;             // [OMIT_BLOCKS][OMIT_LOADS]
    unsigned char *sink;                 // [OMIT_SINK], written by stores without use
};
static __device__ struct omission omission;
enum { OMIT_WARPS = 33 * 32, OMIT_PACES = 64, OMIT_BARS = 1 << 15,
       OMIT_BLOCKS = 4 * 512, OMIT_LOADS = 16 };

static __device__ __forceinline__ int omit_is_of_barrier(void)
{
    return omission.kind == OMIT_FULL_WAIT || omission.kind == OMIT_LATE_LOADS;
}

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

// A warp's index in `role`. Kernels mostly differ in their block size, so that a warp
// with this index has one role: OMIT_EARLY runs the place, and OMIT_LATE is a warp for
// which a wait that is left out would have waited.
static __device__ __forceinline__ int omit_warp(void)
{
    return blockDim.x / 32 * 32 % OMIT_WARPS + threadIdx.x / 32;
}
enum { OMIT_EARLY = 1, OMIT_LATE = 2 };

template <unsigned place>
static __device__ __forceinline__ int omitted(void)
{
    const unsigned now = *(volatile unsigned *)&omission.place;
    if (now == OMIT_MARK) omission.reached[place % OMIT_MARKS] = 1;
    if (now != place) return 0;
    if (!omission.role[omit_warp()]) omission.role[omit_warp()] = OMIT_EARLY;
    return 1;
}

static __device__ __forceinline__ unsigned omit_time(void)
{
    unsigned now;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now));
    return now;
}

// How a warp sleeps. OMIT_BY_ROLE is OMIT_SLOW if the warp is late, OMIT_AWAKE if it is
// early. All warps of a block use the same row of the table, for half a ms.
enum { OMIT_AWAKE, OMIT_USUAL, OMIT_SLOW, OMIT_BY_ROLE };
static __device__ __forceinline__ int omit_pace(void)
{
    if (omission.kind == OMIT_GRIDS)
        return ((volatile unsigned char *)omission.role)[omit_warp()] ? OMIT_AWAKE
                                                                      : OMIT_SLOW;
    const unsigned x = ((omit_time() >> 19) * 0x9e3779b9u + blockIdx.x * 0x7f4a7c15u
                        + (blockIdx.y * 5 + blockIdx.z) * 0x6c62272eu) * 0x85ebca6bu;
    const int pace = omission.pace[(x >> 26) * OMIT_WARPS + omit_warp()];
    if (pace != OMIT_BY_ROLE) return pace;
    const int role = ((volatile unsigned char *)omission.role)[omit_warp()];
    return role == OMIT_LATE ? OMIT_SLOW : role ? OMIT_AWAKE : OMIT_USUAL;
}

// Sleeps as jitter() does, but a slow warp sleeps in half of the calls, up to 16 us.
static __device__ __forceinline__ void omit_jitter(int few = 3, int bits = 12)
{
    const int pace = omit_pace();
    if (pace == OMIT_AWAKE) return;
    const int slow = pace == OMIT_SLOW;
    jitter(slow ? few > 4 ? few - 3 : 1 : few, slow ? 14 : bits);
}
#define jitter omit_jitter

// At the place that is left out, half of the warps sleep in one of eight half ms.
static __device__ __forceinline__ void omit_skew(void)
{
    const unsigned now = omit_time();
    if ((now >> 19) % 8 == 0 && (now / 32 + threadIdx.x / 32) % 2) __nanosleep(8000);
}

// Before an access to shared memory that a barrier separates from another access.
static __device__ __forceinline__ void omit_access(void)
{
    if (omission.accesses && omit_pace() == OMIT_SLOW) __nanosleep(omit_time() % 8192);
}

// A block's number, and the same number without its position in a table of `blocks`.
static __device__ __forceinline__ unsigned omit_block(unsigned blocks, unsigned *key)
{
    unsigned long long grid;
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid));
    const unsigned x = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    *key = ((unsigned)grid * 0x9e3779b9u ^ x * 0x85ebca6bu) | 1;
    return (unsigned)grid % 4 * (blocks / 4) + x % (blocks / 4);
}

static __device__ __forceinline__ int omit_or(int x)
{
    jitter();
    x = __syncthreads_or(x);
    jitter();
    return x;
}

#define OMITTED(name) omitted<omit_place(#name, __FILE__, __LINE__)>()
#define OMIT(name) OMITTED(name) ? omit_skew() : name
// After a barrier all warps are equally far, so warps must sleep again.
#define OMIT_BARRIER(name, ...) \
    (OMITTED(name) ? omit_skew() : (name(__VA_ARGS__), jitter()))
#undef __syncthreads
#define __syncthreads() \
    (OMITTED(__syncthreads) ? omit_skew() : (jitter(), __syncthreads(), jitter()))
#define __syncthreads_or(x) (OMITTED(__syncthreads_or) ? (x) : omit_or(x))
#endif
