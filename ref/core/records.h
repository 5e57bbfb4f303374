/* records.h -- the records of the saved block of format "steps".
 * Book: chapter 18c. */
#pragma once

#include "kcp.h"

/* In format "steps" (ref/core/saved.def), forward saves one record per value head and
 * step of 32 tokens. Let chunk c of the rank be the first chunk of a stretch (the token
 * range of one scan). Then the record of the stretch's step j for value head n has
 * index (2 c + j) HV + n. If the last chunk of a stretch has at most 32 tokens, the
 * chunk's second step has no record. Only KDA with K = V = 128 uses this format.
 *
 * Let G_i be the sum of the log2 decays of the step's tokens 0 to i, let a = G_15, and
 *
 *     qf = scale rstd_q q 2^(G - a)    kf = rstd_k k 2^(G - a)    kb = k 2^(a - G)
 *
 * with the caller's q and k. A is the step's inverse (1 + L)^-1 of chapter 03. Past the
 * stretch's end, log2 decays, beta, triangles' rows and columns, and rows of w are 0.
 *
 * `state` and `w` consist of core matrices of 8 rows of 16 bytes, without a swizzle. In
 * this order a warp of forward's scan stores 128 contiguous bytes per register.
 * Triangles have wgmma's 64-byte swizzle. */
struct step_record {
    unsigned char state[32768];          /* 2^a S at the step's start, by core_offset */
    unsigned char w[8192];               /* rstd_k v_new, by core_offset(token, v) */
    unsigned char Ab[2048];              /* rstd_k_i A_ij beta_j: triangle64_offset */
    unsigned char Aqk[2048];             /* qf_i kb_j, j <= i */
    float q_factor[32];                  /* scale rstd_q, or scale without l2norm */
    float rstd_k[32];                    /* 1 without l2norm */
    float beta[32];                      /* |beta| >= 2^-40: backward divides by it */
    float unused[32];
};

/* In format "by_head", a chunk and value head has a slot of KCP_CHUNK_SLOT bytes: the
 * factors of format "chunks", or the record of the chunk's even step and, from byte
 * KCP_ODD_RECORD on, the record of its odd step. The odd step's `state` would overlap
 * the even record, so it is in the block's array `states` instead. */
enum {
    KCP_FORMAT_BY_HEAD = KCP_FORMAT_ADAPTED + 1,
    KCP_CHUNK_SLOT = 388 * 128 + 10240,
    KCP_ODD_RECORD = 8192 + 2 * 2048 + 4 * 128   /* from `w` on */
};
