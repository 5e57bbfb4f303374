/* kcp.h -- the vocabulary: sizes, one args struct a stage, the plan, the saved block.
 *
 * Book: chapter 00 (every letter) and the chapter named at each struct.
 * Checked by: every file of tests/.  Next: ref/comm.h, the ranks.
 *
 * Tensors are dense, row major, tokens first. A stage sees stretches: a stretch is a
 * run of tokens of one sequence on one rank (chapter 06 makes them). Whoever calls
 * owns every array; nothing here keeps a pointer after it returns.
 */
#ifndef KCP_H
#define KCP_H

#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* libkcp.so shows what the installed headers declare, and hides the rest. */
#pragma GCC visibility push(default)

/* What a function returns. KCP_NA is "not my shape": reported as n/a, never as ok. */
enum kcp_status {
    KCP_OK = 0,
    KCP_NA,          /* this variant does not take this shape or this option */
    KCP_BAD,         /* an argument is wrong */
    KCP_NO_MEMORY,
    KCP_COMM,        /* another rank failed, or the wire did */
    KCP_CUDA,        /* the device refused */
    KCP_MISMATCH,    /* a saved block is of another format or another call */
};

/* "2.0.0": of the library that is loaded, not of the header. */
const char *kcp_version(void);

/* Why the last call on this thread that returned no KCP_OK did so, and names the field:
 * "03_wy: HV: found 3, expected a multiple of H, which is 2". "": it said nothing more
 * than its status. It needs no communicator, and stays until the next such call. */
const char *kcp_why(void);
/* The library prints nothing. What its user may want to know and is no failure, as a
 * slower path that stands in for one this GPU lacks, goes here, a line a time, from any
 * thread; NULL, as at first: nowhere. */
void kcp_notices(void (*to)(const char *line));

/* For other languages, which need not copy this file: how the loaded library lays out
 * its structs. Bytes of struct `name` ("kcp_call"), 0: none. Offset of a member and its
 * kind: 'i' int or enum, 'l' int64_t, 'z' size_t, 'd' double, 'p' pointer. The value of
 * an enum's name ("KCP_GATE_RAW"). KCP_BAD: no such name. */
size_t kcp_struct_size(const char *name);
int    kcp_struct_member(const char *of, const char *name, size_t *at, char *kind);
int    kcp_enum_value(const char *name, int *value);

enum kcp_model { KCP_KDA, KCP_GDN, KCP_DPLR, KCP_GDN2, KCP_GLA };  /* from 2: 16 */
enum kcp_pass  { KCP_FORWARD, KCP_BACKWARD };
enum kcp_gate_form { KCP_GATE_RAW, KCP_GATE_SOFTPLUS, KCP_GATE_BOUNDED };
enum kcp_beta_form { KCP_BETA_RAW, KCP_BETA_SIGMOID, KCP_BETA_SIGMOID2 };
enum kcp_act   { KCP_ACT_NONE, KCP_ACT_SILU };
enum kcp_save  { KCP_RECOMPUTE, KCP_SAVE_ALL, KCP_SAVE_LIGHT };  /* 12: the block */
enum kcp_layout { KCP_KV, KCP_VK };          /* of h0, ht, dh0, dht at the interface */
enum kcp_walk  { KCP_AUTO, KCP_SEQUENTIAL, KCP_BLELLOCH };         /* 15, 08 */

/* kcp_call.part: of 09 the passes that are wanted; of 13 to 15 whether the gradients of
 * parameters stay this rank's own sums, for a framework that adds ranks up itself. */
enum { KCP_LOCAL = 1, KCP_REVERSE = 2, KCP_SUM_LOCAL = 4 };

/* ---- fields
 * A stage's struct and its table are one list: KCP_FIELD(io, when, name, shape, store)
 * in stages/NN.def.
 *   io     IN or OUT; BIN and BOUT belong to the backward pass only, FOUT to forward
 *   when   ALWAYS; MAYBE may be NULL; KDA or GDN: NULL for the other model
 *   shape  in the letters above; "NS+1" and "V+K" are letters too
 *   store  ACTV the variant's storage type; ACC fp32, or double for a double variant;
 *          MAP as ACC, columns [0,V) h_ext and [V,V+K) M; I32, I64
 * An input that a variant must not touch keeps its bits; an output element that the
 * reference leaves untouched must stay untouched. */
enum kcp_io    { KCP_IN, KCP_OUT, KCP_BIN, KCP_BOUT, KCP_FOUT };
enum kcp_when  { KCP_ALWAYS, KCP_MAYBE, KCP_ONLY_KDA, KCP_ONLY_GDN };
enum kcp_store { KCP_ACTV, KCP_ACC, KCP_MAP, KCP_I32, KCP_I64 };

struct kcp_field {
    const char *name, *shape;
    enum kcp_io io;
    enum kcp_when when;
    enum kcp_store store;
    size_t at;                     /* offset of the pointer in the args struct */
};

#include "stages.h"

