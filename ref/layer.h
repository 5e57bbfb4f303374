/* layer.h -- runs a layer from an application: forward, backward, sizes of buffers.
 * Book: chapter 08.
 *
 * The caller owns all arrays, the workspace, saved block, plan, comm and stream. On
 * a GPU every array of an args struct is in GPU memory (plan, comm and ops are host
 * structs). A call puts work on args->stream, allocates nothing and returns, so a CUDA
 * graph may capture the call. A call blocks only if ranks share a GPU, or, outside of
 * captures, if its options or plan are new to comm, because then ranks compare them.
 * ACTV arrays (kcp.h) have the type layer->storage. No function prints or exits. */
#ifndef KCP_LAYER_H
#define KCP_LAYER_H

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* The table of paths (ref/core/paths.def, printed by kcp-check --paths) lists kernels,
 * best first. This struct has a kernel (variant) per stage. From that kernel's first
 * row on, a call searches the table for a row (path) that supports the call, and runs
 * the row's kernel. `forward` and `backward` must use the same saved-block format. */
struct kcp_layer {
    enum kcp_storage storage;
    enum kcp_where where;
    const struct kcp_mapops *ops;
    const struct kcp_variant *forward, *backward, *conv;
    const struct kcp_variant *family, *scan;     /* of chapter 16; of chapter 15 */
};

/* Sets the layer to the references of chapters 08 and 13 to 16: double, on the host. */
void kcp_layer_ref(struct kcp_layer *layer);
/* Sets the layer to the GPU kernels of a storage (KCP_BF16 or KCP_F32). Each call
 * searches the table of paths. If `name` ("v1_stages") is not NULL, forward starts at
 * the first row of kernel `name`, and so does backward if its kernel `name` reads the
 * saved block. Otherwise the search starts at the table's first row. Needs no GPU.
 * Returns KCP_NA if built without CUDA. If `name` is unknown, returns KCP_BAD, and
 * `why` (may be NULL) lists the names. */
int  kcp_layer_gpu(struct kcp_layer *layer, enum kcp_storage storage,
                   const char *name, char *why, size_t n);

/* Sets these members of `call` for this rank: T, N, NS, NC, C, R, r, plan, comm, ops.
 * `call` is the beginning of an args struct. comm may be NULL if R is 1. The caller
 * sets H, HV, K, V, KG, the options, the stream, and the grid cu [NS+1], cn [NS+1], sc
 * [NC]. plan->ctx[r] contains the grid on the host. A GPU needs a copy. */
void kcp_layer_call(const struct kcp_layer *layer, struct kcp_call *call,
                    const struct kcp_plan *plan, struct kcp_comm *comm);

/* These functions return the bytes of the saved block or of a workspace (0: no bytes
 * are needed, or a size or the plan is wrong). Pass arrays that lack 16-byte alignment;
 * other arrays may be NULL. But a->saved (of a convolution: x0, xt, dxt, dx0, dweight,
 * dbias) must be NULL if and only if it is NULL in the later call. Layers on a stream
 * may share a workspace. Each layer needs a separate saved block until backward ran. */
size_t kcp_layer_saved(const struct kcp_layer *layer, const struct kcp_call *call);
size_t kcp_layer_forward_work(const struct kcp_layer *layer,
                              const struct kcp_forward *a);
size_t kcp_layer_backward_work(const struct kcp_layer *layer,
                               const struct kcp_backward *a);
size_t kcp_layer_conv_work(const struct kcp_layer *layer, const struct kcp_conv *a);

/* These functions run stages 08, 13 and 14 on this rank. Shapes and equations are in
 * stages/NN.def. Collective: every rank of the plan, even a rank without tokens,
 * makes the call with the same options. If a->saved is NULL, forward saves nothing,
 * so backward is impossible. KCP_BAD: an array is missing, `work` or `saved` is too
 * short, or the grid is not the plan's grid. KCP_NA: no path supports this shape.
 * KCP_CUDA: a launch failed. KCP_COMM: comm->lost names the failed rank. KCP_MISMATCH:
 * the saved block has other sizes, options or format than this call. On a GPU, the call
 * returns KCP_OK in that case, and all gradients except dh0 become NaN. */
