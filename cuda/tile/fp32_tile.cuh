// fp32_tile.cuh -- fp32 products of tiles in shared memory, on the cores for fp32.
// Book: chapter 08, "Paths".
#pragma once

#include "cp_async.cuh"
#include "launch_shared.cuh"

// A tile has up to 128 columns. Rows have WIDE numbers, or NARROW if the tile has 64
// columns, so that rows are aligned to 16 bytes and threads of a warp that read four
// adjacent numbers of different rows use different banks. A block has 256 threads: 16
// along rows of a result and 16 along its columns.
enum { WIDE = 132, NARROW = 68, TILE_ROWS = 64, TILE_THREADS = 256 };

// Copies len rows of `width` numbers, `stride` numbers apart, to a tile. Rows >= len
// become 0. If `from` is NULL, all rows become 0.
template <int ld>
static __device__ __forceinline__ void copy_tile(float (*to)[ld], const float *from,
                                                 int64_t stride, int len, int width,
                                                 int rows = TILE_ROWS)
{
    for (int at = threadIdx.x; at < rows * width / 4; at += blockDim.x) {
        const int i = at / (width / 4), d = at % (width / 4) * 4;
        const int there = from && i < len;
        cp_async_16(&to[i][d], there ? from + i * stride + d : (float *)to, there);
    }
}

// The row i and the column j of this thread's part of a result, R rows by 4 columns. If
// `apart` is 1, the columns are j, j + 16, j + 32 and j + 48.
template <int R>
static __device__ __forceinline__ int tile_row(void) { return threadIdx.x / 16 * R; }
static __device__ __forceinline__ int tile_column(int apart, int s)
{
    return apart ? threadIdx.x % 16 + 16 * s : threadIdx.x % 16 * 4 + s;
}

static __device__ __forceinline__ void load4(float x[4], const float *from)
{
    const float4 y = *(const float4 *)from;
    x[0] = y.x; x[1] = y.y; x[2] = y.z; x[3] = y.w;
}

static __device__ __forceinline__ void store4(float *to, const float x[4])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

// Returns 1 if the fp32 kernels support the call and the arrays align to 16 bytes.
template <int n>
static inline int takes_fp32(const struct kcp_call *a, const void *const (&p)[n])
{
    return a->C == TILE_ROWS && (a->K == 64 || a->K == 128) &&
           (a->V == 64 || a->V == 128) && all_aligned_16(p);
}

// y [R][4] += a b, where a has `depth` columns and b has `depth` rows. The element
// (i, p) of a is a[i][p], and (p, j) of b is b[p][j].
template <int R, int la, int lb>
static __device__ __forceinline__ void add_product(float (*y)[4], const float (*a)[la],
                                                   const float (*b)[lb], int depth)
{
    const int i = tile_row<R>(), j = tile_column(0, 0);
    for (int p = 0; p < depth; p += 4) {
        float z[4][4], x[4];
        #pragma unroll
        for (int q = 0; q < 4; q++) load4(z[q], &b[p + q][j]);
        #pragma unroll
        for (int r = 0; r < R; r++) {
            load4(x, &a[i + r][p]);
            #pragma unroll
            for (int e = 0; e < 16; e++) y[r][e % 4] += x[e / 4] * z[e / 4][e % 4];
        }
    }
}

// y += a b^T: the element (p, j) of b^T is b[j][p]. The thread's columns are apart.
template <int R, int la, int lb>
static __device__ __forceinline__ void add_by_rows(float (*y)[4], const float (*a)[la],
                                                   const float (*b)[lb], int depth)
{
    const int i = tile_row<R>();
    for (int p = 0; p < depth; p += 4) {
        float z[4][4], x[4];
        #pragma unroll
        for (int s = 0; s < 4; s++) load4(z[s], &b[tile_column(1, s)][p]);
        #pragma unroll
        for (int r = 0; r < R; r++) {
            load4(x, &a[i + r][p]);
            #pragma unroll
            for (int e = 0; e < 16; e++) y[r][e % 4] += x[e / 4] * z[e % 4][e / 4];
        }
    }
}

// y += a^T diag(f) b over `depth` rows of a and b.
template <int R, int la, int lb>
static __device__ __forceinline__ void add_transposed(float (*y)[4],
                                                      const float (*a)[la],
                                                      const float (*b)[lb],
                                                      const float *f, int depth)
{
    const int i = tile_row<R>(), j = tile_column(0, 0);
    #pragma unroll 4
    for (int p = 0; p < depth; p++) {
        float z[4], x[R];
        load4(z, &b[p][j]);
        #pragma unroll
        for (int r = 0; r < R; r += 4) load4(x + r, &a[p][i + r]);
        #pragma unroll
        for (int s = 0; s < 4; s++) z[s] *= f[p];
        #pragma unroll
        for (int r = 0; r < R; r++)
            #pragma unroll
            for (int s = 0; s < 4; s++) y[r][s] += x[r] * z[s];
    }
}
