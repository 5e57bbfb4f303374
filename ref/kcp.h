/* kcp.h -- the vocabulary: sizes, one args struct a stage, variants, ranks, maps.
 *
 * Book: chapter 00 (every letter) and the chapter named at each struct.
 * Checked by: every file of tests/.  Next: ref.h, the table of contents.
 *
 * Tensors are dense, row major, tokens first. A stage sees stretches: a stretch is a
 * run of tokens of one sequence on one rank (chapter 06 makes them). Whoever calls
 * owns every array; nothing here keeps a pointer after it returns.
 */
#ifndef KCP_H
#define KCP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* libkcp.so shows what the installed headers declare, and hides the rest. */
#pragma GCC visibility push(default)

struct CUstream_st;
struct kcp_comm;
struct kcp_mapops;
struct kcp_plan;

/* What a function returns. KCP_NA is "not my shape": reported as n/a, never as ok. */
enum kcp_status {
    KCP_OK = 0,
    KCP_NA,          /* this variant does not take this shape or this option */
    KCP_BAD,         /* an argument is wrong */
    KCP_NO_MEMORY,
    KCP_COMM,        /* another rank failed, or the wire did */
    KCP_CUDA,        /* the device refused */
    KCP_MISMATCH,    /* a saved block was written by someone else */
};

enum kcp_model { KCP_KDA, KCP_GDN, KCP_DPLR, KCP_GDN2, KCP_GLA };  /* from 2: 16 */
enum kcp_pass  { KCP_FORWARD, KCP_BACKWARD };
enum kcp_gate_form { KCP_GATE_RAW, KCP_GATE_SOFTPLUS, KCP_GATE_BOUNDED };
enum kcp_beta_form { KCP_BETA_RAW, KCP_BETA_SIGMOID, KCP_BETA_SIGMOID2 };
enum kcp_act   { KCP_ACT_NONE, KCP_ACT_SILU };
enum kcp_form  { KCP_ALL_GATHER, KCP_CHAIN, KCP_PIPELINE, KCP_SCAN };
enum kcp_save  { KCP_RECOMPUTE, KCP_SAVE_ALL };
enum kcp_layout { KCP_KV, KCP_VK };          /* of h0, ht, dh0, dht at the interface */
enum kcp_walk  { KCP_AUTO, KCP_SEQUENTIAL, KCP_BLELLOCH };         /* 15: its forms */

/* What opens every args struct: the sizes, by the book's letters, the options of the
 * layer, and where it runs. KG is the width of the gate: 1 for GDN, else K. */
#define KCP_CALL                                                                      \
    int64_t T;                     /* tokens on this rank                          */ \
    int N, NS, NC;                 /* sequences; stretches, chunks on this rank    */ \
    int R, r;                      /* ranks, this rank                             */ \
    int H, HV, K, V, C, KG;                                                           \
    int D, Wc;                     /* 14: channels, width; 15: spikes of a head    */ \
    enum kcp_model model;                                                             \
    enum kcp_pass pass;            /* 01, 02, 14: which of the two walks           */ \
    int part;                      /* 09: KCP_LOCAL, KCP_REVERSE, or both          */ \
    enum kcp_gate_form gate;                                                          \
    enum kcp_beta_form beta_form;                                                     \
    enum kcp_act act;                                                                 \
    enum kcp_layout layout;                                                           \
    enum kcp_save save;                                                               \
    enum kcp_form form;                                                               \
    enum kcp_walk walk;            /* 15: auto chooses by the length of a stretch  */ \
    int blocks;                    /* pipeline: blocks of V; 0 chooses             */ \
    int strip_chunks;              /* 08, 13, classic plan: chunks in a strip of a    \
                                      segment, a processor's; 0 chooses            */ \
    int l2norm, reuse_M, shift;    /* flags; shift: 14 is the token shift          */ \
    double scale, lower_bound;                                                        \
    const struct kcp_plan *plan;   /* 07, 08, 11-14                                */ \
    struct kcp_comm *comm;                                                            \
    const struct kcp_mapops *ops;                                                     \
    void *work; size_t work_bytes; /* caller's, at least the variant's work()      */ \
    struct CUstream_st *stream;

