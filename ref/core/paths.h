/* paths.h -- selects the kernel of a call by a query of the rows of paths.def.
 * Book: chapter 08, "Paths".
 *
 * A row has a kernel's name instead of a pointer to the kernel, so that ref/ does not
 * depend on other folders. Layers, the judge and the kernels query the same rows, so
 * the shapes that a kernel supports are written once. */
#pragma once

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kcp_path {
    const char *name;              /* "forward_kda_windows" */
    const char *stage;             /* "08_forward" */
    const char *arch;              /* "host", "sm_90a", "sm_80+" (and later) */
    enum kcp_storage storage;
    const char *K, *V, *C;         /* "64 128", "1..256", "any" */
    const char *model;             /* "kda gdn", "any" */
    const char *condition;         /* C code, e.g. "aligned && NC >= 4" */
    const char *kernel;            /* the variant's name */
    int format;                    /* saved-block format; 0: the row uses no block */
    const char *geometry;          /* "columns=64 chunks=1 ... 04=v2_warp" */
    const char *within;            /* a branch's path; "": any path; NULL: no branch */
};
extern const struct kcp_path kcp_paths[];
extern const int kcp_npaths;

/* ---- the device that runs a call */
struct kcp_device {
    int arch;                      /* 90 */
    int sms;
    int64_t smem;                  /* bytes of shared memory that a block may have */
    int code;                      /* 1: this program has code for that GPU */
    int assumed;                   /* 1: the values are those of an H200 */
    int bandwidth;                 /* of memory, GB/s; 0: not known, as an H200 */
};
/* Sets *d to the properties of the calling thread's GPU. With KCP_ARCH=sm_80 in the
 * environment, a newer GPU counts as sm_80. Returns KCP_NA if there is no GPU or the
 * program was built without CUDA. If KCP_ARCH is not an architecture, sends a notice
 * and returns KCP_BAD. */
int kcp_device_here(struct kcp_device *d);
/* Returns the properties of an H200, for use on a machine without a GPU. */
struct kcp_device kcp_device_assumed(void);

/* ---- a query */
struct kcp_query {
    const char *stage;
    enum kcp_storage storage;
    const struct kcp_call *call;
    const void *args;              /* the args struct of the call; or NULL */
    const char *args_of;           /* the stage of `args`; NULL: same as `stage` */
    const struct kcp_device *device;     /* NULL: the host */
    const char *kernel;            /* start at this kernel's first row; NULL: row 0 */
    int only;                      /* 1: only rows of `kernel` */
    int saved;                     /* stage 08: 1 if the call saves a block */
    int format;                    /* only rows of this format; 0: any format */
    int unlinked;                  /* 1: also rows whose variant is not linked */
};
/* Returns the first row that supports the call, among the rows that follow row `after`
 * (NULL: from q's first row). If no row does, returns NULL, and `why` (may be NULL) is
 * the reason. Else `why` is "", or names a better row that cannot run here. */
const struct kcp_path *kcp_path_find(const struct kcp_query *q,
                                     const struct kcp_path *after, char *why, size_t n);
/* A branch is a row for those calls of a path that are launched differently, e.g. with
 * wider blocks. Returns 1 if the call of q runs this branch. `row` is the path of the
 * call, or NULL if q's kernel has no path. */
int kcp_path_branches(const struct kcp_path *branch, const struct kcp_path *row,
                      const struct kcp_query *q);
/* Returns the row of this kernel that supports the call. If no row does, returns NULL,
 * and the kernel must return KCP_NA. */
const struct kcp_path *kcp_path_of(const char *stage, const char *kernel,
                                   enum kcp_storage storage, const void *args);
/* Writes to `out` whether the row can run on this machine: "here", or "not here: " and
 * the reason. */
void kcp_path_here(const struct kcp_path *p, const struct kcp_device *d, char *out,
                   size_t n);
/* Returns 1 if the table has rows for this kernel of this stage. */
int kcp_path_knows(const char *stage, const char *kernel);
/* Returns the saved-block format in this kernel's first row; 0: it uses no block. */
int kcp_path_format(const char *stage, const char *kernel);
/* Returns the variant that path p (NULL: none) names, or NULL if it is not linked. */
const struct kcp_variant *kcp_path_kernel(const struct kcp_path *p);
/* Returns the current name of a kernel, given its current or earlier name (paths.c). */
const char *kcp_path_alias(const char *stage, const char *kernel);
/* Writes to `out` the word that follows `key`= in a row's geometry. Returns the word's
 * length, or 0 if there is no such key. */
int kcp_path_word(const struct kcp_path *p, const char *key, char *out, size_t n);

/* Returns 1 if p is NULL or a program of stages, not a kernel of chapter 18. */
int kcp_path_is_plain(const struct kcp_path *p);
/* plain.c: returns 1 if calls with the options, types and head sizes of `call` run a
 * plain path on this device in forward or, if `saves` is 1, in backward. Then `why`
 * names the path and the values that must differ for a fast path. `unlinked`: as in
 * struct kcp_query. */