/* ---- chapter 06: the plan
 * A pure function of (cu_seqlens, R, owners, L): a table of segments with
 * owners. Any rank may own any ranges: contiguous (one range a rank, in order) is the
 * default; zigzag and striped are others. Rank r's segments stand together in the
 * table, in token order, and their rows stand so in its shard. Classic (L = 0): a
 * segment is a sequence's part of one range. Canonical (L > 0): segments are cut at
 * multiples of L from their sequence's start, and a range's boundary that falls inside
 * one moves down to its beginning.
 * Shards one behind the other, rank 0's first, are the *shard order* of the tokens; of
 * a contiguous plan it is the token order. */
struct kcp_segment {
    int n;                     /* global sequence */
    int rank;                  /* its owner */
    int64_t begin, end;        /* global tokens */
    int first, last;           /* is it the first, the last segment of its sequence */
    int prev, next;            /* its neighbours in the sequence, in plan->seg; or -1 */
    int pre, post;             /* changes of owner before it, after it, in there */
    int at;                    /* its place in token order: plan->order[at] */
};

/* The plan as one rank needs it: the fields that the sources call the CP context.
 * Where a rank owns several ranges, is_first_rank and the counts are of its first
 * (last) segment, pre_num_ranks and post_num_ranks count changes of owner, and
 * cu_seqlens has an entry for each run of tokens that follow one another. */
struct kcp_context {
    int64_t begin, end;        /* its rows in shard order: contiguous, global tokens */
    int seg0, NS, NC;          /* its first segment in plan->seg; how many; chunks */
    int n_local;               /* local sequences, zero-length ones removed */
    int *cu_seqlens;           /* [n_local+1] their local boundaries */
    int *seq;                  /* [n_local] their global numbers */
    int *cu, *cn, *sc;         /* [NS+1], [NS+1], [NC] the local grid of segments */
    int is_first_rank, pre_num_ranks;   /* of its first local sequence */
    int is_last_rank, post_num_ranks;   /* of its last local sequence */
    int conv1d_kernel_size;
    int64_t pre_num_conv_tokens;        /* of its first local sequence before the cut */
};

struct kcp_plan {
    int N, R, C, S;            /* sequences, ranks, chunk, segments */
    int64_t T, L;              /* tokens; canonical segment length, 0: classic */
    int64_t *cu_seqlens;       /* [N+1] */
    int64_t *cuts;             /* [R+1] as used: boundaries of shards in shard order */
    int moved;                 /* how many boundaries canonical mode moved */
    struct kcp_segment *seg;   /* [S] rank 0's, rank 1's, ... */
    int *h0_rank, *ht_rank;    /* [N] owner of row n of h0 and dh0; of ht and dht */
    struct kcp_context *ctx;   /* [R] */
    int crossing;              /* does any sequence cross a cut? the same everywhere */
    uint64_t digest;           /* of all of it: ranks compare theirs */
    int *order;                /* [S] segments in token order */
    int scattered;             /* is the shard order another than the token order? */
    int B;                     /* ranges: [bound[b], bound[b+1]) is owner[b]'s */
    int64_t *bound;            /* [B+1]; none is empty, neighbours have other owners */
    int *owner;                /* [B] */
};

/* Owners, where a rank has more than one range: tokens [bound[b], bound[b+1]) are
 * owner[b]'s, b < B. bound goes from 0 to T and does not decrease. */
struct kcp_owners { int B; int64_t *bound; int *owner; };

/* Tables that models use beside softmax attention, allocated here. ZIGZAG: each
 * sequence in 2 R ranges, floor(i len / 2R); rank r has ranges r and 2R-1-r, so that
 * under a causal mask all have the same work. STRIPED: each sequence in stripes of so
 * many tokens, stripe i to rank i mod R. KCP_BAD with a sentence in *why. */
enum kcp_spread { KCP_CONTIGUOUS, KCP_ZIGZAG, KCP_STRIPED };
int  kcp_owners_make(struct kcp_owners *owners, enum kcp_spread spread, int N,
                     const int64_t *cu_seqlens, int R, int64_t stripe,
                     const char **why);
void kcp_owners_free(struct kcp_owners *owners);

/* cuts NULL: floor(r T / R). Wc: the convolution's window, recorded in the contexts.
 * On KCP_BAD, *why (if not NULL) points to a static sentence; *plan is NULL. */
int  kcp_plan_make(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                   const int64_t *cuts, int64_t L, int C, int Wc, const char **why);
/* The same of any table of owners, which is copied. */
int  kcp_plan_owned(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                    const struct kcp_owners *owners, int64_t L, int C, int Wc,
                    const char **why);
void kcp_plan_free(struct kcp_plan *plan);
/* plan becomes next, in the memory that it has: args structs that point into it stay
 * good; of copies of a rank's cu, cn, sc the contents go stale. Bounds: N,
 * R, C, T, L, each rank's tokens, segments and chunks, who owns which state and which
 * neighbours a segment has are the same; lengths may differ. KCP_NA, and *why says what
 * differs: plan is as it was, make another. Every rank does it, or none. */
