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
#ifndef KCP_TILE_OMIT_CUH
#define KCP_TILE_OMIT_CUH

#ifdef KCP_OMIT
enum { OMIT_MARKS = 1 << 20 };
static const unsigned OMIT_NONE = 0, OMIT_MARK = ~0u;

struct omission {
    unsigned place;                      // OMIT_NONE, OMIT_MARK, or a place
    unsigned char *reached;              // [OMIT_MARKS], set if place is OMIT_MARK
};
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

// Where something is left out, half of the warps sleep, so that the others run ahead.
static __device__ __forceinline__ void omit_skew(void) { jitter(1, 14); }

#define OMITTED(name) omitted<omit_place(#name, __FILE__, __LINE__)>()
#define OMIT(name) OMITTED(name) ? omit_skew() : name
#undef __syncthreads
#define __syncthreads() \
    (OMITTED(__syncthreads) ? omit_skew() : (jitter(), __syncthreads()))
#endif

#endif
