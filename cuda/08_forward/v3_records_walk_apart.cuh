// v3_records_walk_apart.cuh -- the scan's walk with one gate a head, o by others.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_maps.cuh.
#ifndef KCP_V3_RECORDS_WALK_APART_CUH
#define KCP_V3_RECORDS_WALK_APART_CUH

#include "v3_records_walk_gdn.cuh"

// As walk_gdn, by two warpgroups. The first has what the next chunk waits for: k S, y,
// v_new, S. It hands S as it was before the chunk, and v_new, rounded as they enter its
// own products, through shared memory to the second, which makes o of them and has a
// link's time for it. Each part of a record is read by one of the two alone.
//
// A chunk's place among FIRST_TURNS, and the round.
struct place { int at, round; };

static __device__ __forceinline__ void step(struct place &p)
{
    p.at = p.at + 1 == FIRST_TURNS ? 0 : p.at + 1, p.round += p.at == 0;
}

// Where this lane's rows of a panel begin: the warp's 16 rows, a tile's row a lane.
static __device__ __forceinline__ uint32_t rows_of_lane(const unsigned char *X)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
    return shared_at(X) + in_panel(row, lane / 16);
}

// An A of a warpgroup [64,64] to a panel, where rows_at finds it again.
static __device__ __forceinline__ void put_rows(uint32_t at, const uint32_t (*a)[4])
{
    #pragma unroll
    for (int p = 0; p < 4; p++) store_tiles(at ^ p << 5, a[p]);
}

// What this warp wrote can be read; or what it read, written: a lane tells.
static __device__ __forceinline__ void hand(uint64_t *bar)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) turn_arrive(bar);
}

// Factors of a lane's columns, two a tile.
static __device__ __forceinline__ void load_factors(float (*f)[4], const float *x)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < CHUNK / 8; i++) {
        const float2 two = *(const float2 *)&x[i * 8 + e];
        f[i / 2][i % 2 * 2] = two.x, f[i / 2][i % 2 * 2 + 1] = two.y;
    }
    hold<4>(f);
}

// S^T += a X, 16 rows of X [64,K]: step p.
template <int K>
static __device__ __forceinline__ void add_step(float (*S)[4], const uint32_t *a,
                                                const unsigned char *X, int p)
{
    const uint64_t at = columns_at((const bf16 *)X) + p * STEP_COLUMNS;
    if constexpr (K == 128) group_mma_128<1>(S, a, at);
    else group_mma_64<1>(S, a, at, 1);
}

// Columns of D tiles, times factors, as an A; half of them: 4 tiles.
static __device__ __forceinline__ void half_times(uint32_t (*a)[4], const float (*x)[4],
                                                  const float (*f)[4])
{
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        const float *t = x[i / 2] + i % 2 * 2, *by = f[i / 4] + i / 2 % 2 * 2;
        a[i / 4][i % 4] = pack(t[0] * by[0], t[1] * by[1]);
    }
}

// y <- v - F y in v's place, and as an A; half of the columns as well.
static __device__ __forceinline__ void half_minus(uint32_t (*a)[4], float (*v)[4],
                                                  const float (*y)[4],
                                                  const float (*f)[4])
{
    #pragma unroll
    for (int i = 0; i < 16; i++)
        v[i / 4][i % 4] = fmaf(-f[i / 8][i / 4 % 2 * 2 + i % 2], y[i / 4][i % 4],
                               v[i / 4][i % 4]);
    as_rows<4>(a, v);
}

// The state's warpgroup, a chunk. v_new's factors are packed in halves, the second
// beside the products of the first; all else is done while products run.
template <int K, int blocks>
struct state_link {
    struct scan_room<K, 1, 0, 1> &room;
    int turn, count;
    struct place p;
    uint32_t put;                        // where this lane's rows of panels begin
    uint32_t a[K / 16][4];               // S as it was before the chunk
    float x[CHUNK / 8][4];               // v_new

    // x = A beta (v - F (k S)), and S decays.
    __device__ __forceinline__ void front(float (*S)[4])
    {
        auto &m = room.m;
        float y[CHUNK / 8][4], v[CHUNK / 8][4], f[4][4];
        uint32_t b[CHUNK / 16][4];
        as_rows<K / 8>(a, S);
        group_begin();
        times_panels<K / 16>(y, a, m.k[turn % m.FIRST].x[0], 0);       // k S
        group_commit();
        if (turn) give_back<blocks>(m, PART_K, turn - 1);
        turn_wait(&m.full[PART_A][p.at], p.round);
        load_factors(f, m.head[p.at].F);
        from_rows(v, m.v[turn % m.FIRST][0] + threadIdx.x / 32 * 16, 64 + PAD);
        hold<CHUNK / 8>(v);
        group_wait<0>();
        hold<CHUNK / 8>(y);

        #pragma unroll
        for (int h = 0; h < 2; h++) {
            half_minus(b + 2 * h, v + 4 * h, y + 4 * h, f + 2 * h);
            group_begin();
            triangle_steps<2>(x, b + 2 * h, m.turn[p.at].Ab, 2 * h, 0);
        }
        group_commit();
        scale_all(S, K / 8, m.head[p.at].decay[0]);
        hold<K / 8>(S);
    }

