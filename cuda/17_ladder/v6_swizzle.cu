// v6_swizzle.cu -- rung 6: permuting the 16-byte pieces of rows avoids bank conflicts.
// Book: chapter 17, "Swizzle".
#include "ladder.cuh"
#include "cuda/tile/decay.cuh"

// Bound: shared memory at its full rate: 256 KiB of w and kg and 16 KiB of u per chunk,
// 2176 cycles at 128 bytes per cycle. A tile of 64 rows by 128 columns is stored as two
// adjacent swizzle128 tiles of 64 columns. A row of a swizzle128 tile has 128 bytes,
// which cover all 32 banks. The 16-byte piece p is at a different position in each of
// eight consecutive rows. Each chunk has one barrier, as in v5.
//> storage
enum { STAGES = 3 };

struct stage {
    bf16 w[2 * SWIZZLE128_TILE], kg[2 * SWIZZLE128_TILE], u[2 * SWIZZLE128_TILE];
    float decay[DIM];
};
//< storage

//> swizzled
// Returns the address, in a tile of 128 columns, of the 16 bytes at row `row` and
// columns 8 * piece to 8 * piece + 7.
static __device__ __forceinline__ bf16 *piece_at(const bf16 *X, int row, int piece)
{
    return (bf16 *)((char *)(X + piece / 8 * SWIZZLE128_TILE)
                    + swizzle128_offset(row, piece % 8));
}
//< swizzled

static __device__ void async_rows(bf16 *to, const bf16 *from, int64_t stride, int len)
{
    for (int at = threadIdx.x; at < CHUNK * DIM / 8; at += 2 * DIM) {
        const int row = at / 16, piece = at % 16;
        cp_async_16(piece_at(to, row, piece),
                    from + (row < len ? row : 0) * stride + piece * 8, row < len);
    }
}

//> swizzled-products
// In times_w, lanes load rows and 16-byte pieces in the order of ldmatrix_offset_b. In
// add_kg, lanes use the order of ldmatrix_offset_a. `piece_at` applies the swizzle.
static __device__ __forceinline__ void times_w(float (*y)[4], const float (*S)[4],
                                               const bf16 *w)
{
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    #pragma unroll
    for (int i = 0; i < DIM / 16; i++) {
        uint32_t a[4], b[4];
        pack_a(a, S + 2 * i);
        #pragma unroll
        for (int c = 0; c < CHUNK / 16; c++) {
            ldmatrix_x4(b, piece_at(w, c * 16 + row, 2 * i + lane / 8 % 2));
            mma_m16n16k16(y + 2 * c, a, b);
        }
    }
}

static __device__ __forceinline__ void add_kg(float (*S)[4], const float (*x)[4],
                                              const bf16 *kg)
{
    const int lane = threadIdx.x % 32, row = lane % 16;
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) {
        uint32_t a[4], b[4];
        pack_a(a, x + 2 * c);
        #pragma unroll
        for (int i = 0; i < DIM / 16; i++) {
            ldmatrix_x4_trans(b, piece_at(kg, c * 16 + row, 2 * i + lane / 16));
            mma_m16n16k16(S + 2 * i, a, b);
        }
    }
}
//< swizzled-products

// Computes x^T = u^T - y^T for the 16 columns of this warp, which are two pieces of
// each row of u.
static __device__ __forceinline__ void subtract(float (*x)[4], const float (*y)[4],
                                                const bf16 *u)
{
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    const int piece = threadIdx.x / 32 * 2 + lane / 8 % 2;
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) {
        uint32_t r[4];
        ldmatrix_x4_trans(r, piece_at(u, c * 16 + row, piece));
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            float *to = &x[2 * c + j / 2][j % 2 * 2];
            to[0] = bf16x2_low(r[j]) - y[2 * c + j / 2][j % 2 * 2];
            to[1] = bf16x2_high(r[j]) - y[2 * c + j / 2][j % 2 * 2 + 1];
        }
    }
}

static __global__ __launch_bounds__(2 * DIM, 1) void ladder(const struct kcp_ladder a)
{
    extern __shared__ __align__(1024) unsigned char shared[];
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

        times_w(y, S, m->w);
        subtract(x, y, m->u);
        store_rows<CHUNK / 8>(out<bf16>(a.v_new, z.t, a.HV, n, DIM) + v, ld, z.len, x);
        scale_columns<DIM / 8>(S, m->decay);
        add_kg(S, x, m->kg);
    }
    store_state<DIM>((float *)a.h_out + state, 1, DIM, S);
}

int v6_ladder(void *args)
{
    const struct kcp_ladder *a = (const struct kcp_ladder *)args;
    if (!ladder_takes(a)) return KCP_NA;
    return launch_rung(a, ladder, 2 * DIM, STAGES * sizeof(struct stage));
}

KCP_VARIANT(ladder_v6_swizzle) = {
    "17_ladder", "v6_swizzle", "swizzled tiles: eight rows use all 32 banks",
    KCP_BF16, KCP_DEVICE, "K = V = 128, C 64", v6_ladder, NULL };
