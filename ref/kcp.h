/* kcp.h -- the library's types: status, fields, plan, saved block, variants.
 * Book: chapter 00 (the names of sizes) and the chapter named at each struct.
 *
 * Tensors are dense and row major. If a tensor has a token index, this index is first.
 * A stage works on segments, which are runs of tokens of one sequence on one rank
 * (chapter 06). The caller owns every array. */
#ifndef KCP_H
#define KCP_H

#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* libkcp.so exports only the functions that the installed headers declare. */
#pragma GCC visibility push(default)

/* Programs print KCP_NA as n/a. */
enum kcp_status {
    KCP_OK = 0,
    KCP_NA,          /* this variant does not support this shape or option */
    KCP_BAD,         /* an argument is wrong */
    KCP_NO_MEMORY,
    KCP_COMM,        /* another rank, or the network, failed */
    KCP_CUDA,        /* a CUDA call failed */
    KCP_MISMATCH,    /* the saved block or another rank's call does not match */
};

/* Returns the version of the loaded library, e.g. "3.0.0", which may differ from the
 * version of the header. */
const char *kcp_version(void);

/* Returns the reason of the last failure on this thread, e.g. "03_wy: HV: found 3,
 * expected a multiple of H, which is 2", or "" if only the status is known. The text is
 * valid until this thread calls another function of the library. */
const char *kcp_why(void);
/* Sets the function that receives notices, one line per call, from any thread. NULL,
 * the default, drops notices. A notice is not a failure. For example, a notice says
 * that a slower path runs because this GPU does not support the faster path. The
 * library prints nothing. */
void kcp_notices(void (*to)(const char *line));

/* These functions describe the structs of the loaded library to bindings in other
 * languages. kcp_struct_size returns the bytes of struct `name` ("kcp_call"), or 0 if
 * there is no such struct. kcp_struct_member sets *at to a member's offset and *kind to
 * 'i' (int or enum), 'l' (int64_t), 'z' (size_t), 'd' (double) or 'p' (pointer).
 * kcp_enum_value sets *value to the value of a constant ("KCP_GATE_RAW"). The last two
 * functions return KCP_BAD if a name is unknown. */
size_t kcp_struct_size(const char *name);
int    kcp_struct_member(const char *of, const char *name, size_t *at, char *kind);
int    kcp_enum_value(const char *name, int *value);

/* The models KCP_KDA, KCP_GDN, ..: models.def describes the columns of kcp_models[]. */
#include "models.def"
#define KCP_MODEL_NUMBER(NAME, ...) KCP_##NAME,
enum kcp_model { KCP_MODEL_LIST(KCP_MODEL_NUMBER) };
#define KCP_MODEL_COUNT(...) + 1
enum { KCP_MODELS = KCP_MODEL_LIST(KCP_MODEL_COUNT) };
enum kcp_kind { KCP_LAYER, KCP_FAMILY };
enum kcp_gates { KCP_CHANNEL, KCP_HEAD };
enum kcp_map { KCP_DENSE, KCP_DIAGONAL };
struct kcp_model_row {
    const char *name, *title;
    enum kcp_kind kind;
    const char *reads;
    enum kcp_gates gates;
    enum kcp_map map;
};
extern const struct kcp_model_row kcp_models[KCP_MODELS];
enum kcp_pass  { KCP_FORWARD, KCP_BACKWARD };
enum kcp_gate_form { KCP_GATE_RAW, KCP_GATE_SOFTPLUS, KCP_GATE_BOUNDED };
enum kcp_beta_form { KCP_BETA_RAW, KCP_BETA_SIGMOID, KCP_BETA_SIGMOID2 };
enum kcp_act   { KCP_ACT_NONE, KCP_ACT_SILU };
enum kcp_save  { KCP_RECOMPUTE, KCP_SAVE_ALL };                    /* chapter 12 */
enum kcp_layout { KCP_KV, KCP_VK };          /* of the caller's states h0 .. dht */
enum kcp_type  { KCP_AS_Q, KCP_TYPE_F64, KCP_TYPE_F32, KCP_TYPE_BF16, KCP_TYPE_F16 };
enum kcp_walk  { KCP_AUTO, KCP_SEQUENTIAL, KCP_BLELLOCH };     /* stages/call.def */

