// realigned.cuh -- copies unaligned arrays of a backward call to aligned memory.
// Book: chapter 18, "Backward".
#include "cuda/tile/device.cuh"
#include "checked.h"
#include "ref.h"

// The kernels of chapter 18 access 16 bytes at once. A caller's array that is not
// aligned to 16 bytes is copied to the workspace before the kernels run. An output is
// also copied back afterwards. Index tables may have any alignment.
struct realigned {
    int count;
    struct { void *theirs, *ours; size_t bytes; int out; } at[24];
    size_t used;                         // bytes used of the workspace
};

// Replaces each unaligned array of call `a` by memory at the start of the workspace.
// The call then uses the remaining memory as its workspace.
static inline struct realigned realign(struct kcp_backward *a)
{
    const struct kcp_stage *stage = kcp_stage_find("13_backward");
    struct realigned x = {};
    for (int i = 0; i < stage->nfields; i++) {
        const struct kcp_field *f = &stage->fields[i];
        void **p = (void **)((char *)a + f->at);
        if (f->store == KCP_I32 || !((uintptr_t)*p & 15)) continue;
        auto *y = &x.at[x.count++];
        y->theirs = *p;
        y->bytes = kcp_field_numbers((const struct kcp_call *)a, f)
                   * kcp_bytes_of((const struct kcp_call *)a, f->store, KCP_BF16);
        y->out = f->io == KCP_OUT;
        y->ours = a->work ? (char *)a->work + x.used : (char *)256;
        *p = y->ours;
        x.used += (y->bytes + 255) / 256 * 256;
    }
    if (a->work) a->work = (char *)a->work + x.used;
    a->work_bytes = a->work_bytes > x.used ? a->work_bytes - x.used : 0;
    return x;
}

// Copies the caller's arrays to their aligned replacements or, if `out` is set, copies
// the outputs back. Outputs are also copied in, because rows that this rank does not
// own must keep their values.
static inline void copy_realigned(const struct realigned *x, int out,
                                  struct CUstream_st *stream)
{
    for (int i = 0; i < x->count; i++) {
        const auto *y = &x->at[i];
        if (out && !y->out) continue;
        cudaMemcpyAsync(out ? y->theirs : y->ours, out ? y->ours : y->theirs, y->bytes,
                        cudaMemcpyDeviceToDevice, stream);
    }
}

// Runs run_path(&a, path), where `a` is the call with aligned arrays. `path` is the
// call's path, or NULL. Forward checked that the raw inputs are aligned.
template <class Run>
static int run_realigned(struct kcp_backward a, const struct kcp_path *path,
                         Run run_path)
{
    const size_t given = a.work_bytes;
    if (!a.plan || !a.saved) return KCP_BAD;
    if (!path) return KCP_NA;
    const struct realigned r = realign(&a);
    if (r.used > given) return KCP_BAD;
    copy_realigned(&r, 0, a.stream);
    const int status = run_path(&a, path);
    if (!status) copy_realigned(&r, 1, a.stream);
    return status ? status : launched();
}

// Returns the workspace of run_realigned. `place` returns that of the call with aligned
// arrays.
template <class Place>
static size_t realigned_work(struct kcp_backward a, const struct kcp_path *path,
                             Place place)
{
    if (!path) return 0;
    const struct realigned r = realign(&a);
    return r.used + place(&a, path);
}
