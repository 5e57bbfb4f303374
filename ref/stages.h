/* stages.h -- one args struct a stage, and its field table: the same list.
 *
 * Book: the chapter named at each.  Checked by: tests/NN_name.c.  Next: ref.h.
 * Included by kcp.h; F(io, when, name, shape, store) is explained there.
 */
#ifndef KCP_STAGES_H
#define KCP_STAGES_H

/* ---- chapter 01: the recurrence, token by token
 * spec 1.  S <- diag(exp g) S;  S <- S + beta k (v - S^T k)^T;  o = S^T (scale q).
 * Sequences, not stretches: cu_seqlens may hold zero-length ones. Each starts from its
 * row of h0, or from 0. g is the natural log of the decay, already activated. */
#define KCP_STEP(F)                                                                   \
    F(KCP_IN,   KCP_ALWAYS, cu_seqlens, "N+1",      KCP_I64)                          \
    F(KCP_IN,   KCP_ALWAYS, q,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, k,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, g,          "T HV KG",  KCP_ACC)                          \
    F(KCP_IN,   KCP_ALWAYS, beta,       "T HV",     KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  h0,         "N HV K V", KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, o,          "T HV V",   KCP_ACTV)                         \
    F(KCP_FOUT, KCP_ALWAYS, ht,         "N HV K V", KCP_ACC)                          \
    F(KCP_BIN,  KCP_ALWAYS, do_,        "T HV V",   KCP_ACTV)                         \
    F(KCP_BIN,  KCP_MAYBE,  dht,        "N HV K V", KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dq,         "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dk,         "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dv,         "T HV V",   KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dg,         "T HV KG",  KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dbeta,      "T HV",     KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dh0,        "N HV K V", KCP_ACC)
KCP_STRUCT(kcp_step, KCP_STEP)

/* The local grid that stages 02-05 and 09-11 share: stretch s holds tokens
 * cu[s]..cu[s+1] and chunks cn[s]..cn[s+1]; chunk c belongs to stretch sc[c]. */
#define KCP_GRID(F)                                                                   \
    F(KCP_IN,   KCP_ALWAYS, cu,         "NS+1",     KCP_I32)                          \
    F(KCP_IN,   KCP_ALWAYS, cn,         "NS+1",     KCP_I32)                          \
    F(KCP_IN,   KCP_ALWAYS, sc,         "NC",       KCP_I32)

/* ---- chapter 02: the front end
 * spec 2.  q, k normalised; rstd kept; g activated (natural log); G its sum within the
 * chunk in base 2; beta. Without l2norm q, k are copies and rstd is 1. The gradients of
 * A_log and dt_bias are partial sums, one row a stretch: the caller adds them. */
#define KCP_GATE(F)                                                                   \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, q_raw,      "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, k_raw,      "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, g_raw,      "T HV KG",  KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, beta_raw,   "T HV",     KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  A_log,      "HV",       KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  dt_bias,    "HV KG",    KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, q,          "T H K",    KCP_ACTV)                         \
    F(KCP_FOUT, KCP_ALWAYS, k,          "T H K",    KCP_ACTV)                         \
    F(KCP_FOUT, KCP_ALWAYS, rstd_q,     "T H",      KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, rstd_k,     "T H",      KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, g,          "T HV KG",  KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, G,          "T HV KG",  KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, beta,       "T HV",     KCP_ACC)                          \
    F(KCP_BIN,  KCP_ALWAYS, dq,         "T H K",    KCP_ACTV)                         \
    F(KCP_BIN,  KCP_ALWAYS, dk,         "T H K",    KCP_ACTV)                         \
    F(KCP_BIN,  KCP_ALWAYS, dg,         "T HV KG",  KCP_ACC)                          \
    F(KCP_BIN,  KCP_ALWAYS, dbeta,      "T HV",     KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dq_raw,     "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dk_raw,     "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dg_raw,     "T HV KG",  KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dbeta_raw,  "T HV",     KCP_ACC)                          \
    F(KCP_BOUT, KCP_MAYBE,  dA_part,    "NS HV",    KCP_ACC)                          \
    F(KCP_BOUT, KCP_MAYBE,  ddt_part,   "NS HV KG", KCP_ACC)
