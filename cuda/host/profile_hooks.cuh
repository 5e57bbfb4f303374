// profile_hooks.cuh -- where a layer goes from part to part, for a bench to time.
// Book: chapter 18.
// Checked by: bench/bench/time.cu, whose parts add up to the whole.
// Next: ../08_forward/program.cuh.
//
// A program that links a kcp_part is called there, on the stream, and may record an
// event; the library has none, and nothing happens.
#ifndef KCP_PROFILE_HOOKS_CUH
#define KCP_PROFILE_HOOKS_CUH

struct CUstream_st;

// What begins: the local (h_ext, M) pass, the exchange with its fold, the local output
// pass. What comes before the first is the front: norms, gate, WY.
enum profile_part { PART_SUM, PART_EXCHANGE, PART_MAIN };

#ifdef __cplusplus
extern "C"
#endif
__attribute__((weak)) void kcp_part(int part, struct CUstream_st *stream);

static inline void profile_hook(enum profile_part p, struct CUstream_st *stream)
{
    if (kcp_part) kcp_part(p, stream);
}

#endif
