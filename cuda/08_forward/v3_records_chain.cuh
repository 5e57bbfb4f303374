// v3_records_chain.cuh -- what the scan and the maps share: records in turn, products.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_CHAIN_CUH
#define KCP_V3_RECORDS_CHAIN_CUH

#include "v3_records.cuh"

// On chip: records in turn, in parts that arrive, and are given back, on their own:
// -k~ with v beside it, three chunks ahead; A beta, kg and decay; qg; Aqk, two ahead. A
// map leaves the last two out. A warpgroup has 64 columns of the state, S^T in
// registers as in scan.cuh.
enum { PART_K, PART_A, PART_Q, PART_S, FIRST_TURNS = 3, TURNS = 2 };

template <int K, int WGS, int parts>
struct chain {
    struct __align__(1024) { unsigned char x[K / 64][BYTES]; } k[FIRST_TURNS];
    struct __align__(1024) {
        unsigned char Ab[BYTES], kg[K / 64][BYTES];
        unsigned char q[parts == 4 ? K / 64 : 0][BYTES], Aqk[parts == 4 ? BYTES : 0];
    } turn[TURNS];
    union {
        float decay[TURNS][K];
        struct { float F[CHUNK], B[CHUNK], decay[4]; } head[TURNS];
    };
    bf16 v[FIRST_TURNS][CHUNK][64 * WGS + PAD];
    uint64_t full[parts][FIRST_TURNS], empty[parts][FIRST_TURNS];
};

// The window's chunks of a stretch.
static __device__ __forceinline__ int first_chunk(const struct records &x, int z)
{
    return ((const int *)x.a.cn)[z] + x.first;
}
static __device__ __forceinline__ int chunk_count(const struct records &x, int z)
{
    return min(((const int *)x.a.cn)[z + 1] - first_chunk(x, z), x.count);
}

// Chunk number `turn` of a chain: its place among a part's, and that place's round.
static __device__ __forceinline__ int place_of(int part, int turn)
{
    return turn % (part ? TURNS : FIRST_TURNS);
}
static __device__ __forceinline__ int round_of(int part, int turn)
{
    return turn / (part ? TURNS : FIRST_TURNS);
}

template <class Chain>
static __device__ __forceinline__ void wait_full(Chain &m, int part, int turn)
{
    turn_wait(&m.full[part][place_of(part, turn)], round_of(part, turn));
}
template <class Chain>
static __device__ __forceinline__ void give_back(Chain &m, int part, int turn)
{
    turn_arrive(&m.empty[part][place_of(part, turn)]);
}

// A triangle to where its columns have all 64 rows.
static __device__ __forceinline__ void copy_triangle(unsigned char *to,
                                                     const unsigned char *from,
                                                     uint64_t *full)
{
    #pragma unroll
    for (int J = 0; J < 4; J++)
        bulk_copy(to + 2560 * J, from + column_at(J), 2048 - 512 * J, full);
}

// The zeros above, once: nothing is copied there.
static __device__ __forceinline__ void zeros_above(unsigned char *to)
{
    for (int J = 1; J < 4; J++)
        for (int i = threadIdx.x; i < 32 * J; i += blockDim.x)
            *(uint4 *)(to + 2048 * J + 16 * i) = make_uint4(0, 0, 0, 0);
}

