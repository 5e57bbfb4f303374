/* 17_block.h -- a thread block in C: loads, copies in flight, barriers, descriptors.
 * Book: chapter 17.
 *
 * As in 17_warp.h, numbers are double, but have the positions of bf16 numbers. When a
 * copy is issued, its destination is filled with NaN. The numbers arrive later, when
 * block_carry_out runs. So NaN is read from a buffer that is read or refilled early. */
#pragma once

#include "17_warp.h"
#include "kcp.h"

/* The tokens of chunk c of segment s: t .. t + len - 1. */
struct block_tokens { int64_t t; int len; };
struct block_tokens block_tokens(const struct kcp_ladder *a, int s, int c);

/* Runs `kernel` for each thread v of each block (s, n), one thread after another. */
void block_launch(void kernel(const struct kcp_ladder *a, int s, int n, int v),
                  const struct kcp_ladder *a);

/* Runs a kernel in which each group of lanes computes `columns` columns of one head's
 * state. The function `chunks` computes all chunks of segment s; its argument m points
 * to a group's data of `bytes` bytes. Row j of S [columns,wide] is column v0 + j of the
 * state. `wide` is K rounded up to a multiple of 16, and elements past K or V are 0.
 * Returns KCP_NA if K > 256 or C > 64. */
int block_columns(const struct kcp_ladder *a, int columns, size_t bytes,
                  void chunks(const struct kcp_ladder *a, void *m, double *S, int wide,
                              int s, int n, int v0));

/* Runs one load instruction of a warp. Lane l copies count[l] = 0..8 adjacent numbers,
 * up to 16 bytes, from global[from[l]] to shared[to[l]]. Returns the number of sectors
 * of 32 bytes that were read. `global` is aligned to a sector. A number that two lanes
 * write becomes NaN. */
int block_load(double *shared, const int *to, const double *global, const int64_t *from,
               const int *count);

/* The shared memory of one chunk: w and kg [C,K], u [C,V], decay [K]. */
struct block_stage { int len; double *w, *kg, *u, *decay; };
int block_stages_make(struct block_stage *at, int n, const struct kcp_ladder *a);
void block_stages_free(struct block_stage *at);

/* Computes columns v0 .. v1 - 1 of one chunk from shared memory: v_new = u - w S, then
 * S [K,V] <- diag(decay) S + kg^T v_new. Writes v_new to a->v_new, head n, starting at
 * row t. */
void block_chunk(const struct kcp_ladder *a, const struct block_stage *m, int64_t t,
                 int n, int v0, int v1, double *S);

/* A barrier in shared memory. A phase ends, and the next begins, after `count` arrivals
 * and the arrival of all announced bytes. */
struct block_barrier { int count, arrived, phase; int64_t bytes; };
void block_barrier_init(struct block_barrier *b, int count);
void block_arrive(struct block_barrier *b);
void block_arrive_expect(struct block_barrier *b, int64_t bytes);
int block_passed(const struct block_barrier *b, int phase);   /* by parity */

/* Copies in flight, in the order of issue. */
enum { BLOCK_COPIES = 64 };
struct block_copy {
    double *to;
    const double *from;
    int64_t stride;
    int rows, columns, group, arrivals;
    struct block_barrier *full;
};
struct block_copies { struct block_copy copy[BLOCK_COPIES]; int n, group; };

/* block_async issues a cp.async of rows of `columns` numbers in the open group. Rows
 * are `stride` numbers apart. block_commit closes the group. block_wait waits until
 * only the n newest closed groups are in flight. */
void block_async(struct block_copies *q, double *to, const double *from, int64_t stride,
                 int rows, int columns);
void block_commit(struct block_copies *q);
void block_wait(struct block_copies *q, int n);

/* Like block_async, but the copy engine copies, and the copy is in no group. When the
 * copy completes, 2 bytes per number arrive at the barrier `full`. */
void block_tma(struct block_copies *q, double *to, const double *from, int64_t stride,
               int rows, int columns, struct block_barrier *full);
void block_carry_out(struct block_copies *q, int which);

/* A lane's cp.async of one row, then cp.async.mbarrier.arrive.noinc: when the copy
 * completes, `full` gets one arrival and no bytes. */
void block_async_arrive(struct block_copies *q, double *to, const double *from,
                        int columns, struct block_barrier *full);

/* Runs roles 0 .. roles - 1 over chunks 0 .. chunks - 1, interleaved with the copy
 * engine. step(m, role, i) returns 1 if `role` has finished chunk i, or 0 if `role`
 * must wait. Returns KCP_BAD if roles > 8, or all roles wait with no copy in flight. */
int block_run(int step(void *m, int role, int i), void *m, int roles, int chunks,
              struct block_copies *q);

/* Computes, as wgmma does, D [64,columns] += A [64,16] * B [16,columns]. B is in
 * swizzled tiles in shared memory, at the address in the descriptor. A row of a tile is
 * a row of B if mn_major is 1, otherwise a column of B. If the descriptor has an
 * unsupported bit or lacks bit 62 (the swizzle), D becomes NaN. */
void warpgroup_mma(double *d, int columns, const double (*a)[16], const double *shared,
                   uint64_t descriptor, int mn_major);
