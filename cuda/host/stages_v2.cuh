// stages_v2.cuh -- the tensor-core kernels of the stages, as a row of paths names them.
// Book: chapters 08 and 13, "Code: kernels".
// Checked by: tests/08_forward/checks.c, tests/13_backward/checks.c.
// Next: ../08_forward/v2_stages.cu.
#ifndef KCP_STAGES_V2_CUH
#define KCP_STAGES_V2_CUH

#include "cuda/tile/device.cuh"
#include "stages_v1.cuh"
#include "stages_v3.cuh"
#include <string.h>

// Each takes its stage's args struct, bf16, and returns kcp_status: KCP_NA for shapes
// that it does not take.
int v2_gate(void *args);
int v2_wy(void *args);
int v2_chunk(void *args);
int v2_affine(void *args);
int v2_chunk_backward(void *args);
int v2_merge_backward(void *args);
int v3_wy_backward(void *args);
size_t v3_wy_backward_work(const void *args);

struct stage_kernel {
    const char *key, *name;              // "04", "v2_warp"
    int (*run)(void *);
    size_t (*work)(const void *);
};

// What a row may name; a kernel that this program was built without is not here.
static const struct stage_kernel stage_kernels[] = {
    { "02", "v2_vector", v2_gate, v1_gate_work },
    { "03", "v2_halves", v2_wy, NULL },
    { "04", "v2_warp", v2_chunk, NULL },
    { "05", "v2_pieces", v2_affine, NULL },
    { "09", "v2_warp", v2_chunk_backward, NULL },
    { "10", "v3_split", v3_wy_backward, v3_wy_backward_work },
    { "10", "v1_column", v1_wy_backward<bf16>, v1_wy_backward_work },
    { "11", "v2_pieces", v2_merge_backward, NULL },
#ifdef KCP_HOPPER
    { "04", "v3_group_sm90", v3_chunk, NULL },
    { "04", "v4_rows_sm90", v4_chunk, NULL },
    { "05", "v3_group_sm90", v3_affine, NULL },
    { "09", "v3_rows_sm90", v3_chunk_backward, NULL },
    { "11", "v3_group_sm90", v3_merge_backward, NULL },
#endif
};

// The kernel of a stage that the row names; NULL: it names none, or one not here.
static inline const struct stage_kernel *stage_kernel_of(const struct kcp_path *p,
                                                         const char *key)
{
    char name[40];
    if (!kcp_path_word(p, key, name, sizeof name)) return NULL;
    for (const struct stage_kernel &k : stage_kernels)
        if (!strcmp(k.key, key) && !strcmp(k.name, name)) return &k;
    return NULL;
}

// The kernels that the row of this call strings together. Without a row, or with one
// that names what is not here, path is NULL.
static inline struct stages stages_v2(const char *stage, const char *kernel,
                                      const void *args)
{
    static const char *const keys[] = { "02", "03", "04", "05", "09", "10", "11" };
    struct stages t = {};
    int (**const run[])(void *) = { &t.gate, &t.wy, &t.chunk, &t.affine,
                                    &t.chunk_backward, &t.wy_backward,
                                    &t.merge_backward };
    char word[40];
    t.name = kernel;
    t.path = kcp_path_of(stage, kernel, KCP_BF16, args);
    for (int i = 0; i < 7 && t.path; i++) {
        const struct stage_kernel *k = stage_kernel_of(t.path, keys[i]);
        if (k) *run[i] = k->run;
        if (k && k->work) (i == 0 ? t.gate_work : t.wy_backward_work) = k->work;
        if (!k && kcp_path_word(t.path, keys[i], word, sizeof word)) t.path = NULL;
    }
    return t;
}

#endif
