// v3_records_walk.cuh -- what the scan's two walks share: o's way out, links in turn.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_walk_kda.cuh.
#ifndef KCP_V3_RECORDS_WALK_CUH
#define KCP_V3_RECORDS_WALK_CUH

#include "v3_records_chain.cuh"

// o^T, packed as soon as it is there: registers of products may not be read while
// others are under way.
static __device__ __forceinline__ void pack_o(uint32_t (*p)[4], const float (*o)[4])
{
    #pragma unroll
    for (int i = 0; i < 16; i++)
        p[i / 4][i % 4] = pack_bf16x2(o[i / 2][i % 2 * 2], o[i / 2][i % 2 * 2 + 1]);
}

// Where this thread's pieces of o go: its first row of the next chunk, from a row to
// the next, and how many rows are left from there.
struct o_out { bf16 *to; int64_t step; int left; };

static __device__ __forceinline__ struct o_out o_out(const struct records &x, int z,
                                                     int n, int v0, int count)
{
    const int wg = threadIdx.x / 128, at = threadIdx.x % 128;
    const struct token_range w = chunk_tokens(x.a, z, first_chunk(x, z));
    const int64_t step = (int64_t)x.a.HV * x.a.V;
    const int64_t rows = ((const int *)x.a.cu)[z + 1] - (int64_t)w.t;
    bf16 *o = out<bf16>(x.a.o, w.t, x.a.HV, n, x.a.V);
    return { o + v0 + 64 * wg + at % 8 * 8 + at / 8 * step, step,
             (int)min(rows, (int64_t)count * CHUNK) - at / 8 };
}

// o of a chunk is turned where the next chunk's v is, each warp's 16 columns where it
// has read v's; and leaves later, whole rows by the warpgroup, before that place is
// given back. Between the two a warp need not wait.
template <int ld>
static __device__ __forceinline__ void turn_o(bf16 *v, const uint32_t (*p)[4],
                                              uint64_t *turned)
{
    const int lane = threadIdx.x % 32;
    v += threadIdx.x / 32 * 16;
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < 4; i++)
        stmatrix_x4_trans(
            v + (i * 16 + lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8, p[i]);
    mbarrier_arrive(turned + threadIdx.x / 128);
}

template <int ld>
static __device__ __forceinline__ void rows_of_o(struct o_out &to, const bf16 *v,
                                                 uint64_t *turned, int turn)
{
    const int wg = threadIdx.x / 128, at = threadIdx.x % 128;
    mbarrier_wait(turned + wg, turn);
    #pragma unroll
    for (int i = 0; i < CHUNK; i += 16)
        if (i < to.left)
            *(uint4 *)(to.to + i * to.step) =
                *(const uint4 *)&v[(i + at / 8) * ld + 64 * wg + at % 8 * 8];
    to.to += CHUNK * to.step, to.left -= CHUNK;
}

// The last chunk's o: no other v is there, its own place will do.
template <class Walk>
static __device__ __forceinline__ void last_o(Walk &w, int count)
{
    uint32_t packed[4][4];
    bf16 *v = w.m.v[count % w.m.FIRST][0];
    wgmma_wait<0>();
    fence_operand<CHUNK / 8>(w.o);
    pack_o(packed, w.o);
    turn_o<Walk::LD>(v, packed, w.m.turned);
    rows_of_o<Walk::LD>(w.to, v, w.m.turned, count - 1);
}

// A link is cut where no product is under way, in its middle: the compiler waits there
// for all of them. front: the state as it was before the chunk to v_new and q S; back:
// v_new into the state and into o. The next front runs beside the end of back.
template <class Walk>
static __device__ __forceinline__ void walk_links(Walk w, int count, float (*S)[4])
{
    if (count <= 0) return;
    w.front(0, S);
    for (int turn = 0; turn + 1 < count; turn++)
        w.back(turn, turn + 1, S), w.front(turn + 1, S);
    w.back(count - 1, 0, S);
    last_o(w, count);
}

#endif
