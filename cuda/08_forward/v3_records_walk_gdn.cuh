// v3_records_walk_gdn.cuh -- the scan's walk with one gate a head: decay on rows.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_maps.cuh.
#ifndef KCP_V3_RECORDS_WALK_GDN_CUH
#define KCP_V3_RECORDS_WALK_GDN_CUH

#include "v3_records_chain.cuh"

// As walk, with k and q as they are: y = v - F (k S), o = F (q S) + Aqk v_new, and S
// takes k^T (B v_new), so that one k serves twice.
template <int K, int WGS>
static __device__ __forceinline__ void walk_gdn(const struct records &x, int z, int n,
                                                int v0, struct scan_room<K, WGS> &room,
                                                float (*S)[4])
{
    struct chain<K, WGS, 4> &m = room.m;
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int c0 = __shfl_sync(~0u, first_chunk(x, z), 0);
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    const int64_t end = ((const int *)x.a.cu)[z + 1];
    struct span w = chunk_span(x.a, z, c0);
    float y[CHUNK / 8][4], o[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4] = {};

    for (int turn = 0; turn < count; turn++) {
        const auto &r = m.turn[turn % TURNS];
        const auto &f = m.head[turn % TURNS];
        const int at = turn % FIRST_TURNS;
        as_rows<K / 8>(a, S);
        wait_full(m, PART_K, turn);
        group_begin();
        times_panels<K / 16>(y, a, m.k[at].x[0], 0);                   // k S
        group_commit();
        store_o(x.a, { w.t - CHUNK, turn ? CHUNK : 0 }, n, v0, room.o[wg], packed);
        load_v_raw(packed, m.v[at][0], 64 * WGS + PAD);
        wait_full(m, PART_Q, turn);
        group_begin();
        times_panels<K / 16>(o, a, r.q[0], 0);
        group_commit();
        wait_full(m, PART_A, turn);
        group_wait<1>();
        hold<CHUNK / 8>(y);

        v_minus(y, packed, f.F, w.len);
        as_rows<CHUNK / 8>(b, y);
        group_begin();
        times_triangle(y, b, r.Ab, 0);                                 // v_new
        group_commit();
        scale_all(S, K / 8, f.decay[0]);
        group_wait<1>();
        hold<CHUNK / 8>(o);
        give_back(m, PART_Q, turn);
        scale_columns<CHUNK / 8>(o, f.F);
        group_wait<0>();
        hold<CHUNK / 8>(y);

        as_rows<CHUNK / 8>(b, y);
        scale_columns<CHUNK / 8>(y, f.B);
        as_rows<CHUNK / 8>(a, y);
        wait_full(m, PART_S, turn);
        group_begin();
        add_panels<K>(S, a, m.k[at].x[0]);
        times_triangle(o, b, r.Aqk, 1);
        group_commit();
        w.t += CHUNK, w.len = min((int64_t)CHUNK, end - w.t);
        group_wait<0>();
        hold<K / 8>(S), hold<CHUNK / 8>(o);
        give_back(m, PART_K, turn), give_back(m, PART_A, turn);
        give_back(m, PART_S, turn);
        pack_o(packed, o);
    }
    w = chunk_span(x.a, z, c0 + count - 1);
    if (count) store_o(x.a, w, n, v0, room.o[wg], packed);
}

#endif
