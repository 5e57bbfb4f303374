/* comm.h -- communicators, and what ranks exchange: maps, states, halos and sums.
 * Book: chapters 07, 08, 11, 14, 20.
 *
 * kcp.h includes this file. Functions return a kcp_status (kcp.h). */
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

/* Lists the forms, i.e. the algorithms, of the exchange as FORM(number, name).
 * comm/form/NAME.c defines form_NAME (comm/form/exchange.h). A new form is the last
 * row, because compiled callers contain the numbers. */
#define KCP_FORM_LIST(FORM)                                                            \
    FORM(KCP_ALL_GATHER, all_gather)                                                   \
    FORM(KCP_CHAIN, chain)                                                             \
    FORM(KCP_PIPELINE, pipeline)                                                       \
    FORM(KCP_SCAN, scan)                                                               \
    /* a new form goes above this line */
#define KCP_FORM_NUMBER(number, name) number,
enum kcp_form { KCP_FORM_LIST(KCP_FORM_NUMBER) KCP_FORMS };
extern const char *const kcp_form_names[KCP_FORMS];           /* "all_gather", ... */

/* ---- ranks: comm/
 *
 * The backend determines whether pointers are to host or device memory. A stream may be
 * NULL. After a failure, all_gather, send, recv and barrier return KCP_COMM on every
 * rank, but group may return KCP_OK. `traffic` counts what this rank has sent. An
 * all_gather of b bytes counts as (R-1) * b bytes and one collective. */
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
    int  (*group)(struct kcp_comm *, int begin);       /* 0: ends the group */
    int  (*barrier)(struct kcp_comm *, struct CUstream_st *);
    void (*fail)(struct kcp_comm *, int status, const char *why);
    /* If a rank has failed, returns 1 and sets *rank and `why`, the reason. */
    int  (*lost)(struct kcp_comm *, int *rank, char *why, size_t n);
    void (*free)(struct kcp_comm *);
    /* Gathers host bytes of all ranks and blocks until all have arrived. `traffic` does
     * not count these bytes. Ranks use show() to compare plans and options. show may be
     * NULL. Returns KCP_NA if a CUDA graph captures the stream. */
    int  (*show)(struct kcp_comm *, const void *mine, void *all, size_t bytes,
                 struct CUstream_st *);
    int show_waits;            /* 1: show() also waits for the stream */
    uint64_t agreed[8];        /* if show_waits: digests of calls already compared */
    int agreements;
};

/* Runs R ranks as threads of this process: calls body(comm, arg) once per rank. Returns
 * the status of the first failure. `why` (may be NULL) receives "rank 2: reason". */
int kcp_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                    char *why, size_t n);
/* Like kcp_threads_run, but the function `copy` copies data between ranks, e.g. if all
 * ranks share one GPU. `copy` waits for earlier work of the stream, copies, and returns
 * when the copy is complete. With 0 bytes, `copy` only waits for the stream. */
typedef int kcp_copy(void *to, const void *from, size_t bytes, struct CUstream_st *);
int kcp_threads_run_on(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                       char *why, size_t n, kcp_copy *copy);

/* Sets *seconds to the time after which a waiting call fails: the value of the
 * environment variable KCP_TIMEOUT_S, or 60. If the variable's value is wrong, returns
 * KCP_BAD and names the variable in `why`. */
int kcp_timeout(double *seconds, char *why, size_t n);

/* Ranks can be MPI processes (kcp_mpi.h, a separate library).
 *
 * If a call fails on a rank, all_gather, send, recv and barrier return KCP_COMM on all
 * ranks. Then lost() gives the failed rank and the reason. If a rank hangs, or a rank
 * over threads or NCCL dies, calls on the other ranks fail likewise within
 * KCP_TIMEOUT_S, and work on their streams ends. If a process dies under MPI, calls may
 * hang: the launcher names it, ends the other processes, and returns nonzero. */

