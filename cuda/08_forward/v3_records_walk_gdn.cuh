// v3_records_walk_gdn.cuh -- the scan's walk with one gate a head: decay on rows.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_maps.cuh.
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

// As walk, with k and q as they are: y = v - F (k S), o = Q (q S) + Aqk v_new, and S
// takes k^T (B v_new), so that one k serves twice. In series: k S, y, v_new, S; all of
// o's runs beside them, Aqk v_new beside the next chunk's k S.
template <int K, int WGS, int blocks>
static __device__ __forceinline__ void walk_gdn(const struct records &x, int z, int n,
                                                int v0,
                                                struct scan_room<K, WGS, 0> &room,
                                                float (*S)[4])
{
    struct chain<K, WGS, 4, 0> &m = room.m;
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int c0 = __shfl_sync(~0u, first_chunk(x, z), 0);
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    struct span w = chunk_span(x.a, z, c0);
    float y[CHUNK / 8][4], o[CHUNK / 8][4] = {};
    uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4], v[4][4];

    for (int turn = 0; turn < count; turn++) {
        const auto &r = m.turn[turn % m.LATER];
        const auto &f = m.head[turn % m.LATER];
        const int at = turn % FIRST_TURNS;
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
        store_o(x.a, { w.t - CHUNK, turn ? CHUNK : 0 }, n, v0, room.o[wg], packed);
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
        give_back<blocks>(m, PART_Q, turn);
        scale_columns<CHUNK / 8>(o, f.Q);
        group_wait<0>();
        hold<CHUNK / 8>(y);

        as_rows_times<CHUNK / 8>(a, y, f.B);
        group_begin();
        add_panels<K>(S, a, m.k[at].x[0]);
        group_commit();
        as_rows<CHUNK / 8>(b, y);
        wait_full(m, PART_S, turn);
        group_begin();
        times_triangle(o, b, r.Aqk, 1);
        group_commit();
        w.t += CHUNK;
        group_wait<1>();
        hold<K / 8>(S);
        give_back<blocks>(m, PART_K, turn), give_back<blocks>(m, PART_A, turn);
    }
    group_wait<0>();
    hold<CHUNK / 8>(o);
    pack_o(packed, o);
    w = chunk_span(x.a, z, c0 + count - 1);
    if (count) store_o(x.a, w, n, v0, room.o[wg], packed);
}

#endif