    // v_new into S, and with S as it was to the other warpgroup.
    __device__ __forceinline__ void back(float (*S)[4])
    {
        auto &m = room.m;
        const unsigned char *k = m.k[turn % m.FIRST].x[0];
        float f[4][4];
        uint32_t b[CHUNK / 16][4];
        load_factors(f, m.head[p.at].B);
        group_wait<0>();
        hold<CHUNK / 8>(x);
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            half_times(b + 2 * h, x + 4 * h, f + 2 * h);
            group_begin();
            add_step<K>(S, b[2 * h], k, 2 * h);
            add_step<K>(S, b[2 * h + 1], k, 2 * h + 1);
        }
        group_commit();
        hand_over();
        give_back<blocks>(m, PART_A, p.at);
        step(p);
        if (turn + 1 < count) wait_full(m, PART_K, turn + 1);
        group_wait<0>();
        hold<K / 8>(S);
    }

    __device__ __forceinline__ void hand_over(void)
    {
        uint32_t b[CHUNK / 16][4];
        as_rows<CHUNK / 8>(b, x);
        turn_wait(room.h_empty, turn - 1);   // of turn -1: over
        #pragma unroll
        for (int j = 0; j < K / 64; j++) put_rows(put + j * BYTES, a + 4 * j);
        put_rows(put + K / 64 * BYTES, b);
        show_async();
        hand(room.h_full);
    }
};

template <int K, int blocks>
static __device__ __forceinline__ void walk_state(struct scan_room<K, 1, 0, 1> &room,
                                                  int count, float (*S)[4])
{
    struct state_link<K, blocks> link = {
        room, 0, count, {}, rows_of_lane(room.handed->S[0]) };
    if (count) wait_full(room.m, PART_K, 0);
    for (; link.turn < count; link.turn++) link.front(S), link.back(S);
}

// d = q S and o = Aqk v_new of a chunk, rows of tokens; and Q of this lane's two rows.
template <int K, int blocks>
static __device__ __forceinline__ float2 o_link(struct scan_room<K, 1, 0, 1> &room,
                                                int turn, float (*d)[4], float (*o)[4])
{
    auto &m = room.m;
    const auto &from = *room.handed;
    const auto &r = m.turn[turn % m.LATER];
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const float *Q = m.head[turn % m.LATER].Q;
    wait_full(m, PART_Q, turn);
    const float2 factor = make_float2(Q[row], Q[row + 8]);
    wait_full(m, PART_S, turn);
    turn_wait(room.h_full, turn);
    group_begin();
    #pragma unroll
    for (int i = 0; i < K / 16; i++)
        group_mma_rows(d, rows_at((const bf16 *)r.q[i / 4]) + i % 4 * STEP_ROWS,
                       rows_at((const bf16 *)from.S[i / 4]) + i % 4 * STEP_ROWS, i);
    #pragma unroll
    for (int J = 0; J < CHUNK / 16; J++)
        group_mma_rows(o, triangle_at(r.Aqk) + 128 * J,
                       rows_at((const bf16 *)from.v) + J * STEP_ROWS, J);
    group_commit();
    group_wait<0>();
    hold<CHUNK / 8>(d), hold<CHUNK / 8>(o);
    hand(room.h_empty);
    give_back<blocks>(m, PART_Q, turn), give_back<blocks>(m, PART_S, turn);
    return factor;
}

// Rows of four tiles, a lane's two neighbours of each: lane e of four gets the eight
// of tile e.
static __device__ __forceinline__ uint4 eight_of(const float (*o)[4], int h)
{
    const uint2 x = four_of(pack(o[0][h], o[0][h + 1]), pack(o[1][h], o[1][h + 1]));
    const uint2 y = four_of(pack(o[2][h], o[2][h + 1]), pack(o[3][h], o[3][h + 1]));
    const int far = threadIdx.x % 4 / 2;
    const uint32_t a = __shfl_xor_sync(~0u, far ? x.x : y.x, 2);
    const uint32_t b = __shfl_xor_sync(~0u, far ? x.y : y.y, 2);
    return far ? make_uint4(a, b, y.x, y.y) : make_uint4(x.x, x.y, a, b);
}

// The second warpgroup: o = Q (q S) + Aqk v_new, chunk after chunk, to memory 64 bytes
// of a row at a time.
template <int K, int blocks>
static __device__ __forceinline__ void walk_o(const struct records &x, int z, int n,
                                              int v0,
                                              struct scan_room<K, 1, 0, 1> &room)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    const int64_t ld = (int64_t)x.a.HV * x.a.V;
    bf16 *to = o_rows(x, z, n) + v0 + row * ld + lane % 4 * 8;
    int64_t left = rows_left(x, z) - row;
    float d[CHUNK / 8][4], o[CHUNK / 8][4];
    for (int turn = 0; turn < count; turn++, to += CHUNK * ld, left -= CHUNK) {
        const float2 Q = o_link<K, blocks>(room, turn, d, o);
        #pragma unroll
        for (int i = 0; i < 32; i++)
            o[i / 4][i % 4] = fmaf(i % 4 < 2 ? Q.x : Q.y, d[i / 4][i % 4],
                                   o[i / 4][i % 4]);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const int h = i / 2, t = i % 2 * 4;
            const uint4 eight = eight_of(o + t, 2 * h);
            if (8 * h < left) *(uint4 *)(to + 8 * h * ld + 8 * t) = eight;
        }
    }
}

#endif
