// wide_scan.cuh -- copies and products for scans of states with 256 rows.
// Book: chapter 18, "Keys of 256 channels".
#pragma once

#include "tma.cuh"
#include "warpgroup_store.cuh"

// A consumer warpgroup holds 64 columns of a state [256,V] as S^T [64,256], 128 fp32
// registers per thread. Threads 0 to 127 load, threads 128 to 255 compute.
enum { ROWS_K = 256, K_TILES = ROWS_K / 64, WIDE_THREADS = 256 };

// The tokens of stretch s (a token range of one sequence), and those of its chunk i.
template <class Args>
static __device__ __forceinline__ struct token_range stretch_of(const Args &a, int s)
{
    const int *cu = (const int *)a.cu;
    return { cu[s], cu[s + 1] - cu[s] };
}

// The number of chunks, from lane 0, so that the compiler knows that all warps agree.
static __device__ __forceinline__ int chunks_of(struct token_range all)
{
    return __shfl_sync(~0u, (all.len + CHUNK - 1) / CHUNK, 0);
}

static __device__ __forceinline__ struct token_range chunk_of(struct token_range all,
                                                              int i)
{
    return { all.t + i * CHUNK, min(CHUNK, all.len - i * CHUNK) };
}

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

// The factors of a chunk's gate, exp2(G_last) per channel. GDN: decay[0] to decay[63]
// are equal, and of each row eq = scale exp2(G) and ek = exp2(G_last - G).
struct wide_gate {
    union {
        float decay[ROWS_K];
        struct { float of_chunk[CHUNK], eq[CHUNK], ek[CHUNK]; };
    };
};

// Returns the factors of the two channels that a thread has in tile t (8 channels).
static __device__ __forceinline__ float2 wide_factors(const struct wide_gate &g,
                                                      int gdn, int t)
{
    const float *of_64 = g.decay + (gdn ? 0 : t / 8 * 64);
    return *(const float2 *)(of_64 + t % 8 * 8 + threadIdx.x % 4 * 2);
}

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

// Issues y^T [64,64] = S^T X^T, with X [64,256] in four tiles and S split into `pieces`
// of bf16. If `stores` is set, stores S, rounded to bf16, in `old` [256,64]: both need
// the same packed pairs. If g is not NULL, multiplies S by the chunk's decay while the
// tensor core multiplies the pieces: S is the result of earlier products, so without a
// wait of its own the compiler inserts waits for all products (note C7517 of ptxas).
// The caller waits.
template <int pieces, int stores>
static __device__ __forceinline__ void wide_times_rows(float (*y)[4], float (*S)[4],
                                                       const bf16 *X, bf16 *old,
                                                       const struct wide_gate *g,
                                                       int gdn)
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
        if (g && b < 2) wgmma_wait<2>();
        #pragma unroll
        for (int t = 4 * b; g && t < 4 * b + 4; t++) {
            const float2 f = wide_factors(*g, gdn, t);
            #pragma unroll
            for (int j = 0; j < 4; j++) S[t][j] *= j % 2 ? f.y : f.x;
        }
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
            const float2 f = wide_factors(g, gdn, tile);
            #pragma unroll
            for (int j = 0; j < 4; j++)
                S[tile][j] = fmaf(j % 2 ? f.y : f.x, S[tile][j], -d[(t - 1) % 2][i][j]);
        }
    }
}

// The copy engine stores `old` [256,64], the state of one chunk, whose first row is row
// `row` of the map's tensor. One thread of the consumers issues the store after all
// have written `old` (wide_store), and waits before they overwrite it
// (wide_store_done).
static __device__ __forceinline__ void wide_store_done(void)
{
    if (threadIdx.x == WIDE_THREADS / 2) tma_store_wait_read();
}

static __device__ __forceinline__ void wide_store(const CUtensorMap &map,
                                                  const bf16 *old, int v, int row)
{
    fence_proxy_async();
    warpgroup_sync();
    if (threadIdx.x == WIDE_THREADS / 2) tma_store_3d(map, old, v, 0, row);
}

// Host: encodes the map of h or dh [NC,HV,256,V], with boxes of 256 rows.
static inline int wide_store_map(CUtensorMap *map, const void *h, int NC, int HV, int V)
{
    return tensor_map_of_heads(map, h, (int64_t)(NC ? NC : 1) * HV * ROWS_K, 1, V,
                               ROWS_K);
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