int kcp_layer_forward(const struct kcp_layer *layer, struct kcp_forward *a);
int kcp_layer_backward(const struct kcp_layer *layer, struct kcp_backward *a);
int kcp_layer_conv(const struct kcp_layer *layer, struct kcp_conv *a);

/* Runs n convolutions (1 to KCP_CONVS), e.g. of q, k and v, and gives the same bits as
 * n calls of kcp_layer_conv. The calls must have the same plan, comm, pass and stream,
 * and each call needs a separate `work`. No call may read an array that another call
 * writes. On a GPU, one launch computes all n convolutions if their Wc is the same and
 * path conv_tokens supports each call. Backward over several ranks has one launch per
 * call. Errors are as above. */
enum { KCP_CONVS = 3 };
int kcp_layer_convs(const struct kcp_layer *layer, struct kcp_conv *const *a, int n);

/* ---- related models: DPLR (RWKV-7), GDN-2 and GLA by struct kcp_family, chapter 16;
 * Spike-KDA by struct kcp_scan, chapter 15
 *
 *   S <- M_c S + h_c       o = scale S^T q       M_c and h_c depend on a->model
 *
 * Each function runs the pass a->pass. Backward reads the inputs of forward again.
 * Shapes are in stages/16.def and 15.def, equations are in chapters 15, 16. KG is K,
 * and Spike-KDA has scale 1. The caller allocates `work`, the arrays of this rank's
 * tokens, and the states of all sequences. A rank writes only the states that it
 * owns. Forward of kcp_family saves the initial states in h_kept, which has
 * kcp_layer_family_kept() bytes. If h_kept is NULL, backward exchanges the states
 * again. All plans and forms of the exchange are supported. M of GLA is diagonal, so
 * GLA sends K numbers of M instead of K^2. Errors are as above. */
size_t kcp_layer_family_work(const struct kcp_layer *layer,
                             const struct kcp_family *a);
size_t kcp_layer_family_kept(const struct kcp_layer *layer,
                             const struct kcp_call *call);
size_t kcp_layer_scan_work(const struct kcp_layer *layer, const struct kcp_scan *a);
int kcp_layer_family(const struct kcp_layer *layer, struct kcp_family *a);
int kcp_layer_scan(const struct kcp_layer *layer, struct kcp_scan *a);

/* Returns the name of the path that a forward or backward call would run. Returns NULL
 * if no path supports the call, or if the layer's variants are not in the table. */
const char *kcp_layer_path(const struct kcp_layer *layer, const void *args,
                           int backward);

/* Returns 1 if calls with these options run a plain path, i.e. a program of stages,
 * which takes many times as long as a fast kernel: in forward or, if `saves` is 1, in
 * backward. Returns 0 if not, and KCP_PLAIN_UNKNOWN on a host or without a GPU. If 1,
 * `why` (n bytes) names the path and what a fast path needs: "forward_plain: g is f32,
 * expected bf16". The function reads the layer's storage and the call's model, types,
 * K, V, C and options, and the GPU's architecture, but not T, N, NS, NC, R, r, plan or
 * comm. So it returns the same on all ranks. It assumes arrays aligned to 16 bytes. */
enum { KCP_PLAIN_UNKNOWN = -1 };
int kcp_layer_plain(const struct kcp_layer *layer, const struct kcp_call *call,
                    int saves, char *why, size_t n);

/* ---- variants linked into this program or library
 *
 * Writes to `out` up to `max` variants of `stage` ("05", "5" or "05_affine"; NULL: any)
 * whose name is `name` (NULL: any), and returns their number. A stage's mutants come
 * first, then its other variants by name (v1..., v2...), so its newest one is last. */
int kcp_variants(const char *stage, const char *name, const struct kcp_variant **out,
                 int max);
const struct kcp_stage *kcp_stage_find(const char *name);  /* NULL: none */

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
