// v3_mma.cu -- rung 3: the tensor core, with fragments loaded element by element.
// Book: chapter 17, "The tensor core".
#include "ladder.cuh"

// Bound: shared memory. A chunk's 4 C K V flops take 1024 cycles of the tensor cores.
// But each of the eight warps reads all of w and kg: 256 KiB per chunk, 2048 cycles at
// 128 bytes per cycle. Bank conflicts multiply this time by eight, because all rows
// start in the same bank. A warp holds 16 columns of S, transposed, as D fragments: 64
// registers per thread. Each chunk has two barriers, as in v2.
struct tiles {
    bf16 w[CHUNK][DIM], kg[CHUNK][DIM];
};

// Computes y^T [16,64] = S^T w^T. Operand B has one column per token and one row per
// channel. The two channels that a lane needs are adjacent in the token's row of w.
static __device__ __forceinline__ void times_w(float (*y)[4], const float (*S)[4],
                                               const bf16 (*w)[DIM])
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < DIM / 16; i++) {
        uint32_t a[4];
        pack_a(a, S + 2 * i);
        #pragma unroll
        for (int c = 0; c < CHUNK / 8; c++) {
            const bf16 *row = &w[c * 8 + g][i * 16 + e];
            mma_m16n8k16(y[c], a, *(const uint32_t *)row, *(const uint32_t *)(row + 8));
        }
    }
}

// Loads channel `key` of two tokens with two loads, because each token is a row of kg.
static __device__ __forceinline__ uint32_t two_rows(const bf16 (*kg)[DIM], int token,
                                                    int key)
{
    const uint32_t low = *(const uint16_t *)&kg[token][key];
    const uint32_t high = *(const uint16_t *)&kg[token + 1][key];
    return low | high << 16;
}

// Computes S^T [16,128] += x^T kg. B has one column per channel and one row per token.
static __device__ __forceinline__ void add_kg(float (*S)[4], const float (*x)[4],
                                              const bf16 (*kg)[DIM])
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) {
        uint32_t a[4];
        pack_a(a, x + 2 * c);
        #pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            mma_m16n8k16(S[i], a, two_rows(kg, c * 16 + e, i * 8 + g),
                         two_rows(kg, c * 16 + 8 + e, i * 8 + g));
    }
}

// Computes x^T = u^T - y^T, and stores x to v_new element by element, because adjacent
// elements of a lane belong to different tokens.
static __device__ __forceinline__ void subtract(float (*y)[4], const bf16 *u,
                                                bf16 *v_new, int64_t ld, int len)
{
    const int g = threadIdx.x % 32 / 4, e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int c = 0; c < CHUNK / 8; c++)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int token = c * 8 + e + j % 2, v = g + j / 2 * 8;
            const int64_t at = token * ld + v;
            y[c][j] = token < len ? (float)u[at] - y[c][j] : 0.0f;
            if (token < len) v_new[at] = y[c][j];
        }
}

static __global__ __launch_bounds__(2 * DIM, 1) void ladder(const struct kcp_ladder a)
{
    __shared__ __align__(128) struct tiles m;
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x / 32 * 16;
    const int e = threadIdx.x % 4 * 2;
    const int64_t ld = (int64_t)a.HV * DIM, state = state_at(a, s, n) + v;
    float S[DIM / 8][4];

    load_state<DIM>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, DIM);
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const float *decay = (const float *)a.decay + ((int64_t)c * a.HV + n) * DIM;
        float x[CHUNK / 8][4] = {};
        load_bf16_rows(m.w, in<bf16>(a.w, z.t, a.HV, n, DIM), ld, z.len);
        load_bf16_rows(m.kg, in<bf16>(a.kg, z.t, a.HV, n, DIM), ld, z.len);
        __syncthreads();

        times_w(x, S, m.w);
        subtract(x, in<bf16>(a.u, z.t, a.HV, n, DIM) + v,
                 out<bf16>(a.v_new, z.t, a.HV, n, DIM) + v, ld, z.len);
        #pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            #pragma unroll
            for (int j = 0; j < 4; j++) S[i][j] *= decay[i * 8 + e + j % 2];
        add_kg(S, x, m.kg);
        __syncthreads();
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

int v3_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    if (!ladder_takes(a)) return KCP_NA;
    return launch_rung(a, ladder, 2 * DIM, 0);
}

KCP_VARIANT(ladder_v3_mma) = {
    "17_ladder", "v3_mma", "tensor cores: fragments loaded element by element",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64", v3_ladder, NULL };
