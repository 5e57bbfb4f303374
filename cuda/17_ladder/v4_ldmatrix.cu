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
        load_bf16_rows(m->w, in<bf16>(a.w, z.t, a.HV, n, DIM), ld, z.len);
        load_bf16_rows(m->kg, in<bf16>(a.kg, z.t, a.HV, n, DIM), ld, z.len);
        load_bf16_rows(m->u, in<bf16>(a.u, z.t, a.HV, n, DIM), ld, z.len);
        if (threadIdx.x < DIM) m->decay[threadIdx.x] = decay[threadIdx.x];
        __syncthreads();

        ldmatrix_times_w(y, S, m->w[0]);
        from_rows(x, m->u[0] + v, DIM);
        #pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) x[i / 4][i % 4] -= y[i / 4][i % 4];
        store_rows<CHUNK / 8>(out<bf16>(a.v_new, z.t, a.HV, n, DIM) + v, ld, z.len, x);
        scale_columns<DIM / 8>(S, m->decay);
        ldmatrix_add_kg(S, x, m->kg[0]);
        __syncthreads();
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

int v4_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    if (!ladder_takes(a)) return KCP_NA;
    return launch_rung(a, ladder, 2 * DIM, sizeof(struct tiles));
}

KCP_VARIANT(ladder_v4_ldmatrix) = {
    "17_ladder", "v4_ldmatrix", "ldmatrix loads and transposes the fragments",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64", v4_ladder, NULL };