/* Bits of kcp_call.part. KCP_LOCAL and KCP_REVERSE select the parts of stage 09. With
 * KCP_SUM_LOCAL, stages 13 to 15 return this rank's gradients of parameters, for a
 * framework that adds the gradients over the ranks. */
enum { KCP_LOCAL = 1, KCP_REVERSE = 2, KCP_SUM_LOCAL = 4 };

/* ---- fields
 * The args struct and the field table of a stage are generated from one list,
 * KCP_FIELD(io, when, name, shape, store) in stages/NN.def.
 *   io     IN, OUT; BIN, BOUT: only in the backward pass; FOUT: only in forward
 *   when   ALWAYS: NULL only if empty; MAYBE: may be NULL; BY_MODEL: as ALWAYS if the
 *          model has the field (models.def), else NULL
 *   shape  names of sizes (chapter 00), separated by blanks; also "NS+1", "V+K"
 *   store  ACTV: the call's q_type, by default the variant's storage, or double in a
 *          double variant; ACC: fp32, or double in a double variant;
 *          MAP: as ACC, with h_ext in columns [0,V) and M in [V,V+K); I32, I64;
 *          G, BETA: the call's g_type and beta_type, or double in a double variant
 * A variant must not change inputs, nor output elements that the reference does not
 * write. */
enum kcp_io    { KCP_IN, KCP_OUT, KCP_BIN, KCP_BOUT, KCP_FOUT };
enum kcp_when  { KCP_ALWAYS, KCP_MAYBE, KCP_BY_MODEL };
enum kcp_store { KCP_ACTV, KCP_ACC, KCP_MAP, KCP_I32, KCP_I64, KCP_G, KCP_BETA };

struct kcp_field {
    const char *name, *shape;
    enum kcp_io io;
    enum kcp_when when;
    enum kcp_store store;
    size_t at;                     /* offset of the pointer in the args struct */
};

#include "stages.h"

/* ---- chapter 06: the plan
 * A plan is a table of segments and their owners. The tokens are divided into ranges,
 * and a rank may own any of them. By default, rank r owns the r-th of R ranges. The
 * segments depend only on cu_seqlens, R, the ranges, their owners, and L. The table has
 * a rank's segments in token order, and the rank's shard has their rows in this order.
 * In a *classic* plan (L = 0), a segment is the part of a sequence in one range. In a
 * *canonical* plan (L > 0), segments are cut at multiples of L tokens from the start of
 * their sequence, and boundaries of ranges are rounded down to such cuts. The *shard
 * order* of tokens is the concatenation of the shards, rank 0 first. In a contiguous
 * plan, the shard order is the token order. */
//> segment
struct kcp_segment {
    int n;                     /* global sequence */
    int rank;                  /* owner */
    int64_t begin, end;        /* global tokens */
    int first, last;           /* 1: first (last) segment of its sequence */
    int prev, next;            /* neighbours: indices in plan->seg; -1: none */
    int pre, post;             /* owner changes in the sequence before (after) it */
    int at;                    /* index in token order: plan->order[at] */
};
//< segment

/* One rank's part of the plan, called CP context in other implementations.
 * is_first_rank and the pre_ members describe the rank's first segment. is_last_rank
 * and post_num_ranks describe its last segment. If a rank owns several ranges,
 * pre_num_ranks and post_num_ranks count how often the owner changes along the
 * sequence, and cu_seqlens lists runs of consecutive tokens, not sequences. */
