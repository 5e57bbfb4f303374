// v8_tma_sm90.cu -- rung 8: one thread copies by TMA, two warpgroups compute.
// Book: chapter 17, "Warps with roles".
#include "ladder_wgmma.cuh"
#include "cuda/tile/setmaxnreg.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warpgroup_store.cuh"

// Bound: memory, 64.5 KiB per chunk and head, or the sequential products. A warpgroup
// waits only for its own products, so one of the two warpgroups computes while the
// other warpgroup waits. The loop has no block-wide barrier: `full` completes when the
// bytes of a stage have arrived, and `empty` when all consumers have read these bytes.
// One thread issues seven copies per chunk. The 256 threads of v7 issue 3104 copies.
//> storage
enum { STAGES = 4, CONSUMERS = 256 };

struct stage {
    bf16 w[2 * SWIZZLE128_TILE], kg[2 * SWIZZLE128_TILE], u[2 * SWIZZLE128_TILE];
};

struct stages {
    struct stage at[STAGES];
    float decay[STAGES][DIM];
    uint64_t full[STAGES], empty[STAGES];
};

struct maps { CUtensorMap w, kg, u; };
//< storage

//> producer
// Issues all copies from one thread. A stage is free after all consumers have arrived
// at the stage's barrier `empty`, and full after all announced bytes have arrived.
static __device__ void producer_warp(const struct kcp_ladder &a,
                                     const struct maps &map, int s, int n,
                                     struct stages *m)
{
    const int *cn = (const int *)a.cn;
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const int i = c - cn[s], at = i % STAGES, t = (int)chunk_tokens(a, s, c).t;
        const float *decay = (const float *)a.decay + ((int64_t)c * a.HV + n) * DIM;
        uint64_t *full = &m->full[at];
        if (i >= STAGES) mbarrier_wait(&m->empty[at], i / STAGES - 1);
        mbarrier_arrive_expect_tx(full, sizeof(struct stage) + sizeof m->decay[0]);
        for (int j = 0; j < 2; j++) {
            const int to = j * SWIZZLE128_TILE;
            tma_load_3d(m->at[at].w + to, map.w, 64 * j, n, t, full);
            tma_load_3d(m->at[at].u + to, map.u, 64 * j, n, t, full);
            tma_load_3d(m->at[at].kg + to, map.kg, 64 * j, n, t, full);
        }
        tma_load_1d(m->decay[at], decay, sizeof m->decay[0], full);
    }
}
//< producer

// Computes x^T = u^T - y^T. A copy always loads 64 rows. Rows past the end of the
// stretch (a token range) are set to 0 in x, because they belong to another stretch.
static __device__ __forceinline__ void subtract(float (*x)[4], const float (*y)[4],
                                                int len)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < CHUNK / 2; i++) {
        const int token = i / 4 * 8 + e + i % 2;
        x[i / 4][i % 4] = token < len ? x[i / 4][i % 4] - y[i / 4][i % 4] : 0.0f;
    }
}

//> consumer
// Processes all chunks of a token range for 64 columns of the state. v_new replaces u
// in the pipeline stage. While the tensor core updates S, these 64 columns of v_new are
// stored from the stage to global memory.
static __device__ void consumer_warpgroup(const struct kcp_ladder &a, int s, int n,
                                          struct stages *m)
{
    const int *cn = (const int *)a.cn;
    const int half = threadIdx.x / 128, v = threadIdx.x / 32 * 16;
    const int64_t ld = (int64_t)a.HV * DIM, state = state_at(a, s, n) + v;
    float S[DIM / 8][4];

    load_state<DIM>(S, a.h_in ? (const float *)a.h_in + state : NULL, 1, DIM);
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const int i = c - cn[s], at = i % STAGES;
        bf16 *u = m->at[at].u + half * SWIZZLE128_TILE;
        float x[CHUNK / 8][4], y[CHUNK / 8][4];
        uint32_t p[DIM / 16][4];
        mbarrier_wait(&m->full[at], i / STAGES);

        wgmma_times_w(y, p, S, m->at[at].w);
        ldmatrix_swizzled(x, u);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        subtract(x, y, z.len);
        scale_columns<DIM / 8>(S, m->decay[at]);
        wgmma_add_kg(S, p, x, m->at[at].kg);

        stmatrix_swizzled<CHUNK / 8>(u, x);
        warpgroup_sync();
        copy_swizzled_rows<CHUNK>(out<bf16>(a.v_new, z.t, a.HV, n, DIM) + half * 64,
                                  ld, z.len, u);
        wgmma_wait<0>();
        keep_operand((const uint32_t(*)[1][4])p);
        fence_operand<DIM / 8>(S);
        fence_proxy_async();
        mbarrier_arrive(&m->empty[at]);
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}
//< consumer

//> roles
static __global__ __launch_bounds__(CONSUMERS + 128, 1) void ladder(
    const struct kcp_ladder a, const __grid_constant__ struct maps map)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct stages *m = (struct stages *)shared;
    const int s = blockIdx.x, n = blockIdx.y;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(&m->full[i], 1);
            mbarrier_init(&m->empty[i], CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == CONSUMERS) producer_warp(a, map, s, n, m);
    } else {
        setmaxnreg_inc<232>();
        consumer_warpgroup(a, s, n, m);
    }
}
//< roles

int v8_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    const int bytes = sizeof(struct stages);
    struct maps map;
    if (!ladder_takes(a) || !device_is_sm90()) return KCP_NA;
    if (!a->NS) return KCP_OK;
    if (!tensor_map_of_heads(&map.w, a->w, a->T, a->HV, DIM, CHUNK)) return KCP_NA;
    if (!tensor_map_of_heads(&map.kg, a->kg, a->T, a->HV, DIM, CHUNK)) return KCP_NA;
    if (!tensor_map_of_heads(&map.u, a->u, a->T, a->HV, DIM, CHUNK)) return KCP_NA;
    cudaFuncSetAttribute(ladder, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    ladder<<<dim3(a->NS, a->HV), CONSUMERS + 128, bytes, a->stream>>>(*a, map);
    return launched();
}

KCP_VARIANT(ladder_v8_tma) = {
    "17_ladder", "v8_tma_sm90",
    "TMA and mbarriers: one producer, two consumer warpgroups",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64; sm_90a", v8_ladder, NULL };
