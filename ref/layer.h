/* layer.h -- a whole layer called from an application: ranks, sizes, forward, backward.
 *
 * Book: chapter 08.  Checked by: tests/08_forward/layer.c, tests/cli/examples.sh.
 * Next: book/examples/kda.c, to copy.
 *
 * The caller owns everything: arrays, workspace, saved block, plan, comm, stream. On a
 * GPU every array of an args struct is the GPU's (plan, comm and ops are the host's); a
 * call puts work on args->stream and comes back: it allocates nothing, and waits for
 * nothing but comm, which waits only where ranks share a GPU. A graph may capture it.
 * Numbers of storage ACTV (stages.h) are of layer->storage; ACC are fp32, of a KCP_F64
 * layer double. Every function returns a kcp_status or bytes; none prints or exits.
 */
#ifndef KCP_LAYER_H
#define KCP_LAYER_H

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Whose code a layer is: the kernels with which its rows of the table of paths begin
 * (ref/core/paths.def, kcp-check --paths). A call takes the first row from there on
 * that fits it: forward and backward meet by the format of the saved block. */
struct kcp_layer {
    enum kcp_storage storage;
    enum kcp_where where;
    const struct kcp_mapops *ops;
    const struct kcp_variant *forward, *backward, *conv;
    const struct kcp_variant *family, *scan;     /* of chapters 16 and 15 */
};

/* The references of chapters 08, 13 to 16: double, on the host. */
void kcp_layer_ref(struct kcp_layer *layer);
/* The GPU's of a storage (KCP_BF16, KCP_F32): from name's rows on, as "v1_stages";
 * NULL: all rows. KCP_NA: this program has none (built without CUDA). KCP_BAD: no such
 * name; why (may be NULL) lists those there are. There may be no GPU yet. The name is
 * forward's and backward's; conv, family and scan begin with their first rows. */
int  kcp_layer_gpu(struct kcp_layer *layer, enum kcp_storage storage,
                   const char *name, char *why, size_t n);

/* Fills the call that opens every args struct with what this rank has: T, N, NS,
 * NC, C, R, r of plan (chapter 06), plan, comm, ops. comm may be NULL when R is 1. Left
 * to the caller: H, HV, K, V, KG, the options, the stream; and the grid cu [NS+1],
 * cn [NS+1], sc [NC]: plan->ctx[r] has it on the host, a GPU wants a copy. */
void kcp_layer_call(const struct kcp_layer *layer, struct kcp_call *call,
                    const struct kcp_plan *plan, struct kcp_comm *comm);

/* Bytes of the block that forward leaves and backward reads, and of the workspaces, by
 * sizes and options. Arrays need not be there yet, but a->saved is as it will be at the
 * call; of a convolution x0, dxt, dweight, dbias: NULL or any address. 0: none, or no
 * plan. Layers that follow one another on one stream may share a workspace; each keeps
 * a saved block of its own until its backward has run. */
size_t kcp_layer_saved(const struct kcp_layer *layer, const struct kcp_call *call);
size_t kcp_layer_forward_work(const struct kcp_layer *layer,
                              const struct kcp_forward *a);
size_t kcp_layer_backward_work(const struct kcp_layer *layer,
                               const struct kcp_backward *a);
size_t kcp_layer_conv_work(const struct kcp_layer *layer, const struct kcp_conv *a);

/* Chapters 08, 13 and 14 on this rank: shapes and equations stand at the structs, in
 * stages.h. Every rank of the plan calls it, with the same options; a rank without
 * tokens too. a->saved NULL: forward leaves nothing, and there is no way back.
 * KCP_BAD: an array is missing, work or saved is too short, or the grid is not the
 * plan's. KCP_NA: no path takes this shape. KCP_CUDA: a launch was refused.
 * KCP_COMM: comm->lost names the rank. KCP_MISMATCH: the block is of another format
 * or another call; a GPU does not wait for that check: its gradients are NaN. */
int kcp_layer_forward(const struct kcp_layer *layer, struct kcp_forward *a);
int kcp_layer_backward(const struct kcp_layer *layer, struct kcp_backward *a);
int kcp_layer_conv(const struct kcp_layer *layer, struct kcp_conv *a);

/* ---- the relatives: DPLR (RWKV-7), GDN-2 and GLA by struct kcp_family, chapter 16;
 * Spike-KDA by struct kcp_scan, chapter 15
 *
 *   S <- M_c S + h_c       o = scale S^T q       which M_c and h_c: a->model
 *
 * One call is both passes, as a->pass says; backward reads the same inputs again.
 * Shapes stand at the fields, in stages/16.def and 15.def, equations in chapters 15
 * and 16; KG is K, and Spike-KDA takes scale 1. The caller allocates: shards of
 * token arrays, states by global sequence (a rank writes the rows that it owns), work.
 * h_kept of kcp_family, kcp_layer_family_kept() bytes, carries initial states from
 * forward to backward; NULL: backward exchanges them once more. Any plan, owners and
 * form; GLA's M is diagonal, so that K numbers of it travel where others send K^2.
 * Errors are those above. kcp_layer_family_work and _scan_work: as the others. */
size_t kcp_layer_family_work(const struct kcp_layer *layer,
                             const struct kcp_family *a);
size_t kcp_layer_family_kept(const struct kcp_layer *layer,
                             const struct kcp_call *call);
size_t kcp_layer_scan_work(const struct kcp_layer *layer, const struct kcp_scan *a);
int kcp_layer_family(const struct kcp_layer *layer, struct kcp_family *a);
int kcp_layer_scan(const struct kcp_layer *layer, struct kcp_scan *a);

/* The name of the path that a forward, or backward, call would take; NULL: none, or a
 * layer of variants that the table does not know. */
const char *kcp_layer_path(const struct kcp_layer *layer, const void *args,
                           int backward);

/* ---- variants, as the linker found them in this program or library
 * Those of a stage ("05", "5" or "05_affine"; NULL: of all) and a name (NULL: of any),
 * sorted by stage, mutants first, then by name: the last is the newest. Returns how
 * many were written to out, max at most. */
int kcp_variants(const char *stage, const char *name, const struct kcp_variant **out,
                 int max);
const struct kcp_stage *kcp_stage_find(const char *name);  /* as there; NULL: none */

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
