// v3_records_scan.cuh -- the kernel that consumes the records: a chain a block.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_maps.cuh.
#ifndef KCP_V3_RECORDS_SCAN_CUH
#define KCP_V3_RECORDS_SCAN_CUH

#include "v3_records_chain.cuh"

template <int K, int WGS>
struct scan_room {
    struct chain<K, WGS, 4> m;
    bf16 o[WGS][CHUNK][64 + PAD];
};

// o^T to rows of the output, turned in shared memory so that rows leave whole.
static __device__ __forceinline__ void store_o(const struct kcp_forward &a, struct span w,
                                               int n, int v0, bf16 (*to)[64 + PAD],
                                               const float (*o)[4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = threadIdx.x % 128;
    const int wg = threadIdx.x / 128;
    #pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const uint32_t r[4] = { pack(o[i][0], o[i][1]), pack(o[i][2], o[i][3]),
                                pack(o[i + 1][0], o[i + 1][1]),
                                pack(o[i + 1][2], o[i + 1][3]) };
        store_tiles_t(&to[i * 8 + lane / 16 * 8 + lane % 8]
                         [warp % 4 * 16 + lane / 8 % 2 * 8], r);
    }
    group_sync(wg);
    #pragma unroll
    for (int i = at / 8; i < CHUNK; i += 16)
        if (i < w.len)
            *(uint4 *)(out<bf16>(a.o, w.t + i, a.HV, n, a.V) + v0 + 64 * wg + at % 8 * 8) =
                *(const uint4 *)&to[i][at % 8 * 8];
    group_sync(wg);
}

// Where the states of a row of x lie: how far a column, a key row is from the next.
struct state_view { float *p; int64_t dv, di; };

static __device__ __forceinline__ struct state_view view_of(const struct kcp_forward &a,
                                                           const void *x, int layout,
                                                           int64_t row, int n, int v)
{
    const int64_t at = (row * a.HV + n) * a.K * a.V, kv = layout == KCP_KV;
    const int64_t dv = kv ? 1 : a.K, di = kv ? a.V : 1;
    return { x ? (float *)x + at + v * dv : NULL, dv, di };
}

// One warpgroup's columns along a chain. Products run one behind the other, and each is
// waited for as late as what it makes is needed: o of a chunk is stored while the next
// chunk's k~ S runs.
template <int K, int WGS>
static __device__ __forceinline__ void walk(const struct records &x, int z, int n, int v0,
                                            struct scan_room<K, WGS> &room, float (*S)[4])
{
    struct chain<K, WGS, 4> &m = room.m;
    const int *cn = (const int *)x.a.cn, wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int c0 = __shfl_sync(~0u, cn[z], 0), count = __shfl_sync(~0u, cn[z + 1], 0) - c0;
    const int64_t end = ((const int *)x.a.cu)[z + 1];
    struct span w = chunk_span(x.a, z, c0), before = w;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];
    uint32_t a[K / 16][4], b[CHUNK / 16][4];

    wait_full(m, PART_K, 0);
    load_v(y, m.v[0][0], 64 * WGS + PAD, w.len);
    for (int turn = 0; turn < count; turn++) {
        const auto &r = m.turn[turn % TURNS];
        //> kernel-records-walk
        as_rows<K / 8>(a, S);
        group_begin();
        times_panels<K / 16>(y, a, m.k[turn % FIRST_TURNS].x[0], 1);   // v - k~ S
        group_commit();
        if (turn) store_o(x.a, before, n, v0, room.o[wg], o);
        wait_full(m, PART_Q, turn);
        group_begin();
        times_panels<K / 16>(o, a, r.q[0], 0);
        group_commit();
        group_wait<1>();
        hold<CHUNK / 8>(y);
        give_back(m, PART_K, turn);

        as_rows<CHUNK / 8>(b, y);
        wait_full(m, PART_A, turn);
        group_begin();
        times_panels<CHUNK / 16>(y, b, r.Ab, 0);                       // v_new
        group_commit();
        scale_columns<K / 8>(S, m.decay[turn % TURNS]);
        group_wait<0>();
        hold<CHUNK / 8>(y), hold<CHUNK / 8>(o);
        give_back(m, PART_Q, turn);

        as_rows<CHUNK / 8>(b, y);
        group_begin();
        add_panels<K>(S, b, r.kg[0]);
        wait_full(m, PART_S, turn);
        times_panels<CHUNK / 16>(o, b, r.Aqk, 1);
        group_commit();
        //< kernel-records-walk
        before = w, w.t += CHUNK, w.len = min((int64_t)CHUNK, end - w.t);
        if (turn + 1 < count) {
            wait_full(m, PART_K, turn + 1);
            load_v(y, m.v[(turn + 1) % FIRST_TURNS][0], 64 * WGS + PAD, w.len);
        }
        group_wait<0>();
        hold<K / 8>(S), hold<CHUNK / 8>(o);
        give_back(m, PART_A, turn), give_back(m, PART_S, turn);
    }
    if (count) store_o(x.a, before, n, v0, room.o[wg], o);
}

// Bound: memory, 6K + 4C + 2V read and 2V written a token-head. In series: T / C chunks
// of four products each; a chunk is 2300 cycles of tensor core for the two warpgroups,
// which take turns. Registers: S 64, its bf16 32, y 32, o 32, b 16 of 232 a thread.
template <int K, int WGS>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void scan_kernel(
    const struct records x)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    struct scan_room<K, WGS> &room = *(struct scan_room<K, WGS> *)on_chip;
    const int n = blockIdx.x, z = blockIdx.y, v0 = blockIdx.z * 64 * WGS;

    chain_init(room.m);
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == WGS) {
        give_registers<40>();
        copy_ahead<K, WGS>(x, z, n, v0, 1, room.m);
        return;
    }
    take_registers<232>();
    const int v = v0 + threadIdx.x / 32 * 16, to = x.to[z];
    const struct state_view h = view_of(x.a, x.h_in, x.h_layout, x.from[z], n, v);
    float S[K / 8][4];
    load_state<K>(S, h.p, h.dv, h.di);
    if (z < x.kept) {
        const struct state_view k = view_of(x.a, x.to13.h_kept, KCP_KV, z, n, v);
        store_state<K>(k.p, k.dv, k.di, S);
    }
    walk<K, WGS>(x, z, n, v0, room, S);
    const struct state_view t = view_of(x.a, x.a.ht, x.a.layout, to, n, v);
    if (to >= 0) store_state<K>(t.p, t.dv, t.di, S);
}

template <int K, int WGS>
static int scan_records_of(const struct records *x)
{
    const size_t bytes = sizeof(struct scan_room<K, WGS>);
    const dim3 grid(x->a.HV, x->a.NS, x->a.V / (64 * WGS));
    cudaFuncSetAttribute(scan_kernel<K, WGS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    scan_kernel<K, WGS><<<grid, 128 * WGS + 128, bytes, x->a.stream>>>(*x);
    return launched();
}

// Few chains: 64 columns a block, so that more SMs have one.
template <int K>
static int scan_records(const struct records *x)
{
    const int64_t halves = (int64_t)x->a.HV * x->a.NS * 2;
    return x->a.V == 128 && halves > 132 ? scan_records_of<K, 2>(x)
                                         : scan_records_of<K, 1>(x);
}

#endif