int kcp_plain(const struct kcp_call *call, enum kcp_storage storage,
              const struct kcp_device *device, int saves, int unlinked, char *why,
              size_t n);

/* ---- how the kernels of chapter 18 are launched
 *
 * Everything in this struct follows from the call and the device's values. cuda/host/
 * computes the struct (moves.h), for branches of the table and for the kernels' host
 * functions. */
struct kcp_launch {
    int entire;              /* 1: every segment is an entire sequence */
    int strips;              /* chunks per strip of the forward; 0: nothing is cut */
    int cut;                 /* 1: !entire || strips: there are maps and first states */
    int walk;                /* parts of a map (KCP_WANT_*) that a walk computes */
    int windows;             /* launches of forward's scan */
    double ratio;            /* chunks of launch i + 1 / chunks of launch i */
    int columns;             /* columns per block of forward's scan: 64 or 128 */
    int block_chunks;        /* chunks per block of the largest launch of factors */
    int64_t chains;          /* strips * value heads */
    int64_t stage_strips;    /* strips in a program of stages */
    int split;               /* 1: backward's scans run per strip */
    int reverse_columns[2];  /* columns per block in backward's launches of scans */
    int back_columns;        /* the larger of the two */
    int finish_blocks;       /* blocks of backward's kernel `finish` */
    int64_t finish_pairs;    /* (chunk, head) pairs per block of `finish` */
    int keeps_states;        /* kcp_keeps_states */
};
/* Returns 1 if a block saved for the call has the states. Only this reads `save`. */
static inline int kcp_keeps_states(const struct kcp_call *call)
{
    return call->save == KCP_SAVE_ALL;
}
/* Returns 1 if the call's plan and sizes can be used, as the call may be unchecked. */
int kcp_plan_fits(const struct kcp_call *call);
/* Returns the name of the first branch of path `row` that the call of q runs. If there
 * is none, or if the path is a program of stages, returns the name of the row. */
const char *kcp_path_launch(const struct kcp_path *row, const struct kcp_query *q);

/* ---- facts: the variables in conditions of paths.def and in sizes of saved.def. `T`
 * to `strip_chunks` are members of struct kcp_call. `kda` is 1 for model KDA. saved.def
 * explains `format`, `actv`, `acc`, `states`, `exchange`; paths.def has the rest. */
#define KCP_FACTS(F)                                                                   \
    F(T) F(N) F(NS) F(NC) F(R) F(H) F(HV) F(K) F(V) F(C) F(KG) F(D) F(Wc) F(blocks)    \
    F(l2norm) F(reuse_M) F(shift) F(strip_chunks) F(saved) F(save_all) F(aligned)      \
    F(all_aligned) F(crossing) F(entire) F(canonical) F(strips) F(chains) F(windows)   \
    F(walk) F(stage_strips) F(block_chunks) F(cut) F(columns) F(split) F(back_columns) \
    F(finish_pairs) F(sms) F(smem) F(kda) F(format) F(actv) F(acc) F(states)           \
    F(exchange) F(bounded) F(longest) F(g_as_q) F(g_f32) F(g_bf16) F(g_f16)            \
    F(beta_as_q) F(beta_f32) F(beta_bf16) F(beta_f16)
#define KCP_FACT_MEMBER(name) int64_t name;
struct kcp_facts { KCP_FACTS(KCP_FACT_MEMBER) };
/* Conditions are C expressions of local variables with these names. The variables have
 * 128 bits, so that products of three unchecked sizes do not overflow. */
#define KCP_FACT_LOCAL(name) const __int128 name = f->name; (void)name;
/* Returns the facts of a call, except `saved`, `aligned`, `all_aligned`, `format`,
 * `actv`, `acc`, `exchange` and the types of g and beta. If `device` is NULL, the call
 * runs on the host. */
struct kcp_facts kcp_facts_of(const struct kcp_call *call,
                              const struct kcp_device *device);

/* ---- adapt.c: calls of other sizes, which a kernel for other sizes can run
 * kcp_adapt sets *inner to the call whose K and V are 64 or 128 and equal, whose value
 * heads are parts of the call's value heads, and whose q is bf16.
 * kcp_adapt_path returns the path of such an inner call, whose arrays are aligned, or
 * NULL. */
void kcp_adapt(const struct kcp_call *call, struct kcp_call *inner);
const struct kcp_path *kcp_adapt_path(const struct kcp_call *inner, int backward,
                                      int saved);

/* ---- formats of the saved block, saved.def */
int kcp_format_version(int format);            /* 0 for an unknown format */
const char *kcp_format_name(int format);

#ifdef __cplusplus
}
#endif