struct kcp_context {
    int64_t begin, end;        /* the rank's rows, in shard order */
    int seg0, NS, NC;          /* index of first segment; numbers of segments, chunks */
    int n_local;               /* number of local sequences that are not empty */
    int *cu_seqlens;           /* [n_local+1] their local boundaries */
    int *seq;                  /* [n_local] their global numbers */
    int *cu, *cn, *sc;         /* [NS+1], [NS+1], [NC]: as in stages/grid.def */
    int is_first_rank, pre_num_ranks;   /* of the rank's first segment */
    int is_last_rank, post_num_ranks;   /* of the rank's last segment */
    int conv1d_kernel_size;
    int64_t pre_num_conv_tokens;        /* the sequence's tokens before segment seg0 */
};

struct kcp_plan {
    int N, R, C, S;            /* N sequences, R ranks, C rows per chunk, S segments */
    int64_t T, L;              /* T tokens; L: length of a canonical segment, or 0 */
    int64_t *cu_seqlens;       /* [N+1] */
    int64_t *cuts;             /* [R+1] boundaries of the shards, in shard order */
    int moved;                 /* number of boundaries that canonical mode moved */
    struct kcp_segment *seg;   /* [S] segments, rank by rank */
    int *h0_rank, *ht_rank;    /* [N] owners of the rows of h0 and dh0; of ht and dht */
    struct kcp_context *ctx;   /* [R] */
    int crossing;              /* 1: some sequence has tokens on several ranks */
    uint64_t digest;           /* hash, to compare the plans of all ranks */
    int *order;                /* [S] segments in token order */
    int scattered;             /* 1: the shard order is not the token order */
    int B;                     /* B ranges: owner[b] owns bound[b] .. bound[b+1]-1 */
    int64_t *bound;            /* [B+1]; no range is empty, adjacent owners differ */
    int *owner;                /* [B] */
};

/* A table of owners: rank owner[b] owns tokens bound[b] .. bound[b+1]-1, b = 0 .. B-1.
 * `bound` starts at 0, ends at T and does not decrease. */
struct kcp_owners { int B; int64_t *bound; int *owner; };

/* Allocates a table of owners of a kind that softmax attention uses. KCP_ZIGZAG cuts
 * each sequence of n tokens into 2 R ranges. Range i begins at floor(i n / 2R). Rank r
 * owns ranges r and 2R-1-r, so that a causal mask gives all ranks the same work.
 * KCP_STRIPED cuts each sequence into stripes of `stripe` tokens. Rank i mod R owns
 * stripe i. If the result is KCP_BAD, *why is the reason. */
enum kcp_spread { KCP_CONTIGUOUS, KCP_ZIGZAG, KCP_STRIPED };
int  kcp_owners_make(struct kcp_owners *owners, enum kcp_spread spread, int N,
                     const int64_t *cu_seqlens, int R, int64_t stripe,
                     const char **why);
void kcp_owners_free(struct kcp_owners *owners);

/* Makes a plan of contiguous ranges. Rank r's range begins at cuts[r] or, if cuts is
 * NULL, at floor(r T / R). Wc, the width of the convolution, is copied to the contexts.
 * On KCP_BAD, *plan is NULL and *why (`why` may be NULL) is a static text with the
 * reason. */
int  kcp_plan_make(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                   const int64_t *cuts, int64_t L, int C, int Wc, const char **why);
/* Makes a plan from any table of owners, which is copied. */
int  kcp_plan_owned(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                    const struct kcp_owners *owners, int64_t L, int C, int Wc,
                    const char **why);
void kcp_plan_free(struct kcp_plan *plan);
/* Overwrites `plan` with plan `next`. Args structs that point into `plan` stay valid,
 * but copies of a rank's cu, cn, sc become outdated. The lengths of sequences may
 * differ. N, R, C, T, L, each rank's number of tokens, segments and chunks, the owners
 * of states and the neighbours of segments must be equal. Otherwise returns KCP_NA,
 * *why names the difference, and `plan` is unchanged. All ranks must make this call. */
int  kcp_plan_refresh(struct kcp_plan *plan, const struct kcp_plan *next,
                      const char **why);
