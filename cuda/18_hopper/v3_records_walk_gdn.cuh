// v3_records_walk_gdn.cuh -- the scan's walk with one gate a head: decay on rows.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_scan.cuh.
#ifndef KCP_V3_RECORDS_WALK_GDN_CUH
#define KCP_V3_RECORDS_WALK_GDN_CUH

#include "v3_records_walk.cuh"

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
        a[i / 2][i % 2 * 2] = pack_bf16x2(d[i][0] * f.x, d[i][1] * f.y);
        a[i / 2][i % 2 * 2 + 1] = pack_bf16x2(d[i][2] * f.x, d[i][3] * f.y);
    }
}

// As walk_kda, with k and q as they are: y = v - F (k S), o = Q (q S) + Aqk v_new, and
// S takes k^T (B v_new), so that one k serves twice.
template <int K, int WGS, int blocks>
struct walk_gdn {
    enum { LD = 64 * WGS + PAD };        // a row of v to the next
    struct chain<K, WGS, 4, 0> &m;
    struct o_out to;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];

    // S as it was before the chunk: v_new to y, Q (q S) to o, and S decays.
    __device__ __forceinline__ void front(int turn, float (*S)[4])
    {
        const auto &f = m.head[turn % m.SECOND];
        const int at = turn % m.FIRST;
        uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4], v[4][4];
        as_rows<K / 8>(a, S);
        wait_full(m, PART_K, turn);
        wgmma_fence();
        times_panels<K / 16>(y, a, m.k[at].x[0], 0);                   // k S
        wgmma_commit();
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(o);
        pack_o(packed, o);
        if (turn) give_back<blocks>(m, PART_S, turn - 1);
        wait_full(m, PART_Q, turn);
        wgmma_fence();
        times_panels<K / 16>(o, a, m.later[turn % m.LATER].q[0], 0);
        wgmma_commit();
        load_v_raw(v, m.v[at][0], LD);
        if (turn) turn_o<LD>(m.v[at][0], packed, m.turned);
        wait_full(m, PART_A, turn);
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(y);

        v_minus(y, v, f.F, CHUNK);
        as_rows<CHUNK / 8>(b, y);
        wgmma_fence();
        times_triangle(y, b, m.second[turn % m.SECOND].Ab, 0);         // v_new
        wgmma_commit();
        scale_all(S, K / 8, f.decay[0]);
        fence_operand<K / 8>(S);
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(o);
        scale_columns<CHUNK / 8>(o, f.Q);
        give_back<blocks>(m, PART_Q, turn);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
    }

    // The chunk's v_new into S, and beside it into o.
    __device__ __forceinline__ void back(int turn, int next, float (*S)[4])
    {
        uint32_t a[CHUNK / 16][4], b[CHUNK / 16][4];
        as_rows_times<CHUNK / 8>(a, y, m.head[turn % m.SECOND].B);
        wgmma_fence();
        add_panels<K>(S, a, m.k[turn % m.FIRST].x[0]);
        wgmma_commit();
        as_rows<CHUNK / 8>(b, y);
        wait_full(m, PART_S, turn);
        wgmma_fence();
        times_triangle(o, b, m.later[turn % m.LATER].Aqk, 1);
        wgmma_commit();
        if (turn) rows_of_o<LD>(to, m.v[turn % m.FIRST][0], m.turned, turn - 1);
        mbarrier_arrive(&m.v_empty[turn % m.FIRST]);
        wgmma_wait<1>();
        fence_operand<K / 8>(S);
        give_back<blocks>(m, PART_K, turn), give_back<blocks>(m, PART_A, turn);
    }
};

#endif
