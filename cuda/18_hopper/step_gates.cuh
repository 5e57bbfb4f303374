// step_gates.cuh -- a warp's part of a step's gates: addresses and sums of decays.
// Book: chapter 18, "Code: kernels".  Checked by: every variant that includes it.
// Next: forward_one/gate_warps.cuh.
#ifndef KCP_STEP_GATES_CUH
#define KCP_STEP_GATES_CUH

#include "cuda/tile/math.cuh"
#include "cuda/tile/pack.cuh"

// A warp has 16 rows and 32 channels of a step of 32 rows: the first 16 rows, which end
// at the anchor, or (`upper` = 1) the last 16. A lane has 8 rows of 2 channels: lanes 0
// to 15 have the warp's first 8 rows, lanes 16 to 31 (`far` = 1) the last 8. Lanes 16
// to 31 swap rows r and r + 4, so that no two lanes access one bank.
struct gate_lane {
    int upper, far;
    uint32_t row[2];                     // of the lane's rows r < 4 and r >= 4

    __device__ __forceinline__ uint32_t at(int r) const
    {
        return (row[r / 4] ^ r << 4) + r * 128;
    }
    __device__ __forceinline__ int token(int r) const
    {
        return 16 * upper + 8 * far + (r ^ 4 * far);
    }
};

// Argument `tile` is the shared address of a tile [32 rows, 64 channels] in swizzle128;
// the warp has channels 32 (quarter % 2) to 32 (quarter % 2) + 31 of it.
static __device__ __forceinline__ struct gate_lane gate_lane_of(uint32_t tile,
                                                                int upper, int quarter)
{
    const int lane = threadIdx.x % 32, far = lane / 16;
    const int piece = (quarter % 2 * 4 + lane % 16 / 4) ^ far * 4;
    const uint32_t base = tile + upper * 2048 + far * 1024 + piece * 16 + lane % 4 * 4;
    return { upper, far, { base + far * 512, base - far * 512 } };
}

// On entry G[r] is 2^u of the lane's row r, and its log2 decay is top / (1 + 2^u); rows
// from `rows` on do not decay. Sums the decays of the lane's rows in groups of four:
// the sum from the anchor to row r is G[r] + from[r / 4]. `all` receives the sums over
// the warp's 16 rows.
template <int whole>
static __device__ __forceinline__ void sum_decays(const struct gate_lane &l, float top,
                                                  int rows, float (*G)[2],
                                                  float (*from)[2], float *all)
{
    #pragma unroll
    for (int r = 0; r < 8; r++) {
        const int there = whole || l.token(r) < rows;
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            const float sigmoid = there ? rcp_approx(1.0f + G[r][j]) : 0.0f;
            G[r][j] = r % 4 ? fmaf(top, sigmoid, G[r - 1][j]) : top * sigmoid;
        }
    }
    #pragma unroll
    for (int j = 0; j < 2; j++) {
        const float own = G[3][j] + G[7][j], other = __shfl_xor_sync(~0u, own, 16);
        all[j] = own + other;
        const float before = l.upper ? 0.0f : -all[j];
        from[0][j] = l.far ? before + other + G[7][j] : before;
        from[1][j] = l.far ? before + other : before + G[3][j];
    }
}

#endif
