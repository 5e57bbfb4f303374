// v3_records_chain.cuh -- what the scan and the maps share: records in turn, products.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_CHAIN_CUH
#define KCP_V3_RECORDS_CHAIN_CUH

#include "v3_records.cuh"

// On chip: records in turn, in parts that arrive, and are given back, on their own:
// -k~ with v beside it, three chunks ahead; A beta, kg and decay; qg; Aqk, two ahead. A
// map leaves the last two out. A warpgroup has 64 columns of the state, S^T in registers
// as in scan.cuh.
enum { PART_K, PART_A, PART_Q, PART_S, FIRST_TURNS = 3, TURNS = 2 };

template <int K, int WGS, int parts>
struct chain {
    struct __align__(1024) { unsigned char x[K / 64][BYTES]; } k[FIRST_TURNS];
    struct __align__(1024) {
        unsigned char Ab[BYTES], kg[K / 64][BYTES];
        unsigned char q[parts == 4 ? K / 64 : 0][BYTES], Aqk[parts == 4 ? BYTES : 0];
    } turn[TURNS];
    float decay[TURNS][K];
    bf16 v[FIRST_TURNS][CHUNK][64 * WGS + PAD];
    uint64_t full[parts][FIRST_TURNS], empty[parts][FIRST_TURNS];
};

// Chunk number `turn` of a chain: its place among a part's, and the round of that place.
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

template <int K, int WGS, int parts>
static __device__ __forceinline__ void chain_init(struct chain<K, WGS, parts> &m)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < parts * FIRST_TURNS; i++) {
            turn_init(&m.full[0][0] + i, 1);
            turn_init(&m.empty[0][0] + i, 128 * WGS);
        }
        turns_show();
    }
    __syncthreads();
}

// One part of a chunk's record, by lane 0 of the warp that copies.
template <int K, int WGS, int parts>
static __device__ __forceinline__ void copy_part(const struct record<K> *r, int part,
                                                 int turn, uint32_t more,
                                                 struct chain<K, WGS, parts> &m)
{
    const int at = place_of(part, turn);
    uint64_t *full = &m.full[part][at];
    const uint32_t panels = K / 64 * BYTES;
    if (part == PART_K) {
        turn_expect(full, panels + more);
        bulk_copy(m.k[at].x, r->k, panels, full);
    } else if (part == PART_A) {
        turn_expect(full, BYTES + panels + sizeof r->decay);
        bulk_copy(m.turn[at].Ab, r->Ab, BYTES + panels, full);
        bulk_copy(m.decay[at], r->decay, sizeof r->decay, full);
    } else {
        const uint32_t bytes = part == PART_Q ? panels : BYTES;
        turn_expect(full, bytes);
        if (part == PART_Q) bulk_copy(m.turn[at].q, r->q, bytes, full);
        else bulk_copy(m.turn[at].Aqk, r->Aqk, bytes, full);
    }
}

// A warp copies one part, of chunk after chunk, each as soon as its place is free.
template <int K, int WGS, int parts>
static __device__ void copy_ahead(const struct records &x, int z, int n, int v0, int of_v,
                                  struct chain<K, WGS, parts> &m)
{
    const int *cn = (const int *)x.a.cn, c0 = cn[z], count = cn[z + 1] - c0;
    const int lane = threadIdx.x % 32, row = 64 * WGS * sizeof(bf16);
    const int part = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    for (int turn = 0; turn < count && part < parts; turn++) {
        const struct span w = chunk_span(x.a, z, c0 + turn);
        const int rows = part == PART_K && of_v ? w.len : 0, at = place_of(part, turn);
        if (round_of(part, turn))
            turn_wait(&m.empty[part][at], round_of(part, turn) - 1);
        if (lane == 0)
            copy_part<K, WGS, parts>(record_of<K>(x, c0 + turn, n), part, turn,
                                     rows * row, m);
        __syncwarp();
        for (int t = lane; t < rows; t += 32)
            bulk_copy(m.v[at][t], in<bf16>(x.a.v, w.t + t, x.a.HV, n, x.a.V) + v0, row,
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
static __device__ __forceinline__ void times_panels(float (*d)[4], const uint32_t (*a)[4],
                                                    const unsigned char *X, int add)
{
    #pragma unroll
    for (int p = 0; p < steps; p++)
        group_mma_64<0>(d, a[p], rows_at((const bf16 *)(X + p / 4 * BYTES)) +
                        p % 4 * STEP_ROWS, add || p);
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
