/* machine.h -- measured times, from which split.h computes where to cut a sequence.
 * Book: chapter 18b, "Few heads".
 *
 * The times were measured on one H200 (sm_90a, CUDA 13.0), with chunks of 64 tokens and
 * K = V = 128. Memory bounds a share of a time. On a GPU whose memory is slower, this
 * share grows as the bandwidth falls; the rest stays, because latencies and clocks of
 * SMs bound it. A cut changes results only by rounding. */
#pragma once

/* Bandwidth of an H200's memory by the GPU's attributes, in GB/s (a copy reaches 4250).
 * The shares follow from times of an H100 (3352 GB/s; a copy reaches 3020) divided by
 * times of an H200 for the same calls (bench/LOG.md):
 * CHANNEL        factors, walks, and scans concurrent with factors, gates per channel
 * HEAD           the same with gates per head
 * STEP           scans of which no other kernel is concurrent, if they fill all SMs
 * Latency bounds folds and launches. */
#define KCP_BANDWIDTH 4814
#define KCP_SHARE_CHANNEL 0.65
#define KCP_SHARE_HEAD 0.4
#define KCP_SHARE_STEP 0.9

/* Times of the fused forward in microseconds, measured at commit 88497b0, 2026-11-21.
 * FACTORS        one gate per channel: factors of one chunk, per value head
 * FACTORS_ROWS   one gate per head: factors of one chunk, per query/key head
 * FACTORS_HEAD   one gate per head: additional time of one chunk, per value head
 * STEP_64        one step of the scan over 64 columns
 * STEP_128       one step of the scan over 128 columns
 * STEP_BESIDE    one step over 64 columns while other SMs compute factors
 * STEP_MAP       one step of the scan of a map
 * FOLD           folding the map of one more strip (part of a segment)
 * LAUNCH         one more launch */
#define KCP_FACTORS 0.0353
#define KCP_FACTORS_ROWS 0.021
#define KCP_FACTORS_HEAD 0.0022
#define KCP_STEP_64 1.0
#define KCP_STEP_BESIDE 1.4
#define KCP_STEP_128 2.6
#define KCP_STEP_MAP 1.15
#define KCP_FOLD 4.5
#define KCP_LAUNCH 13

/* Times of a walk in microseconds, measured on two H200, 2026-11-23. A walk computes a
 * segment's map while other SMs compute factors (split.h).
 * CHUNKS         chunks per launch (64 took the same time, 32 took longer)
 * MAP            one step of [h_ext | M] with one gate per channel
 * MAP_ROWS       one step of [h_ext | M] with one gate per head
 * H              one step of h_ext without M, with one gate per channel
 * H_ROWS         one step of h_ext without M, with one gate per head
 * LAUNCH         each additional launch */
#define KCP_WALK_CHUNKS 128
#define KCP_WALK_MAP 1.2
#define KCP_WALK_MAP_ROWS 1.46
#define KCP_WALK_H 1.2
#define KCP_WALK_H_ROWS 1.1
#define KCP_WALK_LAUNCH 5

/* Times with one kernel per stage, measured at commit 6173e64, 2026-11-21. The unit is
 * the time of one chunk in chapter 04's scan. STEP_M is the time of one chunk in
 * chapter 05's scan. STEP_FOLD is the time to compose and fold one more strip's map. */
#define KCP_STEP_M 1.0
#define KCP_STEP_FOLD 5.0

/* With K = 128, the kernel that folds the maps of strips has 8 columns per block if the
 * launch has at most 8 columns (HV * V per segment) per SM, otherwise 16. */
#define KCP_FOLD_COLUMNS 8