// of_v: beside one lane that announces -k~, 32 arrive when their pieces of v have come.
template <int K, int WGS, int parts>
static __device__ __forceinline__ void chain_init(struct chain<K, WGS, parts> &m,
                                                  int of_v)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < parts * FIRST_TURNS; i++) {
            turn_init(&m.full[0][0] + i, i < FIRST_TURNS && of_v ? 33 : 1);
            turn_init(&m.empty[0][0] + i, 128 * WGS);
        }
        turns_show();
    }
    for (int i = 0; i < TURNS; i++) {
        zeros_above(m.turn[i].Ab);
        if (parts == 4) zeros_above(m.turn[i].Aqk);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

// One part of a chunk's record, by lane 0 of the warp that copies.
template <int K, int WGS, int parts>
static __device__ __forceinline__ void copy_part(const struct record<K> *r, int part,
                                                 int turn,
                                                 struct chain<K, WGS, parts> &m)
{
    const int at = place_of(part, turn);
    uint64_t *full = &m.full[part][at];
    const uint32_t panels = K / 64 * BYTES;
    if (part == PART_K) {
        turn_expect(full, panels);
        bulk_copy(m.k[at].x, r->k, panels, full);
    } else if (part == PART_A) {
        turn_expect(full, TRIANGLE + panels + sizeof r->decay);
        copy_triangle(m.turn[at].Ab, r->Ab, full);
        bulk_copy(m.turn[at].kg, r->kg, panels, full);
        bulk_copy(m.decay[at], r->decay, sizeof r->decay, full);
    } else {
        const uint32_t bytes = part == PART_Q ? panels : TRIANGLE;
        turn_expect(full, bytes);
        if (part == PART_Q) bulk_copy(m.turn[at].q, r->q, bytes, full);
        else copy_triangle(m.turn[at].Aqk, r->Aqk, full);
    }
}

// The same with one gate a head: k is kg, too.
template <int K, int WGS, int parts>
static __device__ __forceinline__ void copy_part(const struct shared_rows<K> *rows,
                                                 const struct head_record *r, int part,
                                                 int turn,
                                                 struct chain<K, WGS, parts> &m)
{
    const int at = place_of(part, turn);
    uint64_t *full = &m.full[part][at];
    const uint32_t panels = K / 64 * BYTES;
    if (part == PART_K) {
        turn_expect(full, panels);
        bulk_copy(m.k[at].x, rows->k, panels, full);
    } else if (part == PART_A) {
        turn_expect(full, TRIANGLE + sizeof m.head[at]);
        copy_triangle(m.turn[at].Ab, r->Ab, full);
        bulk_copy(&m.head[at], r->F, sizeof m.head[at], full);
    } else {
        turn_expect(full, part == PART_Q ? panels : TRIANGLE);
        if (part == PART_Q) bulk_copy(m.turn[at].q, rows->q, panels, full);
        else copy_triangle(m.turn[at].Aqk, r->Aqk, full);
    }
}

// A chunk's rows of v, by the warp: 16 bytes a lane, for rows are too short and too
// many for the engine.
template <int WGS>
static __device__ __forceinline__ void copy_v(const struct records &x, struct span w,
                                              int n, int v0,
                                              bf16 (*to)[64 * WGS + PAD],
                                              uint64_t *full)
{
    const int lane = threadIdx.x % 32, pieces = 8 * WGS, at = lane % pieces * 8;
    const int64_t step = (int64_t)x.a.HV * x.a.V;
    const bf16 *v = in<bf16>(x.a.v, w.t, x.a.HV, n, x.a.V) + v0 + at;
    #pragma unroll 4
    for (int t = lane / pieces; t < w.len; t += 32 / pieces)
        copy_async(&to[t][at], v + t * step, 1);
    copies_arrive(full);
}

// A warp copies one part, of chunk after chunk, each as soon as its place is free.
template <int K, int WGS, int parts, int kda>
static __device__ void copy_ahead(const struct records &x, int z, int n, int v0,
                                  int of_v, struct chain<K, WGS, parts> &m)
{
    const int c0 = first_chunk(x, z), count = chunk_count(x, z), kv = x.a.HV / x.a.H;
    const int part = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    for (int turn = 0; turn < count && part < parts; turn++) {
        const int at = place_of(part, turn);
        if (round_of(part, turn))
            turn_wait(&m.empty[part][at], round_of(part, turn) - 1);
        if (threadIdx.x % 32 == 0 && kda)
            copy_part<K, WGS, parts>(record_of<K>(x, c0 + turn, n), part, turn, m);
        else if (threadIdx.x % 32 == 0)
            copy_part<K, WGS, parts>(rows_of_head<K>(x, c0 + turn, n / kv),
                                     head_of(x, c0 + turn, n), part, turn, m);
        __syncwarp();
        if (part == PART_K && of_v)
            copy_v<WGS>(x, chunk_span(x.a, z, c0 + turn), n, v0, m.v[at],
                        &m.full[PART_K][at]);
    }
}

// y^T [64,64] of a warpgroup from rows of v; columns past the chunk's end are 0.
static __device__ __forceinline__ void load_v(float (*y)[4], const bf16 *v, int ld,
                                              int len)
{
    from_rows(y, v + threadIdx.x / 32 * 16, ld);
    if (len == CHUNK) return;
    #pragma unroll
    for (int i = 0; i < 32; i++)
        if (i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 >= len) y[i / 4][i % 4] = 0.0f;
}

// v as it lies in memory, and y^T <- v^T - y^T, its columns times F; v is 0 past the
// end.
static __device__ __forceinline__ void load_v_raw(uint32_t (*r)[4], const bf16 *v,
                                                  int ld)
{
    v += threadIdx.x / 32 * 16 + tiles_across(threadIdx.x % 32, ld);
    #pragma unroll
    for (int c = 0; c < CHUNK / 16; c++) load_tiles_t(r[c], v + c * 16 * ld);
}

static __device__ __forceinline__ void v_minus(float (*y)[4], const uint32_t (*r)[4],
                                               const float *F, int len)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < 32; i++) {
        const int col = i / 4 * 8 + e + i % 2;
        const uint32_t pair = r[i / 8][i % 8 / 2];
        const float v = i % 2 ? high(pair) : low(pair);
        y[i / 4][i % 4] = fmaf(-F[col], y[i / 4][i % 4], col < len ? v : 0.0f);
    }
}