/* Ranks can use NCCL. Functions kcp_nccl_* return KCP_NA in a build without CUDA or
 * NCCL. Pointers are to memory of the rank's GPU. A call returns when its work is on
 * the stream. barrier() waits for the stream and for every rank, at most KCP_TIMEOUT_S.
 * If a rank dies or hangs, the other ranks abort the communicator, so that no stream
 * waits forever. Then barrier() and all later calls return KCP_COMM. Results of work on
 * a stream are valid only after a barrier() that returns KCP_OK.
 *
 * kcp_nccl_threads_run runs R threads of this process, rank r on GPU r. `body` must not
 * wait for the GPU of another rank (e.g. by cudaFree or cudaDeviceSynchronize on that
 * GPU), because that GPU may be waiting for a collective of this rank. */
int kcp_nccl_threads_run(int R, int (*body)(struct kcp_comm *, void *arg), void *arg,
                         char *why, size_t n);
/* Creates a rank on the calling thread's GPU. `host` is any communicator on host memory
 * (threads, MPI). The ranks use `host` to send NCCL's id and to report which rank
 * failed. `host` must outlive *comm. */
int kcp_nccl_over(struct kcp_comm **comm, struct kcp_comm *host, char *why, size_t n);
/* Creates a rank on the calling thread's GPU without MPI. Rank 0 writes NCCL's id to
 * the file `path`, in a folder that all ranks can read. The file must not exist before
 * the call, and the caller removes the file afterwards. If a rank dies or hangs, the
 * other ranks detect this by NCCL's error or by the timeout. */
int kcp_nccl_by_file(struct kcp_comm **comm, const char *path, int R, int r, char *why,
                     size_t n);
/* Creates a communicator that uses a caller's ncclComm_t, blocking or not. The caller
 * owns the ncclComm_t: after a failure, calls of this library return KCP_COMM, but the
 * library does not abort the ncclComm_t. Until you abort the ncclComm_t, work on a
 * stream may hang, and so may cudaFree and comm->free, which wait for this work. Before
 * you abort or destroy the ncclComm_t, call comm->fail or comm->free: from then on, the
 * library does not use the ncclComm_t. If a rank dies or hangs, the other ranks detect
 * this by NCCL's error, by your watchdog or by the timeout. */
struct ncclComm;
int  kcp_nccl_from(struct kcp_comm **comm, struct ncclComm *nccl);
/* Splits `from`: ranks with the same color form one communicator, ordered by key, then
 * by rank. Every rank of `from` calls kcp_nccl_split. On a rank with color < 0, *comm
 * is NULL. Free *comm before `from`. If ranks are threads, free *comm only when no rank
 * has work on a GPU: free() waits for all GPUs of the process, and a GPU may be waiting
 * for this rank. lost() of *comm returns rank numbers of `from`. */
int kcp_nccl_split(struct kcp_comm *from, int color, int key, struct kcp_comm **comm);

/* ---- maps. Each backend implements these functions. A map S -> op(M) S + h is stored
 * as [h | M] [HV,K,V+K]. op(M) is M, or M^T if backward = 1. */
struct kcp_mapops {
    const char *name;
    size_t elem;               /* bytes per number: 4, or 8 for double */
    /* S_out <- op(M) S_in + h on columns v0 .. v0+Vb-1 of h. If `first` is 1, S_in and
     * M are not read, and S_out <- h. S_in [HV,K,ld_in] and S_out [HV,K,ld_out] start
     * at column v0 of the state. S_in may equal S_out. */
    int (*apply)(int HV, int K, int V, const void *map, int backward, int first,
                 int v0, int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *);
    /* `out` <- the map that applies `a`, then `b`: [op(M_b) h_a + h_b | M] with
     * M = M_b * M_a (backward: M_a * M_b). If a_first is 1, no state precedes `a`, so
     * M_a is not read and M is not written. `out` must differ from `a` and `b`. */
    int (*compose)(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *);
    int (*copy)(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t rows, struct CUstream_st *);      /* in bytes */
    /* The same operations on maps [h | d] [HV,K,V+1], for models with M = diag(d). If
     * `diagonal` is NULL, such a model sends all K^2 elements of M. */
    const struct kcp_mapops *diagonal;
    int is_diagonal;           /* 1: maps are [h | d] */
};
extern const struct kcp_mapops kcp_ref_mapops;  /* double, ref/07_merge.c */
#define ref_mapops kcp_ref_mapops
extern const struct kcp_mapops kcp_diagonal_mapops;        /* ref/16_diagonal.c */

