/* registry.c -- the tables of stages and of models, and the names of exchange forms.
 * Book: chapter 00. */
#include "moves.h"
#include "ref.h"

const struct moves *kcp_moves;
const struct gpu *kcp_gpu;
gpu_launch *kcp_gpu_launch;

#define FORM_NAME(number, name) #name,
const char *const kcp_form_names[KCP_FORMS] = { KCP_FORM_LIST(FORM_NAME) };

#define MODEL_ROW(NAME, name, title, kind, reads, gates, map)                          \
    { #name, title, kind, reads, gates, map },
const struct kcp_model_row kcp_models[KCP_MODELS] = { KCP_MODEL_LIST(MODEL_ROW) };

#define KCP_FIELD(io, when, name, shape, store)                                       \
    { #name, shape, io, when, store, offsetof(struct ARGS, name) },

static const struct kcp_field step[] = {
#define ARGS kcp_step
#include "stages/01.def"
#undef ARGS
};
static const struct kcp_field gate[] = {
#define ARGS kcp_gate
#include "stages/02.def"
#undef ARGS
};
static const struct kcp_field wy[] = {
#define ARGS kcp_wy
#include "stages/03.def"
#undef ARGS
};
static const struct kcp_field chunk[] = {
#define ARGS kcp_chunk
#include "stages/04.def"
#undef ARGS
};
static const struct kcp_field affine[] = {
#define ARGS kcp_affine
#include "stages/05.def"
#undef ARGS
};
static const struct kcp_field merge[] = {
#define ARGS kcp_merge
#include "stages/07.def"
#undef ARGS
};
static const struct kcp_field forward[] = {
#define ARGS kcp_forward
#include "stages/08.def"
#undef ARGS
};
static const struct kcp_field chunk_backward[] = {
#define ARGS kcp_chunk_backward
#include "stages/09.def"
#undef ARGS
};
static const struct kcp_field wy_backward[] = {
#define ARGS kcp_wy_backward
#include "stages/10.def"
#undef ARGS
};
static const struct kcp_field merge_backward[] = {
#define ARGS kcp_merge_backward
#include "stages/11.def"
#undef ARGS
};
static const struct kcp_field h0[] = {
#define ARGS kcp_h0
#include "stages/12.def"
#undef ARGS
};
static const struct kcp_field backward[] = {
#define ARGS kcp_backward
#include "stages/13.def"
#undef ARGS
};
static const struct kcp_field conv[] = {
#define ARGS kcp_conv
#include "stages/14.def"
#undef ARGS
};
static const struct kcp_field scan[] = {
#define ARGS kcp_scan
#include "stages/15.def"
#undef ARGS
};
static const struct kcp_field family[] = {
#define ARGS kcp_family
#include "stages/16.def"
#undef ARGS
};
static const struct kcp_field ladder[] = {
#define ARGS kcp_ladder
#include "stages/17.def"
#undef ARGS
};

#define REF(f) static int run_##f(void *args) { return ref_##f(args); }

REF(step) REF(gate) REF(wy) REF(chunk) REF(affine) REF(merge) REF(forward)
REF(chunk_backward) REF(wy_backward) REF(merge_backward) REF(h0) REF(backward) REF(conv)
REF(scan) REF(scan_step) REF(family) REF(family_step) REF(ladder)

#define ENTRY(number, f, ranks, facts) HELD(number, f, ranks, NULL, facts)
#define HELD(number, f, ranks, oracle, facts)                                         \
    { number "_" #f, f, sizeof f / sizeof *f, sizeof(struct kcp_##f), ranks, run_##f, \
      oracle, facts },
enum { ANY_MODEL = KCP_TAKES_LAYER | KCP_TAKES_FAMILY, LAYER = KCP_TAKES_LAYER };
const struct kcp_stage kcp_stages[] = {
    ENTRY("01", step, 0, LAYER | KCP_BY_TOKEN)
    ENTRY("02", gate, 0, LAYER)
    ENTRY("03", wy, 0, LAYER)
    ENTRY("04", chunk, 0, LAYER)
    ENTRY("05", affine, 0, LAYER)
    ENTRY("07", merge, 0, ANY_MODEL | KCP_FOLDS)
    ENTRY("08", forward, 1, LAYER | KCP_SAVES)
    ENTRY("09", chunk_backward, 0, LAYER | KCP_TWO_PARTS)
    ENTRY("10", wy_backward, 0, LAYER | KCP_SUMS_GATES)
    ENTRY("11", merge_backward, 0, LAYER)
    ENTRY("12", h0, 0, ANY_MODEL)
    ENTRY("13", backward, 1, LAYER | KCP_LOADS | KCP_SUMS)
    ENTRY("14", conv, 1, ANY_MODEL | KCP_CONVOLVES | KCP_SUMS)
    HELD("15", scan, 1, run_scan_step, ANY_MODEL | KCP_SPIKES | KCP_SUMS)
    HELD("16", family, 1, run_family_step, KCP_TAKES_FAMILY | KCP_KEEPS)
    ENTRY("17", ladder, 0, LAYER)
};
const int kcp_nstages = sizeof kcp_stages / sizeof *kcp_stages;
