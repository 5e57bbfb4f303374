// v3_records_walk_gdn.cuh -- the scan's walk with one gate a head: decay on rows.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_walk_apart.cuh.
#ifndef KCP_V3_RECORDS_WALK_GDN_CUH
#define KCP_V3_RECORDS_WALK_GDN_CUH

#include "v3_records_chain.cuh"

// D tiles, a factor times each column, rounded, as the A of the next product.
template <int tiles>
static __device__ __forceinline__ void as_rows_times(uint32_t (*a)[4],
                                                     const float (*d)[4],
                                                     const float *factor)
{
    const int e = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < tiles; i++) {
        const float2 f = *(const float2 *)&factor[i * 8 + e];
        a[i / 2][i % 2 * 2] = pack(d[i][0] * f.x, d[i][1] * f.y);
        a[i / 2][i % 2 * 2 + 1] = pack(d[i][2] * f.x, d[i][3] * f.y);
    }
}

// o of a chunk, turned on its way, to the warp that takes rows to memory.
template <class Room>
static __device__ __forceinline__ void hand_o(Room &room, int wg, int turn,
                                              const uint32_t (*p)[4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (turn) turn_wait(&room.o_empty[wg], turn - 1);
    #pragma unroll
    for (int i = 0; i < 4; i++)
        store_tiles_t(&room.o[wg][i * 16 + lane / 16 * 8 + lane % 8]
                         [warp % 4 * 16 + lane / 8 % 2 * 8], p[i]);
    __syncwarp();
    if (lane == 0) turn_arrive(&room.o_full[wg]);
}

// Of a stretch's part in this window: its first row in o, and how many rows from there.
static __device__ __forceinline__ bf16 *o_rows(const struct records &x, int z, int n)
{
    const struct span w = chunk_span(x.a, z, first_chunk(x, z));
    return out<bf16>(x.a.o, w.t, x.a.HV, n, x.a.V);
}
static __device__ __forceinline__ int64_t rows_left(const struct records &x, int z)
{
    return ((const int *)x.a.cu)[z + 1] - chunk_span(x.a, z, first_chunk(x, z)).t;
}

// The warp of the last part has the first warpgroup's rows, the one before the other's.
template <class Room, int WGS>
struct o_out {
    Room &room;
    bf16 *o;                             // the first chunk's
    int64_t step, left;                  // a row to the next; rows of the stretch

    __device__ void operator()(int part, int turn) const
    {
        const int wg = PART_S - part, lane = threadIdx.x % 32, d = lane % 8 * 8;
        if (wg < 0 || wg >= WGS) return;
        const int len = min((int64_t)CHUNK, left - (int64_t)turn * CHUNK);
        bf16 *to = o + ((int64_t)turn * CHUNK + lane / 8) * step + 64 * wg + d;
        turn_wait(&room.o_full[wg], turn);
        #pragma unroll 4
        for (int i = lane / 8; i < len; i += 4, to += 4 * step)
            *(uint4 *)to = *(const uint4 *)&room.o[wg][i][d];
        __syncwarp();
        if (lane == 0) turn_arrive(&room.o_empty[wg]);
    }
};

// As walk, with k and q as they are: y = v - F (k S), o = Q (q S) + Aqk v_new, and S
// takes k^T (B v_new), so that one k serves twice. In series: k S, y, v_new, S; all of
// o's runs beside them, Aqk v_new beside the next chunk's k S. A link ends in its
// middle, where no product is under way: the compiler waits there for all of them.
template <int K, int WGS, int blocks>
struct walk_gdn {
    struct scan_room<K, WGS, 0, 0> &room;
    int wg;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];

    // S as it was before the chunk: v_new to y, Q (q S) to o, and S decays.
    __device__ __forceinline__ void front(int turn, float (*S)[4])
    {
        struct chain<K, WGS, 4, 0> &m = room.m;
        const auto &r = m.turn[turn % m.LATER];
        const auto &f = m.head[turn % m.LATER];
        const int at = turn % FIRST_TURNS;
        uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4], v[4][4];
        as_rows<K / 8>(a, S);
        wait_full(m, PART_K, turn);
        group_begin();
        times_panels<K / 16>(y, a, m.k[at].x[0], 0);                   // k S
        group_commit();
        group_wait<1>();
        hold<CHUNK / 8>(o);
        pack_o(packed, o);
        if (turn) give_back<blocks>(m, PART_S, turn - 1);
        wait_full(m, PART_Q, turn);
        group_begin();
        times_panels<K / 16>(o, a, r.q[0], 0);
        group_commit();
        if (turn) hand_o(room, wg, turn - 1, packed);
        load_v_raw(v, m.v[at][0], 64 * WGS + PAD);
        wait_full(m, PART_A, turn);
        group_wait<1>();
        hold<CHUNK / 8>(y);

        v_minus(y, v, f.F, CHUNK);
        as_rows<CHUNK / 8>(b, y);
        group_begin();
        times_triangle(y, b, r.Ab, 0);                                 // v_new
        group_commit();
        scale_all(S, K / 8, f.decay[0]);
        hold<K / 8>(S);
        group_wait<1>();
        hold<CHUNK / 8>(o);
        scale_columns<CHUNK / 8>(o, f.Q);
        give_back<blocks>(m, PART_Q, turn);
        group_wait<0>();
        hold<CHUNK / 8>(y);
    }

    // The chunk's v_new into S, and beside it into o.
    __device__ __forceinline__ void back(int turn, float (*S)[4])
    {
        struct chain<K, WGS, 4, 0> &m = room.m;
        uint32_t a[CHUNK / 16][4], b[CHUNK / 16][4];
        as_rows_times<CHUNK / 8>(a, y, m.head[turn % m.LATER].B);
        group_begin();
        add_panels<K>(S, a, m.k[turn % FIRST_TURNS].x[0]);
        group_commit();
        as_rows<CHUNK / 8>(b, y);
        wait_full(m, PART_S, turn);
        group_begin();
        times_triangle(o, b, m.turn[turn % m.LATER].Aqk, 1);
        group_commit();
        group_wait<1>();
        hold<K / 8>(S);
        give_back<blocks>(m, PART_K, turn), give_back<blocks>(m, PART_A, turn);
    }

    __device__ __forceinline__ void last(int turn)
    {
        uint32_t packed[4][4];
        group_wait<0>();
        hold<CHUNK / 8>(o);
        pack_o(packed, o);
        hand_o(room, wg, turn, packed);
    }
};

template <class Walk>
static __device__ __forceinline__ void walk_links(Walk w, int count, float (*S)[4])
{
    if (count == 0) return;
    w.front(0, S);
    for (int turn = 0; turn + 1 < count; turn++) w.back(turn, S), w.front(turn + 1, S);
    w.back(count - 1, S);
    w.last(count - 1);
}

#endif