/* ---- chapters 07, 11: the exchange, for any kcp_comm and kcp_mapops
 *
 * `maps` [NS,HV,K,V+K] (diagonal M: [NS,HV,K,V+1]) are this rank's maps. Only the parts
 * that kcp_plan_want returns are read. `states` [NS,HV,K,V] has one row per segment. On
 * entry, the row of a segment that begins its sequence is h0 or 0 (backward: the row of
 * a segment that ends its sequence is dht or 0). On return, every row is the state at
 * the start of its segment (backward: the gradient of the state at the segment's end).
 * In forward, form all_gather stores the gathered maps in `kept`, which may be NULL.
 * Backward with reuse_M reads M from `kept` and `maps`, and sends only dh_ext. */
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
/* Returns this rank's traffic as predicted by the formulas of chapter 07. */
struct kcp_traffic kcp_exchange_formula(const struct kcp_exchange *x);
/* Returns 1 if this exchange form applies maps in token order (backward: in reverse),
 * so that canonical plans give the same bits for every R. Returns 0 if the form
 * composes maps in a tree, or if there is no such form. */
int    kcp_form_in_order(enum kcp_form form);

/* ---- chapter 14: rows across a cut, for any kcp_comm
 *
 * A segment needs the `reach` rows before (backward: after) it in its sequence. These
 * rows come from the halo unless they are in the shard, next to the segment. So if a
 * rank owns one range, only the first (backward: last) segment needs halo rows. Only
 * the ranks that own halo rows send messages. x [T,row] is this rank's shard. The halo
 * contains the rows for segment 0, then those for segment 1, etc. */
struct kcp_halo {
    const struct kcp_plan *plan;
    struct kcp_comm *comm;     /* may be NULL when plan->R is 1 */
    int64_t reach;             /* number of rows: width of the convolution, minus 1 */
    int backward;
    size_t row_bytes;
    struct CUstream_st *stream;
    const struct kcp_mapops *ops;  /* for local copies; NULL: host memory */
    int edges;                 /* 1: x holds only the rows that backward sends: the
                                  first min(reach, tokens) rows of each run of adjacent
                                  segments, if the run begins inside a sequence */
};
int64_t kcp_halo_rows(const struct kcp_halo *h, int r);    /* in rank r's halo */
/* kcp_halo_at returns the index of the first halo row for segment s. With edges = 1,
 * kcp_halo_edge returns the index of the first row of x for the run of segments that
 * begins with s. For s = NS, these functions return the total number of rows. */
int64_t kcp_halo_at(const struct kcp_halo *h, int r, int s);
int64_t kcp_halo_edge(const struct kcp_halo *h, int r, int s);
int     kcp_halo_run(const struct kcp_halo *h, const void *x, void *halo);
struct kcp_traffic kcp_halo_formula(const struct kcp_halo *h, int r);
/* Exchanges `states` [N,reach,row], indexed by global sequence. On entry each rank has
 * the rows that it owns (plan->h0_rank; backward: ht_rank). If a rank's shard contains
 * one of the first (backward: last) `reach` tokens of a sequence, the rank receives the
 * sequence's rows from their owner. */
int     kcp_halo_states(const struct kcp_halo *h, void *states);

/* ---- chapters 13, 14: sums over all tokens
 *
 * kcp_segment_sum adds the rows of `part` [NS,n], one per segment, over all segments of
 * all ranks in token order. Every rank gets `sum` [n], in host memory. If R > 1, each
 * all_gather collects at most 1 MiB, or one larger column. A canonical plan gives the
 * same bits for every R. kcp_parameter_sum computes this sum with the plan and comm of
 * call c. With KCP_SUM_LOCAL, it adds only this rank's rows and sends no message. */
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
