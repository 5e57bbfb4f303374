// step_record.cuh -- what the forward in one kernel keeps of a step for its backward.
// Book: chapter 18, "Backward".
// Checked by: tests/13_backward/checks.c.
// Next: backward_one/storage.cuh.
#ifndef KCP_STEP_RECORD_CUH
#define KCP_STEP_RECORD_CUH

// Format "steps" of the saved block (ref/core/saved.def): one record per step of 32
// tokens and value head, at number (step HV + n). Step j of a stretch whose chunks
// begin with number c is step 2 c + j; where the last chunk of a stretch has at most 32
// tokens, its second step has no record. KDA alone, K = V = 128.
//
// a is the sum of log2 decays over the step's first 16 tokens, and
//
//     qf = scale rstd_q q 2^(G - a)    kf = rstd_k k 2^(G - a)    kb = k 2^(a - G)
//
// with q and k as the caller gave them. Past the stretch's end decays are 0, and so are
// beta, rows and columns of the triangles, and rows of w.
//
// Both operands of a product lie in core matrices of 8 rows of 16 bytes without a
// swizzle, in which a warp of forward's scan stores a register of its accumulators to
// 128 contiguous bytes. Triangles have wgmma's 64-byte swizzle.
struct step_record {
    unsigned char state[32768];          // 2^a S, S of the step's start: core_offset
    unsigned char w[8192];               // rstd_k v_new: core_offset(token, v)
    unsigned char Ab[2048];              // rstd_k_i A_ij beta_j: triangle64_offset
    unsigned char Aqk[2048];             // qf_i kb_j, j <= i
    float q_factor[32];                  // scale rstd_q; scale, without l2norm
    float rstd_k[32];                    // 1 without l2norm
    float beta[32];                      // at least 2^-40 in magnitude; 0 past the end
    float unused[32];
};

static_assert(sizeof(struct step_record) == 45568, "as in ref/core/saved.def");

// Byte of element (i, v), where i is a key row or a token.
static __device__ __forceinline__ int core_offset(int i, int v)
{
    return ((i / 8 * 16 + v / 8) * 8 + v % 8) * 16 + i % 8 * 2;
}

// Byte of row i, columns 8 piece .. 8 piece + 7.
static __device__ __forceinline__ int triangle64_offset(int i, int piece)
{
    return i * 64 + ((piece ^ (i >> 1 & 3)) << 4);
}

#endif