int  kcp_plan_refresh(struct kcp_plan *plan, const struct kcp_plan *next,
                      const char **why);
/* Rank r's rows, of so many bytes a token, out of the whole tensor and back into it;
 * the global token of row i in shard order. Host memory. */
void kcp_plan_take(const struct kcp_plan *plan, int r, size_t row_bytes,
                   const void *whole, void *shard);
void kcp_plan_give(const struct kcp_plan *plan, int r, size_t row_bytes,
                   const void *shard, void *whole);
int64_t kcp_plan_token(const struct kcp_plan *plan, int64_t i);
/* KCP_WANT_* of global segment j: h_ext unless nothing follows (precedes, backward) it;
 * M only where the sequence both enters and leaves. */
int  kcp_plan_want(const struct kcp_plan *plan, int j, int backward);

/* ---- chapter 12: the saved block
 * The caller's memory. It opens with this header; every tensor is at the offset that
 * its item gives, dense, aligned to 64 bytes from the start of the block. A stage may
 * write straight into its place: kcp_saved_begin, then kcp_saved_at(saved, "q").
 * Names: q k (not in light) rstd_q rstd_k beta Aqk A h_kept, with reuse_M maps kept,
 * and with save-all G w u qg kg v_new h. */
struct kcp_saved_item { char name[16]; uint64_t at, bytes; };
struct kcp_saved {
    char magic[8], writer[40];         /* "ref", or the variant that wrote it: for
                                          messages, and never compared */
    uint32_t version, items;
    int32_t model, save, reuse_M, form, l2norm, actv, acc;    /* bytes per number */
    int32_t R, r, NS, NC, H, HV, K, V, C, KG;
    int64_t T, L;
    uint64_t bytes;                    /* of the whole block */
    struct kcp_saved_item item[20];
    int32_t format, format_version;    /* which tensors: ref/core/saved.def */
};
size_t kcp_saved_bytes(const struct kcp_forward *a);         /* the reference's */
int    kcp_saved_states(const struct kcp_call *a);           /* rows of h_kept */
void   kcp_saved_layout(struct kcp_saved *s, const struct kcp_call *a,
                        const char *writer, size_t actv, size_t acc);
int    kcp_saved_begin(void *saved, size_t bytes, const struct kcp_call *a,
                       const char *writer, size_t actv, size_t acc);
void  *kcp_saved_at(const void *saved, const char *name);
int    kcp_saved_check(const void *saved, size_t bytes, const struct kcp_call *a,
                       const char *reader, size_t actv, size_t acc,
                       char *why, size_t n);
/* Of a format by its id; those above are of format 1, which the references write and
 * read. layout_of: KCP_BAD, there is no such format. */
int    kcp_saved_layout_of(struct kcp_saved *s, const struct kcp_call *a, int format,
                           const char *writer, size_t actv, size_t acc);
int    kcp_saved_check_of(const void *saved, size_t bytes, const struct kcp_call *a,
                          int format, const char *reader, size_t actv, size_t acc,
                          char *why, size_t n);

/* ---- stages and variants */
struct kcp_stage {
    const char *name;                /* "03_wy" */
    const struct kcp_field *fields;
    int nfields;
    size_t args;                     /* sizeof its struct */
    int ranks;                       /* 1: one rank's program over comm */
    int (*ref)(void *args);
    int (*oracle)(void *args);       /* 15, 16: the token recurrence; or NULL */
};
extern const struct kcp_stage kcp_stages[];
extern const int kcp_nstages;

enum kcp_storage { KCP_F64, KCP_F32, KCP_BF16 };
enum kcp_where { KCP_HOST, KCP_DEVICE };

/* Would this call be taken, as far as can be seen before it? Sizes, options, arrays
 * that are missing, plan and comm; on the host also what cu, cn, sc, cu_seqlens, want
 * and range hold, which a GPU is not asked for. Every reference, layer call and listed
 * variant does this itself. stage: "03", "3" or "03_wy". KCP_BAD: kcp_why() says. */
int kcp_check_call(const char *stage, enum kcp_where where, const void *args);

//> variant
/* One record a variant, at the foot of its file; "mutant_*" must be rejected. */
struct kcp_variant {
    const char *stage, *name, *why;  /* "07_merge", "v1_column", one line on its idea */
    enum kcp_storage storage;
    enum kcp_where where;
    const char *shapes;              /* what it takes, in words */
    int (*run)(void *args);          /* kcp_status; the stage's args struct */
    size_t (*work)(const void *args);/* bytes of args->work it needs; NULL: none */
};

/* Before a variant that kcp_variants lists runs, its call is looked at: checked.c. */
struct kcp_checked { const struct kcp_variant *variant; int (*run)(void *args); };
int kcp_checked_run(const struct kcp_variant *v, void *args);

/* The record's address goes to a linker section: no list, no switch. */
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