static __device__ __forceinline__ void scale_all(float (*S)[4], int tiles, float by)
{
    #pragma unroll
    for (int i = 0; i < tiles; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) S[i][j] *= by;
}

// Piece p of D tiles, rounded to bf16, as the A of the next product: what the pieces
// before it left out.
template <int tiles, int p = 0>
static __device__ __forceinline__ void as_rows(uint32_t (*a)[4], const float (*d)[4])
{
    #pragma unroll
    for (int i = 0; i < tiles * 2; i++) {
        float low = d[i / 2][i % 2 * 2], high = d[i / 2][i % 2 * 2 + 1];
        uint32_t top = pack(low, high);
        #pragma unroll
        for (int j = 0; j < p; j++) unpack_rest(top, low, high), top = pack(low, high);
        a[i / 4][i % 4] = top;
    }
}

// d [64,64] += a X^T, X [64,16 steps] in panels.
template <int steps>
static __device__ __forceinline__ void times_panels(float (*d)[4],
                                                    const uint32_t (*a)[4],
                                                    const unsigned char *X, int add)
{
    #pragma unroll
    for (int p = 0; p < steps; p++)
        group_mma_64<0>(d, a[p], rows_at((const bf16 *)(X + p / 4 * BYTES)) +
                        p % 4 * STEP_ROWS, add || p);
}

// d [64,64] = a X^T, or += with add, X [64,64] a triangle's columns.
static __device__ __forceinline__ void times_triangle(float (*d)[4],
                                                      const uint32_t (*a)[4],
                                                      const unsigned char *X, int add)
{
    const uint64_t at = 3ull << 62 | 16ull << 32 | 1ull << 16
                      | (shared_at(X) >> 4 & 0x3fff);
    #pragma unroll
    for (int J = 0; J < 4; J++) group_mma_64<0>(d, a[J], at + 128 * J, add || J);
}

// S^T [64,K] += a X, X [64,K] in panels.
template <int K>
static __device__ __forceinline__ void add_panels(float (*S)[4], const uint32_t (*a)[4],
                                                  const unsigned char *X)
{
    #pragma unroll
    for (int p = 0; p < CHUNK / 16; p++)
        #pragma unroll
        for (int j = 0; j < K / 64; j++)
            group_mma_64<1>(S + 8 * j, a[p], columns_at((const bf16 *)(X + j * BYTES)) +
                            p * STEP_COLUMNS, 1);
}

#endif
