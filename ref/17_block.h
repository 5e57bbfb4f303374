/* 17_block.h -- a block in plain C: loads, copies in flight, barriers, descriptors.
 *
 * Book: chapter 17.  Checked by: tests/17_ladder/checks.c.  Next: 17_block.c.
 *
 * As in 17_warp.h numbers are double, at the places of bf16. A copy in flight fills
 * its destination with NaN at once and delivers the numbers when a role has waited
 * for it: a read that is too early, or a buffer refilled too early, gives NaN. */
#ifndef KCP_17_BLOCK_H
#define KCP_17_BLOCK_H

#include "17_warp.h"
#include "kcp.h"

/* Tokens of chunk c of stretch s. */
struct block_tokens { int64_t t; int len; };
struct block_tokens block_tokens(const struct kcp_ladder *a, int s, int c);

/* A launch: the kernel for each thread v of each block (s, n), one after the other. */
void block_launch(void kernel(const struct kcp_ladder *a, int s, int n, int v),
                  const struct kcp_ladder *a);

/* One load of a warp: lane l takes count[l] = 0..8 neighbouring numbers, up to 16
 * bytes, from global[from[l]] on to shared[to[l]] on. Returns how many sectors of 32
 * bytes were fetched; global begins with one. What two lanes write becomes NaN. */
int block_load(double *shared, const int *to, const double *global, const int64_t *from,
               const int *count);

/* The shared memory of one chunk: rows of w and kg [C,K], of u [C,V], decay [K]. */
struct block_stage { int len; double *w, *kg, *u, *decay; };
int block_stages_make(struct block_stage *at, int n, const struct kcp_ladder *a);
void block_stages_free(struct block_stage *at);

/* Columns v0 .. v1 - 1 of one chunk, from shared memory: v_new = u - w S goes to rows t
 * .. of head n of a->v_new, then S [K,V] <- diag(decay) S + kg^T v_new. */
void block_chunk(const struct kcp_ladder *a, const struct block_stage *m, int64_t t,
                 int n, int v0, int v1, double *S);

/* A barrier in shared memory. A phase ends when `count` arrivals and all bytes that
 * were announced have come; the next one begins by itself. */
struct block_barrier { int count, arrived, phase; int64_t bytes; };
void block_barrier_init(struct block_barrier *b, int count);
void block_arrive(struct block_barrier *b);
void block_arrive_expect(struct block_barrier *b, int64_t bytes);
int block_passed(const struct block_barrier *b, int phase);   /* compares the parity */

/* Copies in flight, in the order of issue. */
enum { BLOCK_COPIES = 64 };
struct block_copy {
    double *to;
    const double *from;
    int64_t stride;
    int rows, columns, group;
    struct block_barrier *full;
};
struct block_copies { struct block_copy ask[BLOCK_COPIES]; int n, group; };

/* cp.async: rows of `columns` numbers, `stride` apart, into the group that is open.
 * commit closes it; wait leaves at most the n newest closed groups in flight. */
void block_async(struct block_copies *q, double *to, const double *from, int64_t stride,
                 int rows, int columns);
void block_commit(struct block_copies *q);
void block_wait(struct block_copies *q, int n);

/* The copy engine: as block_async, and 2 bytes a number arrive at `full` at the end. */
void block_tma(struct block_copies *q, double *to, const double *from, int64_t stride,
               int rows, int columns, struct block_barrier *full);
void block_carry_out(struct block_copies *q, int which);

/* Roles 0 .. roles - 1 over chunks 0 .. chunks - 1, by turns with the copy engine.
 * role(m, who, i): 1 when chunk i is done, 0 when it must wait. KCP_BAD: all wait. */
int block_run(int role(void *m, int who, int i), void *m, int roles, int chunks,
              struct block_copies *q);

/* wgmma: D [64,columns] += A [64,16] B [16,columns]. B lies in swizzled tiles in
 * shared memory, where a descriptor says; mn_major: rows of the tile are rows of B, not
 * its columns. A descriptor with a bit that means nothing here makes D NaN. */
void warpgroup_mma(double *d, int columns, const double (*a)[16], const double *shared,
                   uint64_t descriptor, int mn_major);

#endif
