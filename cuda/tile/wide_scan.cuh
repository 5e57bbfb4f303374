// wide_scan.cuh -- copies and products for scans of states with 256 rows.
// Book: chapter 18, "Keys of 256 channels".
#ifndef KCP_TILE_WIDE_SCAN_CUH
#define KCP_TILE_WIDE_SCAN_CUH

#include "warpgroup_store.cuh"

// A consumer warpgroup holds 64 columns of a state [256,V] as S^T [64,256], 128 fp32
// registers per thread. Threads 0 to 127 load, threads 128 to 255 compute.
enum { ROWS_K = 256, K_TILES = ROWS_K / 64, WIDE_THREADS = 256 };

// The threads i of a warpgroup copy len rows of a tensor, `stride` elements apart, to
// `tiles` swizzle128 tiles of 64 columns. Rows >= len become 0.
template <int tiles>
static __device__ __forceinline__ void cp_async_tiles(bf16 *to, const bf16 *from,
                                                      int64_t stride, int len, int i)
{
    const int row = i / 8, piece = i % 8;
    char *at = (char *)to + swizzle128_offset(row, piece);
    #pragma unroll
    for (int r = 0; r < CHUNK / 16; r++) {
        const int there = row + 16 * r < len;
        const bf16 *x = from + (there ? row + 16 * r : 0) * stride + piece * 8;
        #pragma unroll
        for (int t = 0; t < tiles; t++)
            cp_async_16(at + t * TILE_BYTES + 2048 * r, x + 64 * t, there);
    }
}

// Issues y^T [64,64] = S^T X^T, with X [64,256] in four tiles and S split into `pieces`
// of bf16. If `stores` is set, stores S, rounded to bf16, in `old` [256,64]: both need
// the same packed pairs. The caller waits.
template <int pieces, int stores>
static __device__ __forceinline__ void wide_times_rows(float (*y)[4],
                                                       const float (*S)[4],
                                                       const bf16 *X, bf16 *old)
{
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    const int piece = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
    const uint32_t to = smem_addr((const char *)old + swizzle128_offset(row, piece));
    uint32_t a[2][2][pieces][4];
    #pragma unroll
    for (int b = 0; b < ROWS_K / 32; b++) {
        if (b >= 2) wgmma_wait<1>();
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            split_bf16<pieces>(a[b % 2][i], S + 4 * b + 2 * i);
            if (stores) stmatrix_x4_trans(to + (2 * b + i) * 2048, a[b % 2][i][0]);
        }
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 2 * pieces; i++) {
            const int step = 2 * b + i / pieces;
            wgmma_m64n64k16_rs<0>(y, a[b % 2][i / pieces][i % pieces],
                                  smem_desc_k_major(X) + step / 4 * DESC_NEXT_TILE
                                      + step % 4 * DESC_STEP_K_MAJOR,
                                  b || i);
        }
        wgmma_commit();
    }
}

// Issues S^T [64,256] += y^T X, with y packed in a. The caller must call wgmma_fence
// first, and then wgmma_commit, wgmma_wait, keep_operand and fence_operand.
static __device__ __forceinline__ void wide_add_rows(float (*S)[4],
                                                     const uint32_t (*a)[1][4],
                                                     const bf16 *X)
{
    warpgroup_add_rows_async(S, a, X);
    warpgroup_add_rows_async(S + 16, a, X + 2 * SWIZZLE128_TILE);
}

// The factors of a chunk's gate. KDA: decay [256] = exp2(G_last). GDN: decay[0], and of
// each row eq = scale exp2(G) and ek = exp2(G_last - G).
struct wide_gate {
    union {
        float decay[ROWS_K];
        struct { float of_chunk[CHUNK], eq[CHUNK], ek[CHUNK]; };
    };
};

// Returns the gates of a chunk that thread i of the loader warpgroup reads early. KDA:
// G_last of channels i and i + 128. GDN: G_last, and G of row i.
template <class Args>
static __device__ __forceinline__ float2 wide_gate_read(const Args &a,
                                                        struct token_range z, int n,
                                                        int i)
{
    const int64_t last = z.t + z.len - 1;
    if (a.KG > 1)
        return make_float2(gate(a, last, n, i), gate(a, last, n, i + ROWS_K / 2));
    return make_float2(gate(a, last, n, 0), gate(a, z.t + min(i, z.len - 1), n, 0));
}

static __device__ __forceinline__ void wide_gate_write(struct wide_gate *to, float2 g,
                                                       int gdn, double scale, int i)
{
    if (!gdn) {
        to->decay[i] = exp2f(g.x);
        to->decay[i + ROWS_K / 2] = exp2f(g.y);
    } else if (i < CHUNK) {
        to->of_chunk[i] = exp2f(g.x);
        to->eq[i] = (float)scale * exp2f(g.y);
        to->ek[i] = exp2f(g.x - g.y);
    }
}

