// ladder.cuh -- shared by the rungs (the kernels v1 to v8): sizes, copies, products.
// Book: chapter 17.
#pragma once

#include "cuda/tile/launch_shared.cuh"
#include "cuda/tile/pipeline.cuh"

// Returns whether rungs 2 to 8 support the call: aligned arrays, and K = V = DIM and
// CHUNK tokens per chunk, so that the compiler can keep a state in registers.
static inline int ladder_takes(const struct kcp_ladder *a)
{
    const void *p[] = { a->u, a->w, a->kg, a->decay, a->v_new };
    return a->K == DIM && a->V == DIM && a->C == CHUNK && all_aligned_16(p);
}

// Launches a rung: a block per stretch (a token range of one sequence) and head.
static inline int launch_rung(const struct kcp_ladder *a,
                              void (*rung)(struct kcp_ladder), int threads,
                              size_t bytes)
{
    if (!a->NS) return KCP_OK;
    return launch_shared(rung, dim3(a->NS, a->HV), threads, bytes, a->stream, *a);
}

// Returns the element offset of the fp32 state [K,V] of stretch s and head n.
static __device__ __forceinline__ int64_t state_at(const struct kcp_ladder &a, int s,
                                                   int n)
{
    return ((int64_t)s * a.HV + n) * a.K * a.V;
}

//> pack-a
// Rounds two adjacent D fragments to bf16, and packs them as a 16 x 16 operand A.
static __device__ __forceinline__ void pack_a(uint32_t *a, const float (*d)[4])
{
    a[0] = pack_bf16x2(d[0][0], d[0][1]);
    a[1] = pack_bf16x2(d[0][2], d[0][3]);
    a[2] = pack_bf16x2(d[1][0], d[1][1]);
    a[3] = pack_bf16x2(d[1][2], d[1][3]);
}
//< pack-a

// Copies rows of a head to shared memory, for rungs 3 and 4. Rows >= len become 0.
static __device__ void load_bf16_rows(bf16 (*to)[DIM], const bf16 *from,
                                      int64_t stride, int len)
{
    for (int at = threadIdx.x; at < CHUNK * DIM / 8; at += 2 * DIM) {
        const int row = at / 16, column = at % 16 * 8;
        uint4 q = make_uint4(0, 0, 0, 0);
        if (row < len) q = *(const uint4 *)(from + row * stride + column);
        *(uint4 *)&to[row][column] = q;
    }
}

// Rungs 4 and 5 compute y^T [16,64] = S^T w^T. A 16 x 16 block of w is operand B for 16
// tokens.
static __device__ __forceinline__ void ldmatrix_times_w(float (*y)[4],
                                                        const float (*S)[4],
                                                        const bf16 *w)
{
    const bf16 *row = w + ldmatrix_offset_b(threadIdx.x % 32, DIM);
    #pragma unroll
    for (int i = 0; i < DIM / 16; i++) {
        uint32_t a[4], b[4];
        pack_a(a, S + 2 * i);
        #pragma unroll
        for (int c = 0; c < CHUNK / 16; c++) {
            ldmatrix_x4(b, row + c * 16 * DIM + i * 16);
            mma_m16n16k16(y + 2 * c, a, b);
        }
    }
}

// Rungs 4 and 5 compute S^T [16,128] += x^T kg. A transposed block of kg is B for 16
// channels.
static __device__ __forceinline__ void ldmatrix_add_kg(float (*S)[4],
                                                       const float (*x)[4],
                                                       const bf16 *kg)
{
    const bf16 *row = kg + ldmatrix_offset_a(threadIdx.x % 32, DIM);
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) {
        uint32_t a[4], b[4];
        pack_a(a, x + 2 * c);
        #pragma unroll
        for (int i = 0; i < DIM / 16; i++) {
            ldmatrix_x4_trans(b, row + c * 16 * DIM + i * 16);
            mma_m16n16k16(S + 2 * i, a, b);
        }
    }
}

//> load-stage
// Loads chunk c of stretch s (a token range of one sequence), if this chunk exists.
// Commits a group even without copies, so that each cp_async_wait<STAGES - 2> waits for
// one more chunk. Each rung has its own `async_rows`.
template <class Stage>
static __device__ void load_stage(const struct kcp_ladder &a, int s, int n, int c,
                                  Stage *to)
{
    const int64_t ld = (int64_t)a.HV * DIM;
    if (c < ((const int *)a.cn)[s + 1]) {
        const struct token_range z = chunk_tokens(a, s, c);
        const float *decay = (const float *)a.decay + ((int64_t)c * a.HV + n) * DIM;
        async_rows(to->w, in<bf16>(a.w, z.t, a.HV, n, DIM), ld, z.len);
        async_rows(to->kg, in<bf16>(a.kg, z.t, a.HV, n, DIM), ld, z.len);
        async_rows(to->u, in<bf16>(a.u, z.t, a.HV, n, DIM), ld, z.len);
        if (threadIdx.x < DIM / 4)
            cp_async_16(to->decay + 4 * threadIdx.x, decay + 4 * threadIdx.x, 1);
    }
    cp_async_commit();
}
//< load-stage
