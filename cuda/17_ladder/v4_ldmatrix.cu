// v4_ldmatrix.cu -- rung 4: ldmatrix and movmatrix load and transpose fragments.
// Book: chapter 17, "ldmatrix".
#include "ladder.cuh"
#include "cuda/tile/decay.cuh"

// Bound: shared memory, still 256 KiB per chunk with eightfold bank conflicts. But one
// ldmatrix replaces four of v3's loads of w, or eight of kg or u, and transposes kg and
// u as well. Results are transposed before the store, so that the 16 columns of a row,
// 32 bytes, are stored together. Each chunk has two barriers.
//> storage
struct tiles {
    bf16 w[CHUNK][DIM], kg[CHUNK][DIM], u[CHUNK][DIM];
    float decay[DIM];
};
//< storage

static __device__ void load_rows(bf16 (*to)[DIM], const bf16 *from, int64_t stride,
                                 int len)
{
    for (int at = threadIdx.x; at < CHUNK * DIM / 8; at += 2 * DIM) {
        const int row = at / 16, column = at % 16 * 8;
        uint4 q = make_uint4(0, 0, 0, 0);
        if (row < len) q = *(const uint4 *)(from + row * stride + column);
        *(uint4 *)&to[row][column] = q;
    }
}

// Computes y^T [16,64] = S^T w^T. A 16 x 16 block of w is operand B for 16 tokens.
static __device__ __forceinline__ void times_w(float (*y)[4], const float (*S)[4],
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

// Computes S^T [16,128] += x^T kg. A transposed block of kg is B for 16 channels.
static __device__ __forceinline__ void add_kg(float (*S)[4], const float (*x)[4],
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

static __global__ __launch_bounds__(2 * DIM, 1) void ladder(const struct kcp_ladder a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct tiles *m = (struct tiles *)shared;
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x / 32 * 16;
    const int64_t ld = (int64_t)a.HV * DIM, state = state_at(a, s, n) + v;
    float S[DIM / 8][4];

    load_state<DIM>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, DIM);
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const float *decay = (const float *)a.decay + ((int64_t)c * a.HV + n) * DIM;
        float x[CHUNK / 8][4], y[CHUNK / 8][4] = {};
        load_rows(m->w, in<bf16>(a.w, z.t, a.HV, n, DIM), ld, z.len);
        load_rows(m->kg, in<bf16>(a.kg, z.t, a.HV, n, DIM), ld, z.len);
        load_rows(m->u, in<bf16>(a.u, z.t, a.HV, n, DIM), ld, z.len);
        if (threadIdx.x < DIM) m->decay[threadIdx.x] = decay[threadIdx.x];
        __syncthreads();

        times_w(y, S, m->w[0]);
        from_rows(x, m->u[0] + v, DIM);
        #pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) x[i / 4][i % 4] -= y[i / 4][i % 4];
        store_rows<CHUNK / 8>(out<bf16>(a.v_new, z.t, a.HV, n, DIM) + v, ld, z.len, x);
        scale_columns<DIM / 8>(S, m->decay);
        add_kg(S, x, m->kg[0]);
        __syncthreads();
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

int v4_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    const int bytes = sizeof(struct tiles);
    if (!ladder_takes(a)) return KCP_NA;
    cudaFuncSetAttribute(ladder, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (a->NS) ladder<<<dim3(a->NS, a->HV), 2 * DIM, bytes, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT(ladder_v4_ldmatrix) = {
    "17_ladder", "v4_ldmatrix", "ldmatrix loads and transposes the fragments",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64", v4_ladder, NULL };
