// fp32_scan.cuh -- the scans of chapters 04, 05, 09 and 11 in fp32, for 64 columns.
// Book: chapter 08, "Paths".
#pragma once

#include "fp32_tile.cuh"

// Rows of a tensor: row t is x + t * ld.
struct fp32_rows {
    const float *x;
    int64_t ld;
};

// The arrays of one block: 64 columns of a head's state S. Forward, each chunk does
//   x = base - first S,  o = eq extra S + more x,  S <- decay S + update^T diag(ek) x
// and in reverse, from the last chunk to the first,
//   x = base + ek first S,  S <- decay S + extra^T diag(eq) more - update^T x
// For GDN the rows of q and k have no factors of the gate: eq = scale exp2(G) and ek =
// exp2(G_last - G). For KDA, eq = scale and ek = 1. Pointers may be NULL: a missing
// base or `more` is 0, and a missing output is not stored.
struct fp32_scan {
    struct fp32_rows first, update, extra, base, more;
    const float *start;                  // the first state; NULL: the identity or 0
    int64_t start_ld;
    int identity;                        // first column of the identity; -1: none
    float *x, *o, *states, *end;         // x, o [T] rows; states [NC] of K rows
    int64_t ld, state, state_ld;         // strides of rows of x, o; states; their rows
    int64_t end_i, end_j;                // strides of rows and columns of `end`
};

// Returns the rows of head n of a tensor [T,heads,D], from column v on.
static __device__ __forceinline__ struct fp32_rows rows_of(const void *x, int heads,
                                                           int n, int D, int v = 0)
{
    const float *at = (const float *)x;
    return { at ? at + (int64_t)n * D + v : NULL, (int64_t)heads * D };
}

// Returns the rows of qg (KDA) or q (GDN), or those of kg or k.
template <class Args>
static __device__ __forceinline__ struct fp32_rows gated_rows(const Args &a, int n,
                                                              const void *gated,
                                                              const void *raw)
{
    if (a.KG > 1) return rows_of(gated, a.HV, n, a.K);
    return rows_of(raw, a.H, n / (a.HV / a.H), a.K);
}

template <int K>
struct fp32_scan_storage {
    float first[TILE_ROWS][WIDE], update[TILE_ROWS][WIDE], extra[TILE_ROWS][WIDE];
    float S[K][NARROW], x[TILE_ROWS][NARROW], base[TILE_ROWS][NARROW];
    float more[TILE_ROWS][NARROW];
    float decay[2][K], eq[2][TILE_ROWS], ek[2][TILE_ROWS], minus[TILE_ROWS];
};

// Loads the rows of a chunk, unless the tensor is missing and `needed` is 0.
template <int ld>
static __device__ __forceinline__ void load_rows(float (*to)[ld],
                                                 const struct fp32_rows &from,
                                                 struct token_range z, int width,
                                                 int needed = 0)
{
    const float *x = from.x ? from.x + z.t * from.ld : NULL;
    if (x || needed) copy_tile(to, x, from.ld, z.len, width);
}

// Loads the gates of a chunk: thread i has G_last of channel i and G of row i.
template <int K, class Args>
static __device__ __forceinline__ float2 load_gates(const Args &a, struct token_range z,
                                                    int n)
{
    const int i = threadIdx.x, row = i < z.len ? i : z.len - 1;
    return make_float2(i < K ? gate(a, z.t + z.len - 1, n, i) : 0.0f,
                       a.KG == 1 && i < TILE_ROWS ? gate(a, z.t + row, n, 0) : 0.0f);
}

template <int K, class Args>
static __device__ __forceinline__ void put_gates(struct fp32_scan_storage<K> &m,
                                                 const Args &a, float2 g, int b)
{
    const int i = threadIdx.x, kda = a.KG > 1;
    if (i < K) m.decay[b][i] = exp2f(g.x);
    if (i >= TILE_ROWS) return;
    m.eq[b][i] = (float)a.scale * (kda ? 1.0f : exp2f(g.y));
    m.ek[b][i] = kda ? 1.0f : exp2f(g.x - g.y);
}

