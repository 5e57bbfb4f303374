// v3_records_walk_kda.cuh -- the scan's walk with a gate a channel, and o's way out.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_walk_gdn.cuh.
#ifndef KCP_V3_RECORDS_WALK_KDA_CUH
#define KCP_V3_RECORDS_WALK_KDA_CUH

#include "v3_records_chain.cuh"

// o^T, packed as soon as it is there: registers of products may not be read while
// others are under way.
static __device__ __forceinline__ void pack_o(uint32_t (*p)[4], const float (*o)[4])
{
    #pragma unroll
    for (int i = 0; i < 16; i++)
        p[i / 4][i % 4] = pack(o[i / 2][i % 2 * 2], o[i / 2][i % 2 * 2 + 1]);
}

// To rows of the output, turned in shared memory so that rows leave whole.
static __device__ __forceinline__ void store_o(const struct kcp_forward &a,
                                               struct span w, int n, int v0,
                                               bf16 (*to)[64 + PAD],
                                               const uint32_t (*p)[4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = threadIdx.x % 128;
    const int wg = threadIdx.x / 128;
    #pragma unroll
    for (int i = 0; i < 4; i++)
        store_tiles_t(&to[i * 16 + lane / 16 * 8 + lane % 8]
                         [warp % 4 * 16 + lane / 8 % 2 * 8], p[i]);
    group_sync(wg);
    const int64_t step = (int64_t)a.HV * a.V;
    bf16 *o = out<bf16>(a.o, w.t, a.HV, n, a.V) + v0 + 64 * wg + at % 8 * 8;
    #pragma unroll
    for (int i = at / 8; i < CHUNK; i += 16)
        if (i < w.len) *(uint4 *)(o + i * step) = *(const uint4 *)&to[i][at % 8 * 8];
    group_sync(wg);
}

// Where o is turned: one warpgroup has no room for it but that of this turn's v, which
// all of its warps have read.
template <int K, int WGS>
static __device__ __forceinline__ auto o_room(struct scan_room<K, WGS, 1, 0> &room,
                                              int wg, int turn)
{
    if constexpr (WGS == 1) {
        group_sync(wg);
        return room.m.v[turn % FIRST_TURNS];
    } else {
        return room.o[wg];
    }
}

// One warpgroup's columns along a chain. Products run one behind the other, and each is
// waited for as late as what it makes is needed: o of a chunk is stored while the next
// chunk's k~ S runs.
template <int K, int WGS, int blocks>
static __device__ __forceinline__ void walk(const struct records &x, int z, int n,
                                            int v0,
                                            struct scan_room<K, WGS, 1, 0> &room,
                                            float (*S)[4])
{
    struct chain<K, WGS, 4, 1> &m = room.m;
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int c0 = __shfl_sync(~0u, first_chunk(x, z), 0);
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    const int64_t end = ((const int *)x.a.cu)[z + 1];
    struct span w = chunk_span(x.a, z, c0);
    float y[CHUNK / 8][4], o[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4] = {};

    wait_full(m, PART_K, 0);
    load_v(y, m.v[0][0], 64 * WGS + PAD, w.len);
    for (int turn = 0; turn < count; turn++) {
        const auto &r = m.turn[turn % m.LATER];
        //> kernel-records-walk
        as_rows<K / 8>(a, S);
        group_begin();
        times_panels<K / 16>(y, a, m.k[turn % FIRST_TURNS].x[0], 1);   // v - k~ S
        group_commit();
        store_o(x.a, { w.t - CHUNK, turn ? CHUNK : 0 }, n, v0, o_room(room, wg, turn),
                packed);
        wait_full(m, PART_Q, turn);
        group_begin();
        times_panels<K / 16>(o, a, r.q[0], 0);
        group_commit();
        group_wait<1>();
        hold<CHUNK / 8>(y);
        give_back<blocks>(m, PART_K, turn);

        as_rows<CHUNK / 8>(b, y);
        wait_full(m, PART_A, turn);
        group_begin();
        times_triangle(y, b, r.Ab, 0);                                 // v_new
        group_commit();
        scale_columns<K / 8>(S, m.decay[turn % m.LATER]);
        group_wait<0>();
        hold<CHUNK / 8>(y), hold<CHUNK / 8>(o);
        give_back<blocks>(m, PART_Q, turn);

        as_rows<CHUNK / 8>(b, y);
        group_begin();
        add_panels<K>(S, b, r.kg[0]);
        wait_full(m, PART_S, turn);
        times_triangle(o, b, r.Aqk, 1);
        group_commit();
        //< kernel-records-walk
        w.t += CHUNK, w.len = min((int64_t)CHUNK, end - w.t);
        if (turn + 1 < count) {
            wait_full(m, PART_K, turn + 1);
            load_v(y, m.v[(turn + 1) % FIRST_TURNS][0], 64 * WGS + PAD, w.len);
        }
        group_wait<0>();
        hold<K / 8>(S), hold<CHUNK / 8>(o);
        give_back<blocks>(m, PART_A, turn), give_back<blocks>(m, PART_S, turn);
        pack_o(packed, o);
    }
    w = chunk_span(x.a, z, c0 + count - 1);
    if (count) store_o(x.a, w, n, v0, o_room(room, wg, count), packed);
}

#endif