struct kcp_call { KCP_CALL };

enum { KCP_LOCAL = 1, KCP_REVERSE = 2 };     /* the parts of 09 */

/* ---- fields
 * A stage's struct and its table are one list: F(io, when, name, shape, store).
 *   io     IN or OUT; BIN and BOUT belong to the backward pass only, FOUT to forward
 *   when   ALWAYS; MAYBE may be NULL; KDA or GDN: NULL for the other model
 *   shape  in the letters above; "NS+1" and "V+K" are letters too
 *   store  ACT the variant's storage type; ACC fp32, or double for a double variant;
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

#define KCP_CONST_KCP_IN   const
#define KCP_CONST_KCP_BIN  const
#define KCP_CONST_KCP_OUT
#define KCP_CONST_KCP_BOUT
#define KCP_CONST_KCP_FOUT
#define KCP_MEMBER(io, when, name, shape, store) KCP_CONST_##io void *name;
#define KCP_STRUCT(S, LIST) struct S { KCP_CALL LIST(KCP_MEMBER) };

#include "stages.h"

/* ---- chapter 06: the plan
 * spec 6.  A pure function of (cu_seqlens, R, cuts, L). Segments stand in token order,
 * so rank r's are consecutive. Classic (L = 0): one segment a sequence and rank.
 * Canonical (L > 0): segments are cut at multiples of L from their sequence's start,
 * and a cut that falls inside one moves down to its beginning. */
struct kcp_segment {
    int n;                     /* global sequence */
    int rank;                  /* who owns it */
    int64_t begin, end;        /* global tokens */
    int first, last;           /* is it the first, the last segment of its sequence */
};

/* What one rank knows: the fields that the sources call the CP context. */
struct kcp_context {
    int64_t begin, end;        /* its tokens, global */
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
    int64_t *cuts;             /* [R+1] as used */
    int moved;                 /* how many cuts canonical mode moved */
    struct kcp_segment *seg;   /* [S] */
    int *h0_rank, *ht_rank;    /* [N] who owns row n of h0 and dh0; of ht and dht */
    struct kcp_context *ctx;   /* [R] */
    int crossing;              /* does any sequence cross a cut? the same everywhere */
};

/* cuts NULL: floor(r T / R). Wc: the convolution's window, recorded in the contexts.
 * On KCP_BAD, *why (if not NULL) points to a static sentence; *plan is NULL. */
int  kcp_plan_make(struct kcp_plan **plan, int N, const int64_t *cu_seqlens, int R,
                   const int64_t *cuts, int64_t L, int C, int Wc, const char **why);
void kcp_plan_free(struct kcp_plan *plan);
/* KCP_WANT_* of global segment j: h_ext unless nothing follows (precedes, backward) it;
 * M only where the sequence both enters and leaves. */
int  kcp_plan_want(const struct kcp_plan *plan, int j, int backward);

/* ---- ranks: comm/
 * Pointers are host or device, as the backend says; stream may be NULL. Every call
 * returns a status; after fail() on any rank, calls on every rank return KCP_COMM.
 * traffic counts what this rank handed to the wire; an all_gather of b bytes counts as
 * b bytes and one collective. */
struct kcp_traffic { int64_t bytes, messages, collectives; };

struct kcp_comm {
    int R, r;
    const char *backend;
    struct kcp_traffic traffic;
    int  (*all_gather)(struct kcp_comm *, const void *mine, void *all, size_t bytes,
                       struct CUstream_st *);
    int  (*send)(struct kcp_comm *, const void *, size_t bytes, int to,
                 struct CUstream_st *);
    int  (*recv)(struct kcp_comm *, void *, size_t bytes, int from,
                 struct CUstream_st *);
    int  (*group)(struct kcp_comm *, int begin);       /* sends and receives as one */
    int  (*barrier)(struct kcp_comm *, struct CUstream_st *);
    void (*fail)(struct kcp_comm *, int status, const char *why);
    int  (*lost)(struct kcp_comm *, int *rank, char *why, size_t n);  /* who failed */
    void (*free)(struct kcp_comm *);
};

