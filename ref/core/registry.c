/* registry.c -- the table of stages (name, fields, reference), and exchange-form names.
 *
 * Book: chapter 00.  Checked by: tests/judge/self_cases.c.  Next: ref/01_step.c. */
#include "ref.h"

#define FORM_NAME(number, name) #name,
const char *const kcp_form_names[KCP_FORMS] = { KCP_FORM_LIST(FORM_NAME) };

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

#define ENTRY(number, f, ranks) HELD(number, f, ranks, NULL)
#define HELD(number, f, ranks, oracle)                                                \
    { number "_" #f, f, sizeof f / sizeof *f, sizeof(struct kcp_##f), ranks, run_##f, \
      oracle }
const struct kcp_stage kcp_stages[] = {
    ENTRY("01", step, 0),
    ENTRY("02", gate, 0),
    ENTRY("03", wy, 0),
    ENTRY("04", chunk, 0),
    ENTRY("05", affine, 0),
    ENTRY("07", merge, 0),
    ENTRY("08", forward, 1),
    ENTRY("09", chunk_backward, 0),
    ENTRY("10", wy_backward, 0),
    ENTRY("11", merge_backward, 0),
    ENTRY("12", h0, 0),
    ENTRY("13", backward, 1),
    ENTRY("14", conv, 1),
    HELD("15", scan, 1, run_scan_step),
    HELD("16", family, 1, run_family_step),
    ENTRY("17", ladder, 0),
};
const int kcp_nstages = sizeof kcp_stages / sizeof *kcp_stages;
