// stages_v1.cuh -- the first kernels of the stages, for 08 and 13 to string together.
// Book: chapter 08, "Code: kernels".
// Checked by: tests/08_forward/checks.c, tests/13_backward/checks.c.
// Next: ../08_forward/v1_stages.cu.
#ifndef KCP_STAGES_V1_CUH
#define KCP_STAGES_V1_CUH

#include "kcp.h"

// The kernels that a whole forward or backward is made of: the first ones, or better.
struct stages {
    const char *name;                    // who writes the saved block
    int (*gate)(void *), (*wy)(void *), (*chunk)(void *), (*affine)(void *);
    int (*chunk_backward)(void *), (*wy_backward)(void *), (*merge_backward)(void *);
    size_t (*gate_work)(const void *), (*wy_backward_work)(const void *);
    int (*again)(const struct kcp_gate *, const struct kcp_wy *);   // 13's own; or NULL
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

template <class X>
static inline struct stages stages_v1(const char *name)
{
    return { name, v1_gate<X>, v1_wy<X>, v1_chunk<X>, v1_affine<X>,
             v1_chunk_backward<X>, v1_wy_backward<X>, v1_merge_backward<X>,
             v1_gate_work, v1_wy_backward_work, NULL };
}

#endif
