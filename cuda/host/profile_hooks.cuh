// profile_hooks.cuh -- a hook at the boundaries between a layer's parts, for timing.
// Book: chapter 18.
//
// A program may define kcp_part. The hook calls kcp_part with the stream at each
// boundary, for example to record an event. The library does not define kcp_part, and
// without a definition the hook does nothing.
#pragma once

struct CUstream_st;

// The part of the layer that starts at a boundary. PART_SUM computes the local (h_ext,
// M), PART_EXCHANGE is the exchange with its fold, and PART_MAIN computes the local
// output. All work before PART_SUM is the front: norms, gate, WY.
enum profile_part { PART_SUM, PART_EXCHANGE, PART_MAIN };

#ifdef __cplusplus
extern "C"
#endif
__attribute__((weak)) void kcp_part(int part, struct CUstream_st *stream);

static inline void profile_hook(enum profile_part p, struct CUstream_st *stream)
{
    if (kcp_part) kcp_part(p, stream);
}