/* R thread ranks of this process: body runs once per rank with its comm and arg.
 * Returns the first failing status; why receives "rank 2: reason" (may be NULL). */
int kcp_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                    char *why, size_t n);
/* The same on memory that copy can reach, e.g. of one GPU that the ranks share: copy
 * returns when the bytes have arrived, after what the stream did before; 0 bytes waits
 * for the stream alone. */
typedef int kcp_copy(void *to, const void *from, size_t bytes, struct CUstream_st *);
int kcp_threads_run_on(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                       char *why, size_t n, kcp_copy *copy);

/* Who a launcher says we are: mpirun, torchrun or srun, by their variables; R is 1 and
 * launcher NULL without one. KCP_BAD: a value is none, and why says which. */
struct kcp_who { int R, r, local; const char *launcher; };
int kcp_who(struct kcp_who *who, char *why, size_t n);
/* Process ranks on host memory: every process of the job calls it, and returns when all
 * are connected. They meet at MASTER_ADDR:MASTER_PORT (else the first host of
 * SLURM_NODELIST, else this machine), or through KCP_RENDEZVOUS=file:/path. What waits
 * longer than KCP_TIMEOUT_S (60) fails; a process that ends is lost at once, and lost()
 * names it on all the others. comm->free says goodbye. */
int kcp_processes(struct kcp_comm **comm, struct kcp_who *who, char *why, size_t n);

/* Over NCCL, when this was built with CUDA and NCCL (else KCP_NA): pointers are of the
 * rank's own GPU, and calls return when the work is on the stream, as NCCL's do.
 * barrier waits for the stream and for every rank, KCP_TIMEOUT_S at most; when a rank
 * is lost the communicator is aborted, so that no stream waits for ever, and barrier
 * and all later calls return KCP_COMM: what a stream did before counts only then.
 * R threads of this process, rank r on GPU r: */
int kcp_nccl_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                         char *why, size_t n);
/* On the calling thread's GPU, over ranks that can talk already (threads or processes),
 * which carry NCCL's id and know who is lost; host must outlive it. */
int kcp_nccl_over(struct kcp_comm **comm, struct kcp_comm *host, char *why, size_t n);
/* Around a caller's ncclComm_t (of any kind; it stays the caller's, but after a failure
 * it is aborted and gone). Here a lost rank is known by the timeout only. */
struct ncclComm;
int kcp_nccl_from(struct kcp_comm **comm, struct ncclComm *nccl);
/* Ranks of one color, ordered by key, r among equals: every rank calls it; color < 0
 * gets *comm NULL. free it before the comm that it came from. */
int kcp_nccl_split(struct kcp_comm *from, int color, int key, struct kcp_comm **comm);

/* ---- maps: compose and apply, one implementation a backend
 * map is [HV,K,V+K] = [h | M]. backward applies M^T. */
struct kcp_mapops {
    const char *name;
    size_t elem;               /* bytes of a number on the wire: 4, or 8 for double */
    /* S_out <- op(M) S_in + h on columns v0..v0+Vb of h; first: S_out <- h, S_in and M
     * unread. S_in [HV,K,ld_in], S_out [HV,K,ld_out], column v0 at offset 0. In place
     * (S_in == S_out) is allowed. */
    int (*apply)(int HV, int K, int V, const void *map, int backward, int first,
                 int v0, int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *);
    /* out <- (b after a): [op(M_b) h_a + h_b | M], M = M_b M_a, or M_a M_b backward.
     * a_first: M_a is unread and M is not written. out may be neither a nor b. */
    int (*compose)(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *);
    int (*copy)(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t rows, struct CUstream_st *);      /* in bytes */
};
extern const struct kcp_mapops ref_mapops;      /* double, ref/07_merge.c */

