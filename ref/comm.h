/* comm.h -- what moves between ranks: communicators, maps, the exchange, halos, sums.
 *
 * Book: chapters 07, 08, 11, 14, 20.
 * Checked by: tests/07_merge/checks.c, tests/14_conv.
 * Next: ref/ref.h, the table of contents.
 *
 * kcp.h includes it. Functions return a kcp_status, which kcp.h lists.
 */
#ifndef KCP_COMM_H
#define KCP_COMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)      /* as in kcp.h */

struct CUstream_st;
struct kcp_plan;

/* The forms of the exchange: FORM(number, name). A form is one line here and one file,
 * comm/form/name.c, that defines form_name (comm/form/exchange.h). */
#define KCP_FORM_LIST(FORM)                                                            \
    FORM(KCP_ALL_GATHER, all_gather)                                                   \
    FORM(KCP_CHAIN, chain)                                                             \
    FORM(KCP_PIPELINE, pipeline)                                                       \
    FORM(KCP_SCAN, scan)
#define KCP_FORM_NUMBER(number, name) number,
enum kcp_form { KCP_FORM_LIST(KCP_FORM_NUMBER) KCP_FORMS };
extern const char *const kcp_form_names[KCP_FORMS];           /* "all_gather", ... */

/* ---- ranks: comm/
 *
 * Pointers are to host or device memory, depending on the backend; stream may be NULL.
 * Every call returns a status; after fail() on any rank, calls on every rank return
 * KCP_COMM. traffic counts what this rank has sent; an all_gather of b bytes counts as
 * b bytes and one collective. A layer sends and receives inside groups. */
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
    int  (*lost)(struct kcp_comm *, int *rank, char *why, size_t n);  /* has failed */
    void (*free)(struct kcp_comm *);
    /* Gathers host memory and waits; not counted in traffic. Ranks compare their plans
     * and options with it. NULL: no comparison. KCP_NA: a graph captures the stream. */
    int  (*show)(struct kcp_comm *, const void *mine, void *all, size_t bytes,
                 struct CUstream_st *);
    int show_waits;            /* show() waits for a stream: compare a call once */
    uint64_t agreed[8];        /* digests of calls compared before */
    int agreements;
    struct kcp_window *window; /* memory that other ranks can write; NULL: none */
};

/* Windows: memory on each rank's GPU that kernels of other ranks write directly, with a
 * flag per piece. If all ranks of a communicator have one, the chain is one kernel per
 * rank (chapter 20); otherwise it sends messages. */
enum { KCP_WINDOW_RANKS = 16 };
struct kcp_window {
    int R, r, blocks;          /* blocks: pieces of a state that each rank may send */
    void *at[KCP_WINDOW_RANKS];        /* rank's memory, as this GPU addresses it */
    int *lost;                 /* not 0: kernels stop waiting */
};
/* Makes windows for a communicator over NCCL. Collective: all ranks get windows, or all
 * return KCP_NA (a GPU cannot reach another one, or KCP_WINDOWS is not 1).
 * kcp_nccl_over and kcp_nccl_threads_run call it; for a caller's or a split
 * communicator the caller does. Not while a stream is captured. */
int kcp_nccl_windows(struct kcp_comm *comm);

/* R thread ranks of this process: body runs once per rank with its comm and arg.
 * Returns the first failing status; why receives "rank 2: reason" (may be NULL). */
int kcp_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                    char *why, size_t n);
/* As kcp_threads_run, on memory that `copy` can reach, e.g. memory of one GPU that the
 * ranks share. copy waits for earlier work of the stream, copies, and returns when the
 * bytes have arrived; with 0 bytes it only waits for the stream. */
typedef int kcp_copy(void *to, const void *from, size_t bytes, struct CUstream_st *);
int kcp_threads_run_on(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                       char *why, size_t n, kcp_copy *copy);

/* Sets *seconds to the time after which a call without progress fails: KCP_TIMEOUT_S,
 * or 60. KCP_BAD: the value of a variable is wrong; why names the variable. */
int kcp_timeout(double *seconds, char *why, size_t n);

/* Ranks as processes on host memory: kcp_mpi.h, a library separate from this one.
 *
 * What happens when a rank is lost. If a rank fails, every call on every rank returns
 * KCP_COMM, and lost() gives the failed rank's number and reason. If a process dies
 * under MPI, the launcher names it, ends the other processes, and returns a status
 * other than 0. If a rank hangs, or a rank over threads or NCCL is lost in any way,
 * each other rank gets an error and one line within KCP_TIMEOUT_S, and its stream is
 * released. */

/* Over NCCL, if built with CUDA and NCCL (otherwise KCP_NA). Pointers are to the rank's
 * own GPU, and calls return when the work is on the stream, as NCCL's calls do. barrier
 * waits for the stream and for every rank, KCP_TIMEOUT_S at most. If a rank is lost,
 * the communicator is aborted, so that no stream waits forever; barrier and all later
 * calls then return KCP_COMM. Results of earlier work on a stream are valid only after
 * a barrier that returns KCP_OK.
 *
 * Runs R threads of this process, rank r on GPU r. A body must not wait for the GPU of
 * another rank (cudaFree of its memory, cudaDeviceSynchronize there): that GPU may wait
 * for the next collective of this rank, so both ranks may stop. */
int kcp_nccl_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                         char *why, size_t n);
/* A rank on the calling thread's GPU. `host` is any communicator on host memory
 * (threads, MPI): NCCL's id is sent over host, and host reports which rank failed. host
 * must outlive comm. */
int kcp_nccl_over(struct kcp_comm **comm, struct kcp_comm *host, char *why, size_t n);
/* A rank on the calling thread's GPU, without MPI. Rank 0 writes NCCL's id to path,
 * in a folder that all ranks can read; no file may exist at path, and the caller
 * removes the file afterwards. A lost rank is detected by NCCL's own error or by the
 * timeout. */
