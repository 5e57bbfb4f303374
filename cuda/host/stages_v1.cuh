// stages_v1.cuh -- the kernels of the stages, for 08, 13 and 16 to string together.
// Book: chapter 08, "Code: kernels".
// Checked by: tests/08_forward/checks.c, tests/13_backward/checks.c.
// Next: stages_v2.cuh, which finds them by a row of the table of paths.
#ifndef KCP_STAGES_V1_CUH
#define KCP_STAGES_V1_CUH

#include "core/paths.h"

// The kernels that a whole forward or backward is made of: those that its row names.
struct stages {
    const char *name;                    // who writes the saved block
    const struct kcp_path *path;         // the row; NULL: none takes the call
    int (*gate)(void *), (*wy)(void *), (*chunk)(void *), (*affine)(void *);
    int (*chunk_backward)(void *), (*wy_backward)(void *), (*merge_backward)(void *);
    size_t (*gate_work)(const void *), (*wy_backward_work)(const void *);
    int (*recompute)(const struct kcp_gate *, const struct kcp_wy *);  // 13; or NULL
};

// Each takes its stage's args struct, launches on its stream, and returns kcp_status;
// X is the storage type, float or bf16.
template <class X> int v1_gate(void *args);
template <class X> int v1_wy(void *args);
template <class X> int v1_chunk(void *args);
template <class X> int v1_affine(void *args);
template <class X> int v1_chunk_backward(void *args);
template <class X> int v1_wy_backward(void *args);
template <class X> int v1_merge_backward(void *args);

// Bytes of work that they need.
size_t v1_gate_work(const void *args);
size_t v1_wy_backward_work(const void *args);

// A program's kernels, all first ones. stage NULL: the program asks for no row.
template <class X>
static inline struct stages stages_v1(const char *stage, const void *args)
{
    const int wide = sizeof(X) == 4;
    struct stages t = {};
    t.name = wide ? "v1_stages_f32" : "v1_stages";
    if (stage) t.path = kcp_path_of(stage, t.name, wide ? KCP_F32 : KCP_BF16, args);
    t.gate = v1_gate<X>;
    t.wy = v1_wy<X>;
    t.chunk = v1_chunk<X>;
    t.affine = v1_affine<X>;
    t.chunk_backward = v1_chunk_backward<X>;
    t.wy_backward = v1_wy_backward<X>;
    t.merge_backward = v1_merge_backward<X>;
    t.gate_work = v1_gate_work;
    t.wy_backward_work = v1_wy_backward_work;
    return t;
}

#endif
