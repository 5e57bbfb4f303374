/* machine.h -- measured cost of each step: the only place with such numbers.
 *
 * Book: chapter 18, "When to split a sequence" and "Records".
 * Checked by: tests/08_forward/split_sequence.c.  Next: split.h, whose rules read it.
 *
 * Measured on one H200 (sm_90a, CUDA 13.0), chunks of 64 tokens, K = V = 128. Another
 * chip uses the same numbers until it is measured: they only choose where to
 * cut, and no result depends on them. */
#ifndef KCP_MACHINE_H
#define KCP_MACHINE_H

/* The GPU that a listing of paths assumes where there is none. */
#define KCP_MACHINE "NVIDIA H200"
#define KCP_MACHINE_ARCH 90
#define KCP_MACHINE_SMS 132
#define KCP_MACHINE_SMEM 232448

/* Microseconds, measured for commit 88497b0 on 2026-11-21: the factors of a chunk (one
 * gate a head: a query/key head's share, a value head's); a step of the scan over 64
 * columns, the same while factors are made beside it, over 128; a step of a map; one
 * strip more to fold; one launch more. */
#define KCP_FACTORS 0.0353
#define KCP_FACTORS_ROWS 0.021
#define KCP_FACTORS_HEAD 0.0022
#define KCP_STEP_64 1.0
#define KCP_STEP_BESIDE 1.4
#define KCP_STEP_128 2.6
#define KCP_STEP_MAP 1.15
#define KCP_FOLD 4.5
#define KCP_LAUNCH 13

/* A walk, measured on two H200 on 2026-11-23: chunks of a window, at least (64 took as
 * long, 32 longer); a step of [h_ext | M], with a gate a channel and with one a head; a
 * step of h_ext alone; one window more. */
#define KCP_WALK_CHUNKS 128
#define KCP_WALK_MAP 1.2
#define KCP_WALK_MAP_ROWS 1.46
#define KCP_WALK_H 1.2
#define KCP_WALK_H_ROWS 1.1
#define KCP_WALK_LAUNCH 5

/* Of programs of stages, in steps of chapter 04's scan (one a chunk), measured for
 * commit 6173e64 (2026-11-21): a step of chapter 05's; one strip more to compose and to
 * fold. */
#define KCP_STEP_M 1.0
#define KCP_STEP_FOLD 5.0

/* The fold of strips has 8 columns a block while that many columns, of all segments and
 * heads, are left a processor; 16 beyond. */
#define KCP_FOLD_COLUMNS 8

#endif