/* kcp_plan_take copies rank r's rows (row_bytes per token) from the tensor of all
 * tokens to the shard. kcp_plan_give copies the shard back. kcp_plan_token returns the
 * global token of row i in shard order. All arrays are in host memory. */
void kcp_plan_take(const struct kcp_plan *plan, int r, size_t row_bytes,
                   const void *whole, void *shard);
void kcp_plan_give(const struct kcp_plan *plan, int r, size_t row_bytes,
                   const void *shard, void *whole);
int64_t kcp_plan_token(const struct kcp_plan *plan, int64_t i);
/* Returns, as bits KCP_WANT_*, the parts of global segment j's map that the exchange
 * needs. h_ext is needed unless the segment ends (backward: starts) its sequence. M is
 * needed only if the sequence continues before and after the segment. */
int  kcp_plan_want(const struct kcp_plan *plan, int j, int backward);

/* ---- chapter 12: the saved block
 *
 * The block is in the caller's memory and starts with struct kcp_saved. Every tensor is
 * dense and begins at the offset item.at, a multiple of 64 bytes. To write tensor "q"
 * directly to the block, call kcp_saved_begin, then kcp_saved_at(saved, "q"). Blocks of
 * KCP_FORMAT_FACTORS contain q, k, rstd_q, rstd_k, beta,
 * Aqk, A and h_kept; with reuse_M also `maps` (of this rank) and `kept` (maps of all
 * ranks); with KCP_SAVE_ALL also G, w, u, v_new, h, and for KDA qg and kg. */
struct kcp_saved_item { char name[16]; uint64_t at, bytes; };
struct kcp_saved {
    char magic[8], writer[40];         /* "ref" or the variant that wrote the block;
                                          used only in messages */
    uint32_t version, items;
    int32_t model, save, reuse_M, form, l2norm, actv, acc;    /* bytes per number */
    int32_t R, r, NS, NC, H, HV, K, V, C, KG;
    int64_t T, L;
    uint64_t bytes;                    /* of the whole block */
    struct kcp_saved_item item[20];
    int32_t format, format_version;    /* ref/core/saved.def */
    int32_t g_type, beta_type;         /* enum kcp_type, never KCP_AS_Q */
};
size_t kcp_saved_bytes(const struct kcp_forward *a);         /* the reference's */
int    kcp_saved_states(const struct kcp_call *a);           /* rows of h_kept */
int    kcp_saved_begin(void *saved, size_t bytes, const struct kcp_call *a,
                       const char *writer, size_t actv, size_t acc);
void  *kcp_saved_at(const void *saved, const char *name);
/* kcp_saved_bytes and kcp_saved_begin handle only KCP_FORMAT_FACTORS, the references'
 * format. For any format, kcp_saved_layout_of fills in a block's header, and
 * kcp_saved_check_of checks that a block belongs to call `a`. */
enum { KCP_FORMAT_FACTORS = 1, KCP_FORMAT_CHUNKS, KCP_FORMAT_STEPS,
       KCP_FORMAT_ADAPTED };
int    kcp_saved_layout_of(struct kcp_saved *s, const struct kcp_call *a, int format,
                           const char *writer, size_t actv, size_t acc);
int    kcp_saved_check_of(const void *saved, size_t bytes, const struct kcp_call *a,
                          int format, const char *reader, size_t actv, size_t acc,
                          char *why, size_t n);

/* ---- stages and variants
 *
 * Facts of a stage, bits of kcp_stage.facts. */
