// v3_records_walk_kda.cuh -- the scan's walk with a gate a channel.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: v3_records_walk_gdn.cuh.
#ifndef KCP_V3_RECORDS_WALK_KDA_CUH
#define KCP_V3_RECORDS_WALK_KDA_CUH

#include "v3_records_walk.cuh"

// One warpgroup's columns along a chain. Products run one behind the other, and each is
// waited for as late as what it makes is needed. In series: k~ S, v_new, S. Products of
// o run behind them, and o of a chunk leaves beside the next chunk's: in back, while S
// takes v_new; of two warpgroups in front, where the other has products to run.
template <int K, int WGS, int blocks>
struct walk_kda {
    enum { LD = 64 * WGS + PAD,          // a row of v to the next
           EARLY = WGS == 2 };           // o leaves in front
    struct chain<K, WGS, 4, 1> &m;
    struct o_out to;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];

    // y = v of a chunk, 0 past its end.
    __device__ __forceinline__ void begin(int turn)
    {
        wait_full(m, PART_K, turn);
        from_rows(y, m.v[turn % m.FIRST][0] + threadIdx.x / 32 * 16, LD);
    }

    // The chunk before's, from where this one's v was; which can be filled again.
    __device__ __forceinline__ void rows_out(int turn)
    {
        const int at = turn % m.FIRST;
        if (turn) rows_of_o<LD>(to, m.v[at][0], m.turned, turn - 1);
        mbarrier_arrive(&m.v_empty[at]);
    }

    __device__ __forceinline__ void front(int turn, float (*S)[4])
    {
        const int at = turn % m.SECOND;
        uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4];
        if (turn == 0) begin(0);
        as_rows<K / 8>(a, S);
        //> kernel-records-walk
        wgmma_fence();
        times_panels<K / 16>(y, a, m.k[turn % m.FIRST].x[0], 1);       // v - k~ S
        wgmma_commit();
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(o);
        pack_o(packed, o);
        if (turn) give_back<blocks>(m, PART_S, turn - 1);
        wait_full(m, PART_Q, turn);
        wgmma_fence();
        times_panels<K / 16>(o, a, m.later[turn % m.LATER].q[0], 0);
        wgmma_commit();
        if (turn) turn_o<LD>(m.v[turn % m.FIRST][0], packed, m.turned);
        if (EARLY) rows_out(turn);
        wait_full(m, PART_A, turn);
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(y);
        give_back<blocks>(m, PART_K, turn);

        as_rows<CHUNK / 8>(b, y);
        wgmma_fence();
        times_triangle(y, b, m.second[at].Ab, 0);                      // v_new
        wgmma_commit();
        scale_columns<K / 8>(S, m.decay[at]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y), fence_operand<CHUNK / 8>(o);
        give_back<blocks>(m, PART_Q, turn);
    }

    __device__ __forceinline__ void back(int turn, int next, float (*S)[4])
    {
        uint32_t b[CHUNK / 16][4];
        as_rows<CHUNK / 8>(b, y);
        wgmma_fence();
        add_panels<K>(S, b, m.second[turn % m.SECOND].kg[0]);
        wgmma_commit();
        wait_full(m, PART_S, turn);
        wgmma_fence();
        times_triangle(o, b, m.later[turn % m.LATER].Aqk, 1);
        wgmma_commit();
        //< kernel-records-walk
        if (!EARLY) rows_out(turn);
        if (next) begin(next);
        wgmma_wait<1>();
        fence_operand<K / 8>(S);
        give_back<blocks>(m, PART_A, turn);
    }
};

#endif
