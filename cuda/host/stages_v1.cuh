// stages_v1.cuh -- the kernels from which stages 08, 13 and 16 compose whole passes.
// Book: chapter 08, "Code: kernels".
#pragma once

#include "core/paths.h"
#include <string.h>

// The kernels of a whole pass, as named by the call's row in ref/core/paths.def.
struct stages {
    const char *name;                    // the variant, recorded in the saved block
    const struct kcp_path *path;         // the row, or NULL (see stages_of_row)
    int (*gate)(void *), (*wy)(void *), (*chunk)(void *), (*affine)(void *);
    int (*chunk_backward)(void *), (*wy_backward)(void *), (*merge_backward)(void *);
    size_t (*gate_work)(const void *), (*wy_backward_work)(const void *);
    int (*recompute)(const struct kcp_gate *, const struct kcp_wy *);  // may be NULL
    int whole;                           // 1: segments are not cut into strips
    int stores_states;                   // 1: stage 04 needs memory for h and v_new
};

// Each function takes its stage's args struct, launches on the call's stream, and
// returns a kcp_status. X is the storage type, float or bf16.
template <class X> int v1_gate(void *args);
template <class X> int v1_wy(void *args);
template <class X> int v1_chunk(void *args);
template <class X> int v1_affine(void *args);
template <class X> int v1_chunk_backward(void *args);
template <class X> int v1_wy_backward(void *args);
template <class X> int v1_merge_backward(void *args);

size_t v1_gate_work(const void *args);
size_t v1_wy_backward_work(const void *args);

// A kernel that a row of the table of paths may name. Each program lists only the
// kernels that it can launch.
struct stage_kernel {
    const char *key, *name;              // "04", "v2_warp"
    int (*run)(void *);
    size_t (*work)(const void *);
};

template <int n>
static inline const struct stage_kernel *stage_kernel_of(
    const struct stage_kernel (&list)[n], const char *key, const char *name)
{
    for (const struct stage_kernel &k : list)
        if (!strcmp(k.key, key) && !strcmp(k.name, name)) return &k;
    return NULL;
}

// Returns the kernels that the call's row names. `path` is NULL if no row accepts the
// call, or if the row names a kernel that is not listed.
template <int n>
static inline struct stages stages_of_row(const char *stage, const char *kernel,
                                          enum kcp_storage storage, const void *args,
                                          const struct stage_kernel (&list)[n])
{
    static const char *const keys[] = { "02", "03", "04", "05", "09", "10", "11" };
    struct stages t = {};
    int (**const run[])(void *) = { &t.gate, &t.wy, &t.chunk, &t.affine,
                                    &t.chunk_backward, &t.wy_backward,
                                    &t.merge_backward };
    char name[40];
    t.name = kernel;
    t.path = kcp_path_of(stage, kernel, storage, args);
    for (int i = 0; i < 7 && t.path; i++) {
        if (!kcp_path_word(t.path, keys[i], name, sizeof name)) continue;
        const struct stage_kernel *k = stage_kernel_of(list, keys[i], name);
        if (k) *run[i] = k->run;
        if (k && k->work) (i == 0 ? t.gate_work : t.wy_backward_work) = k->work;
        if (!k) t.path = NULL;
    }
    t.whole = t.path && kcp_path_word(t.path, "strips", name, sizeof name);
    t.stores_states = t.path && kcp_path_word(t.path, "states", name, sizeof name);
    return t;
}

// Returns the v1 kernels. Names of fp32 kernels end in _f32.
template <class X>
static inline struct stages stages_v1(const char *stage, const void *args)
{
    enum { WIDE = sizeof(X) == 4 };
    #define NAME_OF(kernel) WIDE ? kernel "_f32" : kernel
    static const struct stage_kernel list[] = {
        { "02", NAME_OF("v1_walk"), v1_gate<X>, v1_gate_work },
        { "03", NAME_OF("v1_pairs"), v1_wy<X>, NULL },
        { "04", NAME_OF("v1_column"), v1_chunk<X>, NULL },
        { "05", NAME_OF("v1_column"), v1_affine<X>, NULL },
        { "09", NAME_OF("v1_column"), v1_chunk_backward<X>, NULL },
        { "10", NAME_OF("v1_column"), v1_wy_backward<X>, v1_wy_backward_work },
        { "11", NAME_OF("v1_column"), v1_merge_backward<X>, NULL },
    };
    const enum kcp_storage storage = WIDE ? KCP_F32 : KCP_BF16;
    return stages_of_row(stage, NAME_OF("v1_stages"), storage, args, list);
    #undef NAME_OF
}
