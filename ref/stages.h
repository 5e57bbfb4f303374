/* stages.h -- defines one args struct per stage from the stage's list of fields.
 * Book: each stage's chapter.
 *
 * stages/NN.def lists each field of a stage once: KCP_FIELD(io, when, name, shape,
 * store), explained in kcp.h. In this file each field becomes a member. Inputs are
 * pointers to const. Arrays of numbers are pointers to void, because their type depends
 * on the variant. Arrays of indices are pointers to int32_t or int64_t. core/registry.c
 * generates the table of fields from the same list. */
#ifndef KCP_STAGES_H
#define KCP_STAGES_H

#define KCP_CONST_KCP_IN   const
#define KCP_CONST_KCP_BIN  const
#define KCP_CONST_KCP_OUT
#define KCP_CONST_KCP_BOUT
#define KCP_CONST_KCP_FOUT
#define KCP_TYPE_KCP_ACTV  void
#define KCP_TYPE_KCP_ACC   void
#define KCP_TYPE_KCP_G     void
#define KCP_TYPE_KCP_BETA  void
#define KCP_TYPE_KCP_MAP   void
#define KCP_TYPE_KCP_I32   int32_t
#define KCP_TYPE_KCP_I64   int64_t
#define KCP_FIELD(io, when, name, shape, store) KCP_CONST_##io KCP_TYPE_##store *name;

struct kcp_call {
#include "stages/call.def"
};

enum { KCP_WANT_H = 1, KCP_WANT_M = 2 };     /* for stages 05, 11: parts of a map */

struct kcp_step {
#include "stages/call.def"
#include "stages/01.def"
};

struct kcp_gate {
#include "stages/call.def"
#include "stages/02.def"
};

struct kcp_wy {
#include "stages/call.def"
#include "stages/03.def"
};

struct kcp_chunk {
#include "stages/call.def"
#include "stages/04.def"
};

struct kcp_affine {
#include "stages/call.def"
#include "stages/05.def"
};

//> merge_struct
struct kcp_merge {
#include "stages/call.def"
#include "stages/07.def"
};
//< merge_struct

struct kcp_forward {
#include "stages/call.def"
#include "stages/08.def"
    void *saved;
    size_t saved_bytes;
};

struct kcp_chunk_backward {
#include "stages/call.def"
#include "stages/09.def"
};

struct kcp_wy_backward {
#include "stages/call.def"
#include "stages/10.def"
};

struct kcp_merge_backward {
#include "stages/call.def"
#include "stages/11.def"
};

struct kcp_h0 {
#include "stages/call.def"
#include "stages/12.def"
};

struct kcp_backward {
#include "stages/call.def"
#include "stages/13.def"
    const void *saved;
    size_t saved_bytes;
};

struct kcp_conv {
#include "stages/call.def"
#include "stages/14.def"
};

struct kcp_scan {
#include "stages/call.def"
#include "stages/15.def"
};

struct kcp_family {
#include "stages/call.def"
#include "stages/16.def"
    void *h_kept;
};

struct kcp_ladder {
#include "stages/call.def"
#include "stages/17.def"
};

#undef KCP_FIELD

#endif