// Scans the chunks of stretch s (a token range of a sequence). A thread owns K/16 rows
// and 4 columns of S. Bound: fp32 multiply-adds, 3 C K + C^2 per column and chunk.
//
// The loads of a tile for the next chunk begin when the last phase that reads this tile
// has ended, so that they overlap with the other two phases. There are always at most
// two groups of copies in flight, of which the older one is needed next. Each chunk has
// three barriers, each of which also ends the reads of the phase before.
template <int K, int reverse, class Args>
static __device__ void scan_fp32(const Args &a, const struct fp32_scan &c, int s, int n)
{
    enum { R = K / 16 };
    extern __shared__ __align__(128) unsigned char shared[];
    struct fp32_scan_storage<K> &m = *(struct fp32_scan_storage<K> *)shared;
    const int *cn = (const int *)a.cn, chunks = cn[s + 1] - cn[s];
    const int i4 = tile_row<4>(), iR = tile_row<R>(), j = tile_column(0, 0);
    const auto chunk_at = [&](int at) { return reverse ? chunks - 1 - at : at; };
    const auto tokens = [&](int at) {
        return chunk_tokens(a, s, cn[s] + chunk_at(at));
    };

    for (int at = threadIdx.x; at < K * 64; at += blockDim.x) {
        const int i = at / 64, v = at % 64;
        float x = c.identity >= 0 ? i == c.identity + v : 0.0f;
        if (c.start) x = c.start[i * c.start_ld + v];
        m.S[i][v] = x;
    }
    if (threadIdx.x < TILE_ROWS) m.minus[threadIdx.x] = -1.0f;
    float2 gates = make_float2(0.0f, 0.0f);
    if (chunks) {
        const struct token_range z = tokens(0);
        gates = load_gates<K>(a, z, n);
        load_rows(m.first, c.first, z, K);
        load_rows(m.base, c.base, z, 64, 1);
        cp_async_commit();
        load_rows(m.extra, c.extra, z, K);
        load_rows(m.more, c.more, z, 64);
        cp_async_commit();
    }
    for (int at = 0; at < chunks; at++) {
        const struct token_range z = tokens(at);
        const struct token_range next = tokens(at + 1 < chunks ? at + 1 : at);
        const int b = at % 2, c_at = cn[s] + chunk_at(at);
        put_gates<K>(m, a, gates, b);
        cp_async_wait<1>();
        __syncthreads();
        load_rows(m.update, c.update, z, K);
        cp_async_commit();

        // the columns of x, and the state before this chunk
        float y[4][4] = {}, S[R][4] = {};
        add_product<4>(y, m.first, m.S, K);
        for (int r = 0; r < 4; r++) {
            const int i = i4 + r;
            const float by = reverse ? m.ek[b][i] : -1.0f;
            for (int v = 0; v < 4; v++) {
                y[r][v] = m.base[i][j + v] + by * y[r][v];
                m.x[i][j + v] = y[r][v];
            }
            if (c.x && i < z.len) store4(c.x + (z.t + i) * c.ld + j, y[r]);
        }
        for (int r = 0; r < R && c.states; r++)
            store4(c.states + c_at * c.state + (iR + r) * c.state_ld + j,
                   &m.S[iR + r][j]);
        cp_async_wait<1>();
        __syncthreads();
        load_rows(m.first, c.first, next, K);
        load_rows(m.base, c.base, next, 64, 1);
        cp_async_commit();

        if (reverse) {
            if (c.more.x) add_transposed<R>(S, m.extra, m.more, m.eq[b], TILE_ROWS);
        } else if (c.o) {
            for (int r = 0; r < 4; r++)
                for (int v = 0; v < 4; v++) y[r][v] = 0.0f;
            add_product<4>(y, m.extra, m.S, K);
            for (int r = 0; r < 4; r++)
                for (int v = 0; v < 4; v++) y[r][v] *= m.eq[b][i4 + r];
            add_product<4>(y, m.more, m.x, TILE_ROWS);
            for (int r = 0; r < 4 && i4 + r < z.len; r++)
                store4(c.o + (z.t + i4 + r) * c.ld + j, y[r]);
        }
        gates = load_gates<K>(a, next, n);
        cp_async_wait<1>();
        __syncthreads();
        load_rows(m.extra, c.extra, next, K);
        load_rows(m.more, c.more, next, 64);
        cp_async_commit();

        // the state after this chunk
        for (int r = 0; r < R; r++)
            for (int v = 0; v < 4; v++)
                S[r][v] += m.decay[b][iR + r] * m.S[iR + r][j + v];
        add_transposed<R>(S, m.update, m.x, reverse ? m.minus : m.ek[b], TILE_ROWS);
        for (int r = 0; r < R; r++) store4(&m.S[iR + r][j], S[r]);
    }
    cp_async_wait<0>();
    __syncthreads();
    for (int at = threadIdx.x; at < K * 64; at += blockDim.x)
        c.end[at / 64 * c.end_i + at % 64 * c.end_j] = m.S[at / 64][at % 64];
}

// Launches a scan's kernel: a block per stretch, head and 64 of `columns` columns.
template <int K, class Args>
static int launch_scan(void (*kernel)(Args), const Args *a, int columns)
{
    const size_t bytes = sizeof(struct fp32_scan_storage<K>);
    return launch_shared(kernel, dim3(a->NS, a->HV, columns / 64), TILE_THREADS, bytes,
                         a->stream, *a);
}