static __device__ __forceinline__ void wide_decay(float (*S)[4],
                                                  const struct wide_gate &g, int gdn)
{
    if (!gdn) return scale_columns<ROWS_K / 8>(S, g.decay);
    const float f = g.of_chunk[0];
    #pragma unroll
    for (int i = 0; i < ROWS_K / 2; i++) S[i / 4][i % 4] *= f;
}

// Computes S^T [64,256] <- S^T Lambda - y^T X, with y in two bf16 pieces, 64 columns of
// S^T at a time. As in warpgroup_decay_minus, sums over the chunk have separate
// accumulators. While the tensor core sums for the next 64 columns, the threads update
// these columns.
static __device__ __forceinline__ void wide_decay_minus(float (*S)[4],
                                                        const float (*y)[4],
                                                        const bf16 *X,
                                                        const struct wide_gate &g,
                                                        int gdn)
{
    const int e = threadIdx.x % 4 * 2;
    uint32_t a[4][2][4];
    float d[2][8][4];
    #pragma unroll
    for (int c = 0; c < 4; c++) split_bf16<2>(a[c], y + 2 * c);
    #pragma unroll
    for (int t = 0; t <= K_TILES; t++) {
        if (t < K_TILES) {
            wgmma_fence();
            #pragma unroll
            for (int i = 0; i < 8; i++)
                wgmma_m64n64k16_rs<1>(d[t % 2], a[i / 2][i % 2],
                                      smem_desc_mn_major(X) + t * DESC_NEXT_TILE
                                          + i / 2 * DESC_STEP_MN_MAJOR,
                                      i);
            wgmma_commit();
        }
        if (t == 0) continue;
        if (t < K_TILES) wgmma_wait<1>();
        else wgmma_wait<0>();
        fence_operand<8>(d[(t - 1) % 2]);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            const int tile = 8 * (t - 1) + i;
            const float2 f = gdn ? make_float2(g.of_chunk[0], g.of_chunk[0])
                                 : *(const float2 *)(g.decay + tile * 8 + e);
            #pragma unroll
            for (int j = 0; j < 4; j++)
                S[tile][j] = fmaf(j % 2 ? f.y : f.x, S[tile][j], -d[(t - 1) % 2][i][j]);
        }
    }
}

// A ring of SLOTS slots for tiles [64,256], filled in the order of their use. Tile j
// is in slot j % SLOTS, in phase j / SLOTS of the slot's two mbarriers: `full` (the
// loader's copies have arrived) and `empty` (all consumers have read the slot).
enum { SLOTS = 5 };
typedef bf16 wide_tile[K_TILES * SWIZZLE128_TILE];

struct wide_ring {
    uint64_t full[SLOTS], empty[SLOTS];
};

static __device__ __forceinline__ void ring_init(struct wide_ring *r)
{
    if (threadIdx.x < SLOTS) {
        mbarrier_init(&r->full[threadIdx.x], WIDE_THREADS / 2);
        mbarrier_init(&r->empty[threadIdx.x], WIDE_THREADS / 2);
    }
    __syncthreads();
}

// The loader waits until slot j % SLOTS may be overwritten.
static __device__ __forceinline__ void ring_wait_empty(struct wide_ring *r, int j)
{
    if (j >= SLOTS) mbarrier_wait(&r->empty[j % SLOTS], j / SLOTS - 1);
}

// The loader has issued the copies of tile j. Copies of AHEAD tiles stay in flight, and
// tile j - AHEAD has arrived. With three tiles in flight the third tile of a step in
// stage 09 would wait for a slot of the same step: the kernel takes 1.1 times as long.
enum { AHEAD = 2 };

static __device__ __forceinline__ void ring_issued(struct wide_ring *r, int j)
{
    cp_async_commit();
    if (j < AHEAD) return;
    cp_async_wait<AHEAD>();
    fence_proxy_async();
    mbarrier_arrive(&r->full[(j - AHEAD) % SLOTS]);
}

// The loader has issued all tiles, the last of which is tile j (-1: none).
static __device__ __forceinline__ void ring_finish(struct wide_ring *r, int j)
{
    cp_async_wait<0>();
    fence_proxy_async();
    for (int i = max(j + 1 - AHEAD, 0); i <= j; i++)
        mbarrier_arrive(&r->full[i % SLOTS]);
}

static __device__ __forceinline__ void ring_wait_full(struct wide_ring *r, int j)
{
    mbarrier_wait(&r->full[j % SLOTS], j / SLOTS);
}

static __device__ __forceinline__ void ring_release(struct wide_ring *r, int j)
{
    mbarrier_arrive(&r->empty[j % SLOTS]);
}

#endif
