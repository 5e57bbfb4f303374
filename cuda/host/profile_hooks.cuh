// parts.cuh -- where a layer goes from one part to the next, for a bench to time.
// Book: chapter 18.
// Checked by: bench/bench/time.cu, whose parts add up to the whole.
// Next: layer.cuh.
//
// A program that links a kcp_part is called there, on the stream, and may record an
// event; the library has none, and nothing happens.
#ifndef KCP_PARTS_CUH
#define KCP_PARTS_CUH

struct CUstream_st;

// What begins: the local (h_ext, M) pass, the exchange with its fold, the local output
// pass. What comes before the first is the front: norms, gate, WY.
enum part { PART_SUM, PART_EXCHANGE, PART_MAIN };

#ifdef __cplusplus
extern "C"
#endif
__attribute__((weak)) void kcp_part(int part, struct CUstream_st *stream);

static inline void part(enum part p, struct CUstream_st *stream)
{
    if (kcp_part) kcp_part(p, stream);
}

#endif