KCP_STRUCT(kcp_gate, KCP_GATE)

/* ---- chapter 03: the WY form of a chunk
 * spec 3.  Row t of Aqk and A is the row of token t in its chunk; columns past the
 * diagonal or past the chunk's end are 0. GDN makes no kg and no qg. */
#define KCP_WY(F)                                                                     \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, q,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, k,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, G,          "T HV KG",  KCP_ACC)                          \
    F(KCP_IN,   KCP_ALWAYS, beta,       "T HV",     KCP_ACC)                          \
    F(KCP_OUT,  KCP_ALWAYS, Aqk,        "T HV C",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, A,          "T HV C",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, u,          "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, w,          "T HV K",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ONLY_KDA, kg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ONLY_KDA, qg,       "T HV K",   KCP_ACTV)
KCP_STRUCT(kcp_wy, KCP_WY)

/* ---- chapter 04: state scan and output
 * spec 4.  h_in [s] is the state with which stretch s begins (NULL: all 0), h_out [s]
 * the one with which it ends, h [c] the one with which chunk c begins. */
#define KCP_CHUNK(F)                                                                  \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ONLY_GDN, q,        "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_GDN, k,        "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_KDA, qg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_KDA, kg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, u,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, w,          "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, Aqk,        "T HV C",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, G,          "T HV KG",  KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  h_in,       "NS HV K V", KCP_ACC)                         \
    F(KCP_OUT,  KCP_ALWAYS, o,          "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, v_new,      "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, h,          "NC HV K V", KCP_ACTV)                        \
    F(KCP_OUT,  KCP_ALWAYS, h_out,      "NS HV K V", KCP_ACC)
KCP_STRUCT(kcp_chunk, KCP_CHUNK)

/* ---- chapter 05: the affine map of a stretch
 * spec 5.  map [s] = [h_ext | M]: S_out = M S_in + h_ext. h_start holds, for stretches
 * that begin a sequence, the state h_ext starts from (NULL: 0); other rows are 0.
 * want [s]: KCP_WANT_H, KCP_WANT_M, both or 0; what is not wanted is not touched. */
enum { KCP_WANT_H = 1, KCP_WANT_M = 2 };
#define KCP_AFFINE(F)                                                                 \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, want,       "NS",       KCP_I32)                          \
    F(KCP_IN,   KCP_ONLY_GDN, k,        "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_KDA, kg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, w,          "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, u,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, G,          "T HV KG",  KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  h_start,    "NS HV K V", KCP_ACC)                         \
    F(KCP_OUT,  KCP_ALWAYS, map,        "NS HV K V+K", KCP_MAP)
KCP_STRUCT(kcp_affine, KCP_AFFINE)

//> merge_fields
/* ---- chapter 07: the fold of gathered maps
 * spec 7.  S = h_ext_j0; then S <- M_j S + h_ext_j for j = j0+1 .. j1-1 ascending
 * (pass forward), or from j1-1 down to j0 with M_j^T (pass backward). The first factor
 * is never used. An empty range writes 0. maps [j] are [h_ext | M]. */
#define KCP_MERGE(F)                                                                  \
    F(KCP_IN,   KCP_ALWAYS, range,      "2",        KCP_I32)                          \
    F(KCP_IN,   KCP_ALWAYS, maps,       "R HV K V+K", KCP_MAP)                        \
    F(KCP_OUT,  KCP_ALWAYS, S,          "HV K V",   KCP_ACC)
KCP_STRUCT(kcp_merge, KCP_MERGE)
//< merge_fields

/* ---- chapter 08: the whole forward on R ranks
 * One rank's program: token tensors are this rank's shard. h0 and ht are [N,...] by
 * global sequence; a rank reads and writes only the rows it owns (spec 6). saved is
 * what 13 needs, kcp_saved_bytes() long, the caller's; NULL: nothing is kept. */
#define KCP_LAYER(F)                                                                  \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, q_raw,      "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, k_raw,      "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, g_raw,      "T HV KG",  KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, beta_raw,   "T HV",     KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  A_log,      "HV",       KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  dt_bias,    "HV KG",    KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  h0,         "N HV K V", KCP_ACC)
#define KCP_FORWARD_(F)                                                               \
    KCP_LAYER(F)                                                                      \
    F(KCP_OUT,  KCP_ALWAYS, o,          "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, ht,         "N HV K V", KCP_ACC)
struct kcp_forward {
    KCP_CALL KCP_FORWARD_(KCP_MEMBER)
    void *saved;
    size_t saved_bytes;
};

/* ---- chapter 09: backward of a chunk
 * spec 8.  Part KCP_LOCAL: dAqk, dv_local. Part KCP_REVERSE reads dv_local and walks
 * the chunks backwards: dh [c] is dS at the END of chunk c, dh_out [s] (NULL: 0) the
 * gradient of the state stretch s ends with, dh_in [s] of the one it begins with. */
#define KCP_CHUNK_BACKWARD(F)                                                         \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ONLY_GDN, q,        "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_GDN, k,        "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_KDA, qg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_KDA, kg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, w,          "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, Aqk,        "T HV C",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v_new,      "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, G,          "T HV KG",  KCP_ACC)                          \
    F(KCP_IN,   KCP_ALWAYS, do_,        "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  dh_out,     "NS HV K V", KCP_ACC)                         \
    F(KCP_OUT,  KCP_ALWAYS, dAqk,       "T HV C",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dv_local,   "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dU,         "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dh,         "NC HV K V", KCP_ACTV)                        \
    F(KCP_OUT,  KCP_ALWAYS, dh_in,      "NS HV K V", KCP_ACC)
KCP_STRUCT(kcp_chunk_backward, KCP_CHUNK_BACKWARD)

/* ---- chapter 10: through WY and the gate's sum
 * spec 8.  dq, dk sum over the value heads of each query/key head. dg is w.r.t. the
 * natural log g of each token. The starred sums leave out what cancels. */
#define KCP_WY_BACKWARD(F)                                                            \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, q,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, k,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, G,          "T HV KG",  KCP_ACC)                          \
    F(KCP_IN,   KCP_ALWAYS, beta,       "T HV",     KCP_ACC)                          \
    F(KCP_IN,   KCP_ALWAYS, A,          "T HV C",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v_new,      "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, h,          "NC HV K V", KCP_ACTV)                        \
    F(KCP_IN,   KCP_ALWAYS, do_,        "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, dAqk,       "T HV C",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, dU,         "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, dh,         "NC HV K V", KCP_ACTV)                        \
    F(KCP_OUT,  KCP_ALWAYS, dq,         "T H K",    KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dk,         "T H K",    KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dv,         "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dbeta,      "T HV",     KCP_ACC)                          \
    F(KCP_OUT,  KCP_ALWAYS, dg,         "T HV KG",  KCP_ACC)
KCP_STRUCT(kcp_wy_backward, KCP_WY_BACKWARD)

/* ---- chapter 11: the affine map of a stretch, in reverse
 * spec 5, 7.  dmap [s] = [dh_ext | M], M as in chapter 05 (not transposed): backward
 * applies M^T. dh_end: as h_start, for stretches that end a sequence. With reuse_M the
 * columns of M are not touched. The fold is chapter 07's with pass backward. */
#define KCP_MERGE_BACKWARD(F)                                                         \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, want,       "NS",       KCP_I32)                          \
    F(KCP_IN,   KCP_ONLY_GDN, q,        "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_GDN, k,        "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_KDA, qg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ONLY_KDA, kg,       "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, w,          "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, G,          "T HV KG",  KCP_ACC)                          \
    F(KCP_IN,   KCP_ALWAYS, do_,        "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, dv_local,   "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  dh_end,     "NS HV K V", KCP_ACC)                         \
    F(KCP_OUT,  KCP_ALWAYS, dmap,       "NS HV K V+K", KCP_MAP)
KCP_STRUCT(kcp_merge_backward, KCP_MERGE_BACKWARD)

/* ---- chapter 12: compress and expand
 * spec 9.  h_kept keeps the one initial state that can differ from h_start: that of the
 * first stretch. Pass forward compresses h_in into h_kept; backward expands h_kept into
 * h_back, the other rows from h_start (NULL: 0). With one stretch h_kept is h_in. */
#define KCP_H0(F)                                                                     \
    F(KCP_IN,   KCP_ALWAYS, h_in,       "NS HV K V", KCP_ACC)                         \
    F(KCP_IN,   KCP_MAYBE,  h_start,    "NS HV K V", KCP_ACC)                         \
    F(KCP_FOUT, KCP_ALWAYS, h_kept,     "1 HV K V", KCP_ACC)                          \
    F(KCP_BIN,  KCP_ALWAYS, h_kept_in,  "1 HV K V", KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, h_back,     "NS HV K V", KCP_ACC)
KCP_STRUCT(kcp_h0, KCP_H0)

/* ---- chapter 13: the whole backward on R ranks
 * dh0, dht by global sequence, as h0 and ht. dA_log and ddt_bias come back summed over
 * the ranks, the same on each. saved is what 08 wrote. */
#define KCP_BACKWARD_(F)                                                              \
    KCP_LAYER(F)                                                                      \
    F(KCP_IN,   KCP_ALWAYS, do_,        "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  dht,        "N HV K V", KCP_ACC)                          \
    F(KCP_OUT,  KCP_ALWAYS, dq_raw,     "T H K",    KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dk_raw,     "T H K",    KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dv,         "T HV V",   KCP_ACTV)                         \
    F(KCP_OUT,  KCP_ALWAYS, dg_raw,     "T HV KG",  KCP_ACC)                          \
    F(KCP_OUT,  KCP_ALWAYS, dbeta_raw,  "T HV",     KCP_ACC)                          \
    F(KCP_OUT,  KCP_MAYBE,  dA_log,     "HV",       KCP_ACC)                          \
    F(KCP_OUT,  KCP_MAYBE,  ddt_bias,   "HV KG",    KCP_ACC)                          \
    F(KCP_OUT,  KCP_ALWAYS, dh0,        "N HV K V", KCP_ACC)
struct kcp_backward {
    KCP_CALL KCP_BACKWARD_(KCP_MEMBER)
    const void *saved;
    size_t saved_bytes;
};

/* ---- chapter 14: the causal convolution, and the token shift
 * spec 10.  y_t = act(bias + sum_j weight_j x_{t+j-Wc+1}); shift: y_t = x_{t-1} - x_t.
 * dweight and dbias come back summed over the ranks, in stretch order. */
#define KCP_CONV(F)                                                                   \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, x,          "T D",      KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  weight,     "D Wc",     KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  bias,       "D",        KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, y,          "T D",      KCP_ACTV)                         \
    F(KCP_BIN,  KCP_ALWAYS, dy,         "T D",      KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dx,         "T D",      KCP_ACTV)                         \
    F(KCP_BOUT, KCP_MAYBE,  dweight,    "D Wc",     KCP_ACC)                          \
    F(KCP_BOUT, KCP_MAYBE,  dbias,      "D",        KCP_ACC)
KCP_STRUCT(kcp_conv, KCP_CONV)

/* ---- chapter 15: Spike-KDA
 * spec 11.  alpha = sigma(alpha_base + W_alpha spike), beta = sigma(beta_base + w_beta
 * spike): D spikes a head; KDA with these gates and scale 1, C the tile of its scan.
 * drop [t] = 1: the token is the identity, and repeats the last output that its
 * sequence emitted; before the first, o0 (NULL: 0). active [t][n] = 0: the identity,
 * which emits. A mask may be NULL, on every rank or on none. ot: the last output
 * emitted; ht and ot are the h0 and o0 with which the sequence goes on. h0, o0, ht, ot
 * and their gradients by global sequence. dW_alpha and dw_beta come back summed over
 * the ranks. */
#define KCP_SCAN_(F)                                                                  \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, q,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, k,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, spike,      "T HV D",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, alpha_base, "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, beta_base,  "T HV",     KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, W_alpha,    "HV K D",   KCP_ACC)                          \
    F(KCP_IN,   KCP_ALWAYS, w_beta,     "HV D",     KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  drop,       "T",        KCP_I32)                          \
    F(KCP_IN,   KCP_MAYBE,  active,     "T HV",     KCP_I32)                          \
    F(KCP_IN,   KCP_MAYBE,  h0,         "N HV K V", KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  o0,         "N HV V",   KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, o,          "T HV V",   KCP_ACTV)                         \
    F(KCP_FOUT, KCP_ALWAYS, ht,         "N HV K V", KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, ot,         "N HV V",   KCP_ACC)                          \
    F(KCP_BIN,  KCP_ALWAYS, do_,        "T HV V",   KCP_ACTV)                         \
    F(KCP_BIN,  KCP_MAYBE,  dht,        "N HV K V", KCP_ACC)                          \
    F(KCP_BIN,  KCP_MAYBE,  dot,        "N HV V",   KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dq,         "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dk,         "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dv,         "T HV V",   KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dspike,     "T HV D",   KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dalpha_base, "T HV K",  KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dbeta_base, "T HV",     KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dW_alpha,   "HV K D",   KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dw_beta,    "HV D",     KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dh0,        "N HV K V", KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, do0,        "N HV V",   KCP_ACC)
KCP_STRUCT(kcp_scan, KCP_SCAN_)

/* ---- chapter 16: the rest of the family, forward and backward on R ranks
 * spec 11.  model says which: KCP_DPLR reads a and b, KCP_GDN2 reads b and omega, GLA
 * none of them; what a model does not read may be NULL, with its gradient. g is the
 * natural log of the decay, already activated; KG is K. h0, ht, dh0, dht by global
 * sequence, as in 08 and 13. h_kept, kcp_saved_states() states of the caller's, carries
 * the initial states from forward to backward; NULL: backward makes them again. */
#define KCP_FAMILY(F)                                                                 \
    KCP_GRID(F)                                                                       \
    F(KCP_IN,   KCP_ALWAYS, q,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, k,          "T H K",    KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, v,          "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_ALWAYS, g,          "T HV K",   KCP_ACC)                          \
    F(KCP_IN,   KCP_MAYBE,  a,          "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  b,          "T HV K",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  omega,      "T HV V",   KCP_ACTV)                         \
    F(KCP_IN,   KCP_MAYBE,  h0,         "N HV K V", KCP_ACC)                          \
    F(KCP_FOUT, KCP_ALWAYS, o,          "T HV V",   KCP_ACTV)                         \
    F(KCP_FOUT, KCP_ALWAYS, ht,         "N HV K V", KCP_ACC)                          \
    F(KCP_BIN,  KCP_ALWAYS, do_,        "T HV V",   KCP_ACTV)                         \
    F(KCP_BIN,  KCP_MAYBE,  dht,        "N HV K V", KCP_ACC)                          \
    F(KCP_BOUT, KCP_ALWAYS, dq,         "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dk,         "T H K",    KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dv,         "T HV V",   KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dg,         "T HV K",   KCP_ACC)                          \
    F(KCP_BOUT, KCP_MAYBE,  da,         "T HV K",   KCP_ACTV)                         \
    F(KCP_BOUT, KCP_MAYBE,  db,         "T HV K",   KCP_ACTV)                         \
    F(KCP_BOUT, KCP_MAYBE,  domega,     "T HV V",   KCP_ACTV)                         \
    F(KCP_BOUT, KCP_ALWAYS, dh0,        "N HV K V", KCP_ACC)
struct kcp_family {
    KCP_CALL KCP_FAMILY(KCP_MEMBER)
    void *h_kept;
};

#endif