int kcp_nccl_by_file(struct kcp_comm **comm, const char *path, int R, int r, char *why,
                     size_t n);
/* A communicator that uses a caller's ncclComm_t of any kind. The caller still owns the
 * ncclComm_t: after a failure the calls of this library return, but the library does
 * not abort the ncclComm_t. Work that hangs on a stream, and cudaFree and comm->free
 * that wait for this work, therefore hang until the owner aborts the ncclComm_t. Call
 * comm->fail or comm->free before the owner aborts or destroys the ncclComm_t; after
 * that call this library does not use it. A lost rank is detected by NCCL's own error,
 * by the owner's watchdog, or by the timeout. */
struct ncclComm;
int  kcp_nccl_from(struct kcp_comm **comm, struct ncclComm *nccl);
/* Splits `from`: ranks with the same color form one communicator, ordered by key,
 * and by r if keys are equal. Every rank of `from` calls it; a rank with color < 0
 * gets *comm NULL. Free *comm before `from`. If ranks are threads, free *comm only when
 * no rank has work on a GPU: NCCL then frees host memory, which waits for all GPUs of
 * the process, and a GPU may wait for this rank. lost() names ranks by their number in
 * `from`. */
int kcp_nccl_split(struct kcp_comm *from, int color, int key, struct kcp_comm **comm);

/* ---- maps: compose and apply, one implementation per backend
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
    /* The same operations for models with a diagonal M: map is [HV,K,V+1] = [h | d],
     * with K numbers of M instead of K^2. NULL: not implemented, so such a model sends
     * all of M. */
    const struct kcp_mapops *diagonal;
    int is_diagonal;           /* 1: this is such an implementation */
};
extern const struct kcp_mapops kcp_ref_mapops;  /* double, ref/07_merge.c */
#define ref_mapops kcp_ref_mapops
extern const struct kcp_mapops kcp_diagonal_mapops;        /* ref/16_diagonal.c */

/* ---- chapters 07, 11: the exchange, written once over comm and maps
 *
 * maps [NS,HV,K,V+K] (diagonal M: [NS,HV,K,V+1]): this rank's maps; only the required
 * parts need be valid. states [NS,HV,K,V]: on entry, rows of segments that begin
 * (backward: end) a sequence hold h0 (dht) or 0; on return every row holds the state at
 * the start (end) of its segment. kept, if not NULL: forward's all-gather stores the
 * gathered maps in kept; backward with reuse_M reads M from kept and from maps, and
 * only dh_ext is sent. kcp_exchange_kept returns the bytes of kept. */
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
/* Returns the bytes and messages that this rank sends, by the formulas of chapter
 * 07. */
struct kcp_traffic kcp_exchange_formula(const struct kcp_exchange *x);
/* Returns 1 if the form folds maps in token order, so that canonical plans give the
 * same bits for every R. 0: the form composes maps in a tree, or there is no such
 * form. */
int    kcp_form_in_order(enum kcp_form form);

/* ---- chapter 14: rows across a cut, written once over comm
 *
 * A segment needs up to `reach` rows of its sequence before it (backward: after it),
 * unless the neighbouring segment is next to it in the shard. If a rank owns one range,
 * only its first (backward: last) segment needs rows. The rows may be on several ranks;
 * only these ranks exchange messages. x [T,row] is this rank's shard. The halo holds
 * the rows for segment 0, then those for segment 1, ... */
struct kcp_halo {
    const struct kcp_plan *plan;
    struct kcp_comm *comm;     /* may be NULL when plan->R is 1 */
    int64_t reach;             /* rows: the window's width less one */
    int backward;
    size_t row_bytes;
    struct CUstream_st *stream;
    const struct kcp_mapops *ops;  /* copies a rank's own rows; NULL: host memory */
    int edges;                 /* x holds, of each run of segments that follow one
                                  another and begin inside a sequence, only the first
                                  min(reach, tokens) rows: backward's are no others */
};
int64_t kcp_halo_rows(const struct kcp_halo *h, int r);    /* that rank r lacks */
/* kcp_halo_at returns the row of the halo where segment s begins. kcp_halo_edge returns
 * the row of x, with edges, where the run that begins with s begins. s = NS: the number
 * of rows in all. */
int64_t kcp_halo_at(const struct kcp_halo *h, int r, int s);
int64_t kcp_halo_edge(const struct kcp_halo *h, int r, int s);
int     kcp_halo_run(const struct kcp_halo *h, const void *x, void *halo);
struct kcp_traffic kcp_halo_formula(const struct kcp_halo *h, int r);
/* states [N,reach,row] is indexed by global sequence; each rank has the rows that it
 * owns (plan->h0_rank; backward: ht_rank). If a rank holds one of the first (backward:
 * last) `reach` tokens of a sequence and another rank owns the sequence's rows, the
 * rank receives these rows. */
int     kcp_halo_states(const struct kcp_halo *h, void *states);

/* ---- chapters 13, 14: sums over all tokens
 *
 * part [NS,n] has this rank's sums, one row per segment. On every rank sum [n] is the
 * total of all rows in global segment order (double, host; if R > 1, one all_gather per
 * MiB). Canonical plans give the same bits for every R. kcp_parameter_sum does the same
 * for a call, unless the call has KCP_SUM_LOCAL: then it sums only this rank's rows and
 * sends no message. */
int kcp_segment_sum(const struct kcp_plan *plan, struct kcp_comm *comm,
                    const double *part, int64_t n, double *sum);
struct kcp_call;
int kcp_parameter_sum(const struct kcp_call *c, const double *part, int64_t n,
                      double *sum);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