/* ---- chapter 07, 11: the exchange, written once over comm and maps
 * maps [NS,HV,K,V+K]: this rank's, wanted parts valid. states [NS,HV,K,V]: on entry,
 * rows of segments that begin (end, backward) a sequence hold h0 (dht) or 0; on return
 * every row holds the state with which its segment begins (ends). kept, when not NULL:
 * forward all-gather leaves the gathered maps there; backward with reuse_M takes M from
 * there and from maps, and only dh_ext travels. Its size: kcp_exchange_kept. */
struct kcp_exchange {
    enum kcp_form form;
    int backward, blocks, reuse_M;
    int HV, K, V;
    const struct kcp_plan *plan;
    struct kcp_comm *comm;
    const struct kcp_mapops *ops;
    void *maps, *states, *kept, *work;
    struct CUstream_st *stream;
};
int    kcp_exchange_run(const struct kcp_exchange *x);
size_t kcp_exchange_work(const struct kcp_exchange *x);     /* bytes of work */
size_t kcp_exchange_kept(const struct kcp_exchange *x);     /* bytes of kept */
/* What the formulas of chapter 07 say this rank hands to the wire. */
struct kcp_traffic kcp_exchange_formula(const struct kcp_exchange *x);

/* ---- chapter 12: the saved block
 * The caller's memory. It opens with this header; every tensor stands at the offset its
 * item gives, dense, aligned to 64 bytes from the start of the block. A stage may
 * write straight into its place: kcp_saved_begin, then kcp_saved_at(saved, "q").
 * Names: q k rstd_q rstd_k beta Aqk A h_kept, with reuse_M maps kept, and with save-all
 * G w u qg kg v_new h. */
struct kcp_saved_item { char name[16]; uint64_t at, bytes; };
struct kcp_saved {
    char magic[8], writer[40];         /* "ref", or the variant that wrote it */
    uint32_t version, items;
    int32_t model, save, reuse_M, form, l2norm, actv, acc;    /* bytes per number */
    int32_t R, r, NS, NC, H, HV, K, V, C, KG;
    int64_t T, L;
    uint64_t bytes;                    /* of the whole block */
    struct kcp_saved_item item[20];
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

/* ---- chapter 14: rows across a cut, written once over comm
 * Rank r's first sequence lacks the min(reach, what lies before the cut) rows before
 * its cut; backward, its last one lacks those after. They lie on as many ranks as it
 * takes: only these are spoken to. x [T,row] is this rank's shard. */
struct kcp_halo {
    const struct kcp_plan *plan;
    struct kcp_comm *comm;     /* may be NULL when plan->R is 1 */
    int64_t reach;             /* rows: the window's width less one */
    int backward;
    size_t row_bytes;
    struct CUstream_st *stream;
};
int64_t kcp_halo_rows(const struct kcp_halo *h, int r);    /* that rank r receives */
int     kcp_halo_run(const struct kcp_halo *h, const void *x, void *halo);
struct kcp_traffic kcp_halo_formula(const struct kcp_halo *h, int r);

/* ---- chapters 13, 14: sums over all tokens
 * part [NS,n] are this rank's sums, one row a segment; sum [n] on every rank is their
 * total in global segment order (double, host; when R > 1 one all_gather for each MiB).
 * Canonical plans: the same bits for every R. */
int kcp_segment_sum(const struct kcp_plan *plan, struct kcp_comm *comm,
                    const double *part, int64_t n, double *sum);

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

/* The record's address goes to a linker section: no list, no switch. */
#define KCP_VARIANT(ident)                                                            \
    extern const struct kcp_variant ident;                                            \
    __attribute__((used, section("kcp_variants")))                                    \
    const struct kcp_variant *const ident##_at = &ident;                              \
    const struct kcp_variant ident
//< variant

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
