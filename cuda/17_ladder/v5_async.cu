// v5_async.cu -- rung 5: three pipeline stages, two of them in flight.
// Book: chapter 17, "Copies in the background".
#include "ladder.cuh"
#include "cuda/tile/decay.cuh"

// Bound: as for v4, but without the wait for global memory. A pipeline stage has 48.5
// KiB. While chunk c is multiplied, chunks c + 1 and c + 2 are in flight, 97 KiB per
// SM. Each chunk has one barrier, which a thread reaches when its copies of chunk c
// have arrived and its reads of chunk c - 1 are over. So after the barrier, chunk c is
// complete and the stage of chunk c - 1 is free.
//> storage
enum { STAGES = 3 };

struct stage {
    bf16 w[CHUNK][DIM], kg[CHUNK][DIM], u[CHUNK][DIM];
    float decay[DIM];
};
//< storage

// Copies rows of a head to shared memory asynchronously. Rows >= len become 0.
static __device__ void async_rows(bf16 (*to)[DIM], const bf16 *from, int64_t stride,
                                 int len)
{
    for (int at = threadIdx.x; at < CHUNK * DIM / 8; at += 2 * DIM) {
        const int row = at / 16, column = at % 16 * 8;
        cp_async_16(&to[row][column], from + (row < len ? row : 0) * stride + column,
                    row < len);
    }
}

static __global__ __launch_bounds__(2 * DIM, 1) void ladder(const struct kcp_ladder a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    struct stage *stages = (struct stage *)shared;
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x / 32 * 16;
    const int64_t ld = (int64_t)a.HV * DIM, state = state_at(a, s, n) + v;
    float S[DIM / 8][4];

    for (int i = 0; i < STAGES - 1; i++) load_stage(a, s, n, cn[s] + i, stages + i);
    load_state<DIM>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, DIM);
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const int i = c - cn[s];
        const struct stage *m = stages + i % STAGES;
        float x[CHUNK / 8][4], y[CHUNK / 8][4] = {};
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        load_stage(a, s, n, c + STAGES - 1, stages + (i + STAGES - 1) % STAGES);

        ldmatrix_times_w(y, S, m->w[0]);
        from_rows(x, m->u[0] + v, DIM);
        #pragma unroll
        for (int j = 0; j < CHUNK / 2; j++) x[j / 4][j % 4] -= y[j / 4][j % 4];
        store_rows<CHUNK / 8>(out<bf16>(a.v_new, z.t, a.HV, n, DIM) + v, ld, z.len, x);
        scale_columns<DIM / 8>(S, m->decay);
        ldmatrix_add_kg(S, x, m->kg[0]);
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

int v5_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    if (!ladder_takes(a)) return KCP_NA;
    return launch_rung(a, ladder, 2 * DIM, STAGES * sizeof(struct stage));
}

KCP_VARIANT(ladder_v5_async) = {
    "17_ladder", "v5_async", "cp.async: two chunks in flight while one is computed",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64", v5_ladder, NULL };
