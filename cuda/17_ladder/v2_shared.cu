// v2_shared.cu -- rung 2: coalesced copies to shared memory, S in registers.
// Book: chapter 17, "Shared memory".
#include "ladder.cuh"

// Bound: shared-memory loads. The 2 C K V multiply-adds of a chunk, 2.1 million, take
// 16384 cycles at 128 per cycle. A thread needs one 16-byte load per four
// multiply-adds, at an address that is the same in all lanes. Such a load by a warp
// takes two cycles of shared memory, so the chunk's 16384 loads take 32768 cycles. The
// block copies w and kg once for its 128 threads. Each chunk has two barriers: one
// after the tiles have arrived, one after all threads have read the tiles.
//> storage
struct tiles {
    float w[CHUNK][DIM], kg[CHUNK][DIM];
    float x[CHUNK][DIM];         // only thread v uses column v: no barrier
};
//< storage

// Copies rows of a head to shared memory as fp32. Sixteen adjacent threads load the 256
// bytes of a row, so a warp loads two whole rows at a time. Rows >= len become 0.
static __device__ void load_rows(float (*to)[DIM], const bf16 *from, int64_t stride,
                                 int len)
{
    for (int at = threadIdx.x; at < CHUNK * DIM / 8; at += DIM) {
        const int row = at / 16, column = at % 16 * 8;
        uint4 q = make_uint4(0, 0, 0, 0);
        if (row < len) q = *(const uint4 *)(from + row * stride + column);
        float4 *y = (float4 *)&to[row][column];
        y[0] = make_float4(bf16x2_low(q.x), bf16x2_high(q.x), bf16x2_low(q.y),
                           bf16x2_high(q.y));
        y[1] = make_float4(bf16x2_low(q.z), bf16x2_high(q.z), bf16x2_low(q.w),
                           bf16x2_high(q.w));
    }
}

// Computes x = u - w S for four tokens together, as four independent sums.
static __device__ __forceinline__ void four_tokens(float *y, const float (*w)[DIM],
                                                   const float *S)
{
    #pragma unroll
    for (int p = 0; p < DIM; p += 4)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const float4 q = *(const float4 *)&w[j][p];
            y[j] -= q.x * S[p];
            y[j] -= q.y * S[p + 1];
            y[j] -= q.z * S[p + 2];
            y[j] -= q.w * S[p + 3];
        }
}

// Computes S += x kg for one token, as 128 independent sums.
static __device__ __forceinline__ void one_update(float *S, const float *kg, float x)
{
    #pragma unroll
    for (int i = 0; i < DIM; i += 4) {
        const float4 q = *(const float4 *)&kg[i];
        S[i] += q.x * x;
        S[i + 1] += q.y * x;
        S[i + 2] += q.z * x;
        S[i + 3] += q.w * x;
    }
}

static __global__ __launch_bounds__(DIM, 1) void ladder(const struct kcp_ladder a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct tiles *m = (struct tiles *)shared;
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x;
    const int64_t ld = (int64_t)a.HV * DIM, state = state_at(a, s, n) + v;
    const float *h_in = (const float *)a.h_in;
    float S[DIM];

    #pragma unroll
    for (int i = 0; i < DIM; i++) S[i] = h_in ? h_in[state + i * DIM] : 0.0f;
    //> walk
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const float *decay = (const float *)a.decay + ((int64_t)c * a.HV + n) * DIM;
        const bf16 *u = in<bf16>(a.u, z.t, a.HV, n, DIM) + v;
        bf16 *v_new = out<bf16>(a.v_new, z.t, a.HV, n, DIM) + v;
        load_rows(m->w, in<bf16>(a.w, z.t, a.HV, n, DIM), ld, z.len);
        load_rows(m->kg, in<bf16>(a.kg, z.t, a.HV, n, DIM), ld, z.len);
        __syncthreads();

        for (int j = 0; j < z.len; j += 4) {
            float y[4] = {};
            for (int i = 0; i < 4; i++)
                if (j + i < z.len) y[i] = u[(j + i) * ld];
            four_tokens(y, m->w + j, S);
            for (int i = 0; i < 4; i++) {
                m->x[j + i][v] = y[i];
                if (j + i < z.len) v_new[(j + i) * ld] = y[i];
            }
        }

        #pragma unroll
        for (int i = 0; i < DIM; i++) S[i] *= decay[i];
        for (int j = 0; j < z.len; j++) one_update(S, m->kg[j], m->x[j][v]);
        __syncthreads();
    }
    //< walk
    #pragma unroll
    for (int i = 0; i < DIM; i++) ((float *)a.h_out)[state + i * DIM] = S[i];
}

int v2_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    if (!ladder_takes(a)) return KCP_NA;
    return launch_rung(a, ladder, DIM, sizeof(struct tiles));
}

KCP_VARIANT(ladder_v2_shared) = {
    "17_ladder", "v2_shared", "w and kg in shared memory, the state in registers",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64", v2_ladder, NULL };
