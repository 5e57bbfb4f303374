/* stages.c -- the stages as data: name, field table, reference. Read by the judge,
 * by kcp-run --stage and by kcp-check --emit.
 *
 * Book: chapter 00.  Checked by: tests/judge/self.c.  Next: 01_step.c.
 */
#include "ref.h"

#define ROW(io, when, name, shape, store)                                             \
    { #name, shape, io, when, store, offsetof(struct STAGE, name) },
#define REF(f) static int run_##f(void *args) { return ref_##f(args); }

REF(step) REF(gate) REF(wy) REF(chunk) REF(affine) REF(merge) REF(forward)
REF(chunk_backward) REF(wy_backward) REF(merge_backward) REF(h0) REF(backward) REF(conv)
REF(scan) REF(scan_step) REF(family) REF(family_step)

#define STAGE kcp_step
static const struct kcp_field step[] = { KCP_STEP(ROW) };
#undef STAGE
#define STAGE kcp_gate
static const struct kcp_field gate[] = { KCP_GATE(ROW) };
#undef STAGE
#define STAGE kcp_wy
static const struct kcp_field wy[] = { KCP_WY(ROW) };
#undef STAGE
#define STAGE kcp_chunk
static const struct kcp_field chunk[] = { KCP_CHUNK(ROW) };
#undef STAGE
#define STAGE kcp_affine
static const struct kcp_field affine[] = { KCP_AFFINE(ROW) };
#undef STAGE
#define STAGE kcp_merge
static const struct kcp_field merge[] = { KCP_MERGE(ROW) };
#undef STAGE
#define STAGE kcp_forward
static const struct kcp_field forward[] = { KCP_FORWARD_(ROW) };
#undef STAGE
#define STAGE kcp_chunk_backward
static const struct kcp_field chunk_backward[] = { KCP_CHUNK_BACKWARD(ROW) };
#undef STAGE
#define STAGE kcp_wy_backward
static const struct kcp_field wy_backward[] = { KCP_WY_BACKWARD(ROW) };
#undef STAGE
#define STAGE kcp_merge_backward
static const struct kcp_field merge_backward[] = { KCP_MERGE_BACKWARD(ROW) };
#undef STAGE
#define STAGE kcp_h0
static const struct kcp_field h0[] = { KCP_H0(ROW) };
#undef STAGE
#define STAGE kcp_backward
static const struct kcp_field backward[] = { KCP_BACKWARD_(ROW) };
#undef STAGE
#define STAGE kcp_conv
static const struct kcp_field conv[] = { KCP_CONV(ROW) };
#undef STAGE
#define STAGE kcp_scan
static const struct kcp_field scan[] = { KCP_SCAN_(ROW) };
#undef STAGE
#define STAGE kcp_family
static const struct kcp_field family[] = { KCP_FAMILY(ROW) };
#undef STAGE

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
};
const int kcp_nstages = sizeof kcp_stages / sizeof *kcp_stages;