enum kcp_fact {
    KCP_TAKES_LAYER = 1,           /* supports the models of kind KCP_LAYER */
    KCP_TAKES_FAMILY = 2,          /* supports the models of kind KCP_FAMILY */
    KCP_BY_TOKEN = 4,              /* 01: the token recurrence */
    KCP_FOLDS = 8,                 /* 07: its segments are ranks, so R is NS */
    KCP_SAVES = 16,                /* 08: writes the saved block */
    KCP_LOADS = 32,                /* 13: reads the saved block */
    KCP_TWO_PARTS = 64,            /* 09: runs the parts of call.part */
    KCP_SUMS = 128,                /* 13 to 15: has gradients of parameters */
    KCP_CONVOLVES = 256,           /* 14: has channels instead of heads and states */
    KCP_SPIKES = 512,              /* 15: has gates from spikes */
    KCP_KEEPS = 1024,              /* 16: forward keeps initial states in h_kept */
    KCP_SUMS_GATES = 2048,         /* 10: dg sums dG over the rest of a chunk */
};
struct kcp_stage {
    const char *name;                /* "03_wy" */
    const struct kcp_field *fields;
    int nfields;
    size_t args;                     /* sizeof the args struct */
    int ranks;                       /* 1: runs on several ranks, using comm */
    int (*ref)(void *args);
    int (*oracle)(void *args);       /* stages 15, 16: token recurrence; else NULL */
    int facts;                       /* bits of enum kcp_fact */
};
extern const struct kcp_stage kcp_stages[];
extern const int kcp_nstages;

enum kcp_storage { KCP_F64, KCP_F32, KCP_BF16 };
/* Returns the type of an element of a field that is stored as `store`, in call c of a
 * variant of this storage, and the bytes of an element. The type of integers is
 * KCP_AS_Q. If c is NULL, kcp_type_of returns KCP_AS_Q and kcp_bytes_of 0. */
enum kcp_type kcp_type_of(const struct kcp_call *c, enum kcp_store store,
                          enum kcp_storage storage);
size_t kcp_bytes_of(const struct kcp_call *c, enum kcp_store store,
                    enum kcp_storage storage);
enum kcp_where { KCP_HOST, KCP_DEVICE };

/* Verifies a call without running the stage: sizes, options, missing arrays, plan and
 * comm. If arrays are on the host, also verifies the values of cu, cn, sc, cu_seqlens,
 * `want` and `range`. `stage` is "03", "3" or "03_wy". References, layer calls and
 * variants make this check themselves. On KCP_BAD, kcp_why() returns the reason. */
int kcp_check_call(const char *stage, enum kcp_where where, const void *args);

//> variant
/* A variant is an implementation of a stage. A variant named "mutant_..." is wrong on
 * purpose: the judge, the project's test program, must reject it. */
struct kcp_variant {
    const char *stage, *name, *why;  /* "07_merge", "v1_column", one line of summary */
    enum kcp_storage storage;
    enum kcp_where where;
    const char *shapes;              /* supported shapes, for messages */
    int (*run)(void *args);          /* args: the stage's args struct */
    size_t (*work)(const void *args);/* bytes of args->work; NULL: none */
    int types;                       /* 1: run() supports every g_type and beta_type;
                                        0: g_raw and beta_raw must have q_raw's type.
                                        For kernels in the table of paths, see there */
    /* Runs n calls with the same plan, pass and stream with one launch. Returns KCP_NA,
     * before any work, if the calls cannot share a launch. NULL: call run() n times. */
    int (*run_many)(void *const *args, int n);
};

/* A variant, and a function that checks the call (checked.c) and runs the variant. */
struct kcp_checked { const struct kcp_variant *variant; int (*run)(void *args); };
int kcp_checked_run(const struct kcp_variant *v, void *args);

/* Defines variant `ident` and adds it to the list of variants, a linker section. */
#define KCP_VARIANT(ident)                                                            \
    extern const struct kcp_variant ident;                                            \
    static int ident##_checked(void *args) { return kcp_checked_run(&ident, args); }  \
    __attribute__((used, section("kcp_checked")))                                     \
    const struct kcp_checked ident##_with = { &ident, ident##_checked };              \
    __attribute__((used, section("kcp_variants")))                                    \
    const struct kcp_variant *const ident##_at = &ident;                              \
    const struct kcp_variant ident
//< variant

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
