// v7_wgmma_sm90.cu -- rung 7: wgmma reads operand B directly from shared memory.
// Book: chapter 17, "A warpgroup".
#include "ladder_wgmma.cuh"

// Bound: the sequential products. `w` and `kg` are read once per 64 columns instead of
// once per 16: 64 KiB per chunk, 512 cycles, half of the time of the products. The
// products must run in order: a chunk's update waits for the chunk's v_new, v_new waits
// for w S, and w S waits for the previous chunk. While one of two warpgroups waits, the
// other warpgroup computes. Each chunk has one barrier. Every thread calls the proxy
// fence before the barrier, because the tensor core reads what threads wrote.
//> storage
enum { STAGES = 3 };

struct stage {
    bf16 w[2 * SWIZZLE128_TILE], kg[2 * SWIZZLE128_TILE], u[2 * SWIZZLE128_TILE];
};

// The tiles are first, because each tile must start at a multiple of 1024 bytes.
struct stages {
    struct stage at[STAGES];
    float decay[STAGES][DIM];
};
//< storage

static __device__ void load_stage(const struct kcp_ladder &a, int s, int n, int c,
                                  struct stages *m, int to)
{
    const int64_t ld = (int64_t)a.HV * DIM;
    if (c < ((const int *)a.cn)[s + 1]) {
        const struct token_range z = chunk_tokens(a, s, c);
        const float *decay = (const float *)a.decay + ((int64_t)c * a.HV + n) * DIM;
        cp_async_swizzled_rows(m->at[to].w, in<bf16>(a.w, z.t, a.HV, n, DIM), ld,
                               z.len);
        cp_async_swizzled_rows(m->at[to].kg, in<bf16>(a.kg, z.t, a.HV, n, DIM), ld,
                               z.len);
        cp_async_swizzled_rows(m->at[to].u, in<bf16>(a.u, z.t, a.HV, n, DIM), ld,
                               z.len);
        if (threadIdx.x < DIM / 4)
            cp_async_16(m->decay[to] + 4 * threadIdx.x, decay + 4 * threadIdx.x, 1);
    }
    cp_async_commit();
}

static __global__ __launch_bounds__(256, 1) void ladder(const struct kcp_ladder a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct stages *m = (struct stages *)shared;
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x / 32 * 16;
    const int half = threadIdx.x / 128;
    const int64_t ld = (int64_t)a.HV * DIM, state = state_at(a, s, n) + v;
    float S[DIM / 8][4];

    for (int i = 0; i < STAGES - 1; i++) load_stage(a, s, n, cn[s] + i, m, i);
    load_state<DIM>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, DIM);
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const int i = c - cn[s], at = i % STAGES;
        const struct stage *t = &m->at[at];
        float x[CHUNK / 8][4], y[CHUNK / 8][4];
        uint32_t p[DIM / 16][4];
        cp_async_wait<STAGES - 2>();
        fence_proxy_async();
        __syncthreads();
        load_stage(a, s, n, c + STAGES - 1, m, (i + STAGES - 1) % STAGES);

        wgmma_times_w(y, p, S, t->w);
        ldmatrix_swizzled(x, t->u + half * SWIZZLE128_TILE);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        #pragma unroll
        for (int j = 0; j < CHUNK / 2; j++) x[j / 4][j % 4] -= y[j / 4][j % 4];
        store_rows<CHUNK / 8>(out<bf16>(a.v_new, z.t, a.HV, n, DIM) + v, ld, z.len, x);
        scale_columns<DIM / 8>(S, m->decay[at]);
        wgmma_add_kg(S, p, x, t->kg);
        wgmma_wait<0>();
        fence_operand<DIM / 8>(S);
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

int v7_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    if (!ladder_takes(a) || !device_is_sm90()) return KCP_NA;
    return launch_rung(a, ladder, 256, sizeof(struct stages));
}

KCP_VARIANT(ladder_v7_wgmma) = {
    "17_ladder", "v7_wgmma_sm90",
    "wgmma: tensor cores read w and kg from shared memory",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64; sm_90a", v7_ladder, NULL };
