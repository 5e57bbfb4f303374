// scan_sm90.cu -- the scan: updates a head's state with the factors of its chunks.
// Book: chapter 18.
#include "cuda/18_hopper/deep_steps.cuh"
#include "staged_stores.cuh"

// ---- stores o to global memory
//
// o^T of a chunk is packed to bf16 as soon as o^T is complete, because q S of the next
// chunk overwrites the accumulator. Each warp stores its 16 columns of o, transposed,
// into the stage of the next chunk's v, after reading these columns of v. Later the
// warpgroup copies whole rows of 128 bytes from this stage to global memory and
// releases the stage. This copy waits for barrier o_ready, which is usually complete.

// The part of o that this thread stores: 16 bytes per row. `to`: address in the
// thread's first row of the chunk that is stored next; `step`: row stride; `left`: the
// number of rows from `to` to the end of the window (this launch's chunks).
struct o_rows { bf16 *to; int64_t step; int left; };

static __device__ __forceinline__ struct o_rows o_rows_of(
    const struct forward_params &x, int z, int n, int v0, int count)
{
    const int wg = threadIdx.x / 128, at = threadIdx.x % 128;
    const struct token_range w = chunk_tokens(x.a, z, first_chunk(x, z));
    const int64_t step = (int64_t)x.a.HV * x.a.V;
    const int64_t rows = ((const int *)x.a.cu)[z + 1] - (int64_t)w.t;
    bf16 *o = out<bf16>(x.a.o, w.t, x.a.HV, n, x.a.V);
    return { o + v0 + 64 * wg + at % 8 * 8 + at / 8 * step, step,
             (int)min(rows, (int64_t)count * CHUNK) - at / 8 };
}

template <int ld>
static __device__ __forceinline__ void store_o_tile(bf16 *o, const uint32_t (*p)[4],
                                                    uint64_t *o_ready)
{
    const int lane = threadIdx.x % 32;
    o += threadIdx.x / 32 * 16;
    __syncwarp();                        // the warp has read v of these columns
    #pragma unroll
    for (int i = 0; i < 4; i++)
        stmatrix_x4_trans(
            o + (i * 16 + lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8, p[i]);
    mbarrier_arrive(o_ready + threadIdx.x / 128);
}

// If `half` is 1, o is converted to fp16.
template <int ld, int half>
static __device__ __forceinline__ void copy_o_rows(struct o_rows &to, const bf16 *o,
                                                   uint64_t *o_ready, int chunk)
{
    const int wg = threadIdx.x / 128, at = threadIdx.x % 128;
    mbarrier_wait(o_ready + wg, chunk);
    #pragma unroll
    for (int i = 0; i < CHUNK; i += 16)
        if (i < to.left) {
            const bf16 *from = &o[(i + at / 8) * ld + 64 * wg + at % 8 * 8];
            const uint4 x = *(const uint4 *)from;
            *(uint4 *)(to.to + i * to.step) = half ? converted<KCP_TYPE_F16>(x) : x;
        }
    to.to += CHUNK * to.step;
    to.left -= CHUNK;
}

// Stores o of the last chunk. All rows of v have been read, so any stage may be used.
template <class Consumer>
static __device__ __forceinline__ void store_last_o(Consumer &c, int count)
{
    uint32_t packed[4][4];
    bf16 *o = c.smem.o[count % c.smem.K_STAGES][0];
    wgmma_wait<0>();
    fence_operand<CHUNK / 8>(c.o);
    pack_accumulator<CHUNK / 8>(packed, c.o);
    store_o_tile<Consumer::LD>(o, packed, c.smem.o_ready);
    copy_o_rows<Consumer::LD, Consumer::HALF>(c.to, o, c.smem.o_ready, count - 1);
}

// ---- what is stored per chunk for backward
//
// A scan has the policy `keeps_nothing` (staged_stores.cuh), or `keeps_states`, which
// stores h and v_new in the format of backward's kernels.
template <int K>
struct keeps_states {
    unsigned char (*staged)[TILE_BYTES];         // K / 64 tiles of h, one of v_new
    unsigned char *h, *v_new;                    // in global memory, for this chunk
    int64_t h_step, v_step;                      // bytes between adjacent chunks
    int columns;                                 // V / 64

    __device__ __forceinline__ void stage_h(const uint32_t (*a)[4])
    {
        staged_wait_read();
        store_operand_transposed<K / 16>(staged[0], a);
    }

    __device__ __forceinline__ void send_h(void)
    {
        staged_publish();
        if (threadIdx.x % 128 == 0) tma_store_state<K>(h, 0, columns, staged);
        h += h_step;
    }

    __device__ __forceinline__ void send_v_new(const uint32_t (*b)[4])
    {
        store_operand_transposed<CHUNK / 16>(staged[K / 64], b);
        staged_publish();
        if (threadIdx.x % 128 == 0) tma_store_tile(v_new, staged[K / 64]);
        v_new += v_step;
    }

    __device__ __forceinline__ void finish(void)
    {
        if (threadIdx.x % 128 == 0) tma_store_wait_read();
        __syncwarp();
    }
};

// A scan step has two halves. `new_values` computes v_new and q S from the state S
// before the chunk. `update_state` updates S with v_new, and completes o. The compiler
// makes every loop head wait for all products. So an iteration ends with new_values of
// the next chunk, which overlaps update_state and leaves no product in flight.
template <class Consumer>
static __device__ __forceinline__ void scan_chunks(Consumer c, int count, float (*S)[4])
{
    if (count <= 0) return;
    c.new_values(0, S);
    for (int chunk = 0; chunk + 1 < count; chunk++) {
        c.update_state(chunk, chunk + 1, S);
        c.new_values(chunk + 1, S);
    }
    c.update_state(count - 1, 0, S);
    store_last_o(c, count);
}

// ---- one gate per channel (KDA)
//
// y = v - k~ S, v_new = A beta y, S <- Lambda S + kg^T v_new, o = qg S + Aqk v_new.
// chunk_factors.cuh defines the factors, and -k~ and scale qg are stored. Lambda is
// exp2(G_last). The critical path is k~ S, A beta y, kg^T v_new. Products for o overlap
// with this path. During kg^T v_new, `update_state` stores the previous chunk's o. With
// O_EARLY (two warpgroups) `new_values` stores this o, while the other warpgroup runs
// products.
// If `half` is 1, v and o are fp16 in global memory, and v in shared memory, too.
template <int K, int WGS, int blocks, scan_kind kind, class Keep, int half>
struct kda_consumer {
    enum { LD = 64 * WGS + PAD, O_EARLY = WGS == 2, HALF = half };  // LD: row stride
    struct scan_storage<K, WGS, kind, 1> &smem;
    struct o_rows to;
    Keep keep;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];

    // Loads y = v of a chunk. The producer has set rows past the chunk's end to 0.
    __device__ __forceinline__ void load_v(int chunk)
    {
        consumer_wait(smem, PIPE_K, chunk);
        const bf16 *v = smem.v[chunk % smem.K_STAGES][0];
        if constexpr (half) from_half_rows(y, v, LD);
        else from_rows(y, v + threadIdx.x / 32 * 16, LD);
    }

    // Copies the previous chunk's o from the stage of this chunk's v to global memory,
    // and releases that stage.
    __device__ __forceinline__ void copy_previous_o(int chunk)
    {
        const int at = chunk % smem.K_STAGES;
        if (chunk) copy_o_rows<LD, half>(to, smem.o[at][0], smem.o_ready, chunk - 1);
        mbarrier_arrive(&smem.v_empty[at]);
    }

    __device__ __forceinline__ void new_values(int chunk, float (*S)[4])
    {
        const int at = chunk % smem.A_STAGES;
        uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4];
        if (chunk == 0) load_v(0);
        pack_accumulator<K / 8>(a, S);
        //> kernel-scan-walk
        wgmma_fence();
        wgmma_times_tiles<K / 16>(y, a, smem.k[chunk % smem.K_STAGES].tile[0], 1);
        wgmma_commit();                                                // v - k~ S
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(o);
        pack_accumulator<CHUNK / 8>(packed, o);
        if (chunk) consumer_release<blocks>(smem, PIPE_AQK, chunk - 1);
        consumer_wait(smem, PIPE_Q, chunk);
        wgmma_fence();
        wgmma_times_tiles<K / 16>(o, a, smem.q[chunk % smem.Q_STAGES].q[0], 0);
        wgmma_commit();
        if (chunk)
            store_o_tile<LD>(smem.o[chunk % smem.K_STAGES][0], packed, smem.o_ready);
        if (O_EARLY) copy_previous_o(chunk);
        keep.stage_h(a);
        consumer_wait(smem, PIPE_A, chunk);
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(y);
        consumer_release<blocks>(smem, PIPE_K, chunk);

        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_times_triangle(y, b, smem.a[at].Ab, 0);                  // v_new
        wgmma_commit();
        keep.send_h();
        scale_columns<K / 8>(S, smem.decay[at]);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
        fence_operand<CHUNK / 8>(o);
        consumer_release<blocks>(smem, PIPE_Q, chunk);
        //< kernel-scan-walk
    }

    __device__ __forceinline__ void update_state(int chunk, int next, float (*S)[4])
    {
        uint32_t b[CHUNK / 16][4];
        //> kernel-scan-update
        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_add_tiles<K>(S, b, smem.a[chunk % smem.A_STAGES].kg[0]);
        wgmma_commit();
        consumer_wait(smem, PIPE_AQK, chunk);
        wgmma_fence();
        wgmma_times_triangle(o, b, smem.q[chunk % smem.Q_STAGES].Aqk, 1);
        wgmma_commit();
        //< kernel-scan-update
        keep.send_v_new(b);
        if (!O_EARLY) copy_previous_o(chunk);
        if (next) load_v(next);
        wgmma_wait<1>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(smem, PIPE_A, chunk);
    }
};

// ---- one gate per head (GDN)
//
// k and q are raw rows. F, B, Q are decays divided by norms, per row (gdn_row_factors).
// y = v - F k S, v_new = A beta y, S <- decay S + k^T B v_new, o = Q q S + Aqk v_new.
template <int K, int WGS, int blocks, scan_kind kind, class Keep>
struct gdn_consumer {
    enum { LD = 64 * WGS + PAD, HALF = 0 };      // LD: row stride of v and o
    struct scan_storage<K, WGS, kind, 0> &smem;
    struct o_rows to;
    Keep keep;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];

    // From the state S before the chunk, computes v_new in `y` and Q (q S) in `o`. Then
    // multiplies S by the decay.
    __device__ __forceinline__ void new_values(int chunk, float (*S)[4])
    {
        const auto &f = smem.head[chunk % smem.A_STAGES];
        const int at = chunk % smem.K_STAGES;
        uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4], v[4][4];
        pack_accumulator<K / 8>(a, S);
        consumer_wait(smem, PIPE_K, chunk);
        wgmma_fence();
        wgmma_times_tiles<K / 16>(y, a, smem.k[at].tile[0], 0);        // k S
        wgmma_commit();
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(o);
        pack_accumulator<CHUNK / 8>(packed, o);
        if (chunk) consumer_release<blocks>(smem, PIPE_AQK, chunk - 1);
        consumer_wait(smem, PIPE_Q, chunk);
        wgmma_fence();
        wgmma_times_tiles<K / 16>(o, a, smem.q[chunk % smem.Q_STAGES].q[0], 0);
        wgmma_commit();
        ldmatrix_v(v, smem.v[at][0], LD);
        if (chunk) store_o_tile<LD>(smem.o[at][0], packed, smem.o_ready);
        keep.stage_h(a);
        consumer_wait(smem, PIPE_A, chunk);
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(y);

        //> gdn-scan
        v_minus_scaled(y, v, f.F, CHUNK);
        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_times_triangle(y, b, smem.a[chunk % smem.A_STAGES].Ab, 0); // v_new
        wgmma_commit();
        keep.send_h();
        scale_state(S, K / 8, f.decay[0]);
        fence_operand<K / 8>(S);
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(o);
        scale_columns<CHUNK / 8>(o, f.Q);
        //< gdn-scan
        consumer_release<blocks>(smem, PIPE_Q, chunk);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
    }

    // Computes S += k^T (B v_new), and o += Aqk v_new concurrently.
    __device__ __forceinline__ void update_state(int chunk, int next, float (*S)[4])
    {
        uint32_t a[CHUNK / 16][4], b[CHUNK / 16][4];
        pack_accumulator_times<CHUNK / 8>(a, y, smem.head[chunk % smem.A_STAGES].B);
        wgmma_fence();
        wgmma_add_tiles<K>(S, a, smem.k[chunk % smem.K_STAGES].tile[0]);
        wgmma_commit();
        pack_accumulator<CHUNK / 8>(b, y);
        consumer_wait(smem, PIPE_AQK, chunk);
        wgmma_fence();
        wgmma_times_triangle(o, b, smem.q[chunk % smem.Q_STAGES].Aqk, 1);
        wgmma_commit();
        keep.send_v_new(b);
        if (chunk)
            copy_o_rows<LD, 0>(to, smem.o[chunk % smem.K_STAGES][0], smem.o_ready,
                               chunk - 1);
        mbarrier_arrive(&smem.v_empty[chunk % smem.K_STAGES]);
        wgmma_wait<1>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(smem, PIPE_K, chunk);
        consumer_release<blocks>(smem, PIPE_A, chunk);
    }
};

// ---- the kernel

template <int blocks, int K, int WGS, scan_kind kind, int kda>
static __device__ __forceinline__ void scan_producer_warpgroup(
    const struct forward_params &x, const struct raw_rows *rows, int z, int n, int v0,
    struct scan_storage<K, WGS, kind, kda> &smem)
{
    const struct raw_rows *raw = !kda && K == 128 ? rows : NULL;
    const int pipeline = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (pipeline == PIPE_K)
        scan_producer_warp<PIPE_K, 1, SCAN_V_LANES, blocks>(x, z, n, v0, smem, raw);
    if (pipeline == PIPE_A) scan_producer_warp<PIPE_A, 1, 0, blocks>(x, z, n, v0, smem);
    if (pipeline == PIPE_Q)
        scan_producer_warp<PIPE_Q, 1, 0, blocks>(x, z, n, v0, smem, raw);
    if (pipeline == PIPE_AQK)
        scan_producer_warp<PIPE_AQK, 1, 0, blocks>(x, z, n, v0, smem);
}

// Loads 64 columns of the state, scans the chunks of this window, and stores the state:
// in ht if the scan's token range ends here, otherwise in x.carry for the next window.
template <int blocks, int half, int K, int WGS, scan_kind kind, int kda, class Keep>
static __device__ __forceinline__ void scan_consumer_warpgroup(
    const struct forward_params &x, int z, int n, int v0,
    struct scan_storage<K, WGS, kind, kda> &smem, Keep keep)
{
    const int count = __shfl_sync(~0u, chunk_count(x, z), 0);
    const int v = v0 + threadIdx.x / 32 * 16, to = x.to[z];
    const int ends = ((const int *)x.a.cn)[z + 1] <= first_chunk(x, z) + x.count;
    const struct state_view c = state_view_of(x.a, x.carry, KCP_KV, z, n, v);
    const struct state_view h =
        x.first ? c : state_view_of(x.a, x.h_in, x.h_layout, x.from[z], n, v);
    float S[K / 8][4];
    load_state<K>(S, h.p, h.dv, h.di);
    if (z < x.kept && !x.first) {
        const struct state_view k = state_view_of(x.a, x.saved.h_kept, KCP_KV, z, n, v);
        store_state<K>(k.p, k.dv, k.di, S);
    }
    const struct o_rows o = o_rows_of(x, z, n, v0, count);
    if constexpr (kda)
        scan_chunks(kda_consumer<K, WGS, blocks, kind, Keep, half>{ smem, o, keep },
                    count, S);
    else
        scan_chunks(gdn_consumer<K, WGS, blocks, kind, Keep>{ smem, o, keep },
                    count, S);
    const struct state_view t =
        !ends ? c : state_view_of(x.a, x.a.ht, x.a.layout, to, n, v);
    if (!ends || to >= 0) store_state<K>(t.p, t.dv, t.di, S);
    keep.finish();
}

// v7_by_head: returns 1 if the one-kernel forward computes this chain.
static __device__ __forceinline__ int leaves_to_one_kernel(
    const struct forward_params &x, int z, int n)
{
    if (is_deep(x, z, n)) return 0;
    last_block_waits();
    return 1;
}

// Bound: memory. With KDA the kernel reads 6K + 2.5C + 2V bytes per token and head, and
// writes 2V. With few heads the bound is the latency of T / C sequential steps of three
// products, about 1000 cycles per step. Flops: 8.4e6 per chunk and head at K = V = 128.
// Shared memory: up to 221 KiB, one block per SM. Of a consumer thread's 232 registers,
// 64 hold S, 32 S in bf16, 32 y, 32 o, 16 y in bf16 and 16 o in bf16.
//
// Ownership: a block computes 64 WGS columns of one head's state. Each consumer
// warpgroup computes 64 of these columns, and each producer warp fills one pipeline.
// Barriers. `full`: the stage's bytes have arrived. `empty`: every consumer has read
// these bytes. `v_empty`: o has been copied from the stage of v. `o_ready`: the
// four warps of a consumer warpgroup have staged their columns of o.
template <int K, int WGS, int kda, int blocks, int half>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void scan_kernel(
    const __grid_constant__ struct forward_params x,
    const __grid_constant__ struct raw_rows rows)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    auto &smem = *(struct scan_storage<K, WGS, OUTPUT_SCAN, kda> *)on_chip;
    const int n = blockIdx.x, z = x.order[blockIdx.y], v0 = blockIdx.z * 64 * WGS;

    griddepcontrol_launch_dependents();
    if (kda && x.deep && leaves_to_one_kernel(x, z, n)) return;
    pipeline_init<blocks>(smem, SCAN_V_LANES);
    griddepcontrol_wait();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == WGS) {
        setmaxnreg_dec<scan_registers<WGS>::PRODUCER>();
        scan_producer_warpgroup<blocks>(x, &rows, z, n, v0, smem);
    } else {
        setmaxnreg_inc<scan_registers<WGS>::CONSUMER>();
        scan_consumer_warpgroup<blocks, half>(x, z, n, v0, smem, keeps_nothing{});
    }
    if (blocks > 1) cluster_sync();      // the other block may still arrive at `empty`
}

// scan_storage, and for each warpgroup K / 64 tiles of h and one tile of v_new.
template <int K, int WGS, int kda>
struct keeping_storage {
    struct scan_storage<K, WGS, KEEPING_SCAN, kda> in;
    struct __align__(1024) { unsigned char tile[WGS][K / 64 + 1][TILE_BYTES]; } out;
};

// Returns where this warpgroup stores h and v_new of the window's first chunk.
template <int K, int WGS>
static __device__ __forceinline__ struct keeps_states<K> keeps_states_of(
    const struct forward_params &x, const struct chunk_states &to, int z, int n, int v0,
    unsigned char (*staged)[TILE_BYTES])
{
    const int columns = x.a.V / 64, column = v0 / 64 + (int)threadIdx.x / 128;
    const int64_t rows = columns * TILE_BYTES, state = K / 64 * rows;
    const int64_t at = (int64_t)first_chunk(x, z) * x.a.HV + n;
    return { staged, (unsigned char *)to.h + at * state + column * TILE_BYTES,
             (unsigned char *)to.v_new + at * rows + column * TILE_BYTES,
             x.a.HV * state, x.a.HV * rows, columns };
}

// Runs the scan of scan_kernel, and also stores h and v_new of every chunk. This kernel
// writes 2 KV / C + 2V more bytes per token and head, and needs up to 223 KiB of shared
// memory. Each warpgroup has three more barriers per chunk: before the writes to staged
// tiles, after h is staged, and after v_new is staged.
template <int K, int WGS, int kda, int blocks>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void scan_keeping_kernel(
    const __grid_constant__ struct forward_params x, const struct chunk_states to)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    auto &smem = *(struct keeping_storage<K, WGS, kda> *)on_chip;
    const int n = blockIdx.x, z = x.order[blockIdx.y], v0 = blockIdx.z * 64 * WGS;

    griddepcontrol_launch_dependents();
    pipeline_init<blocks>(smem.in, SCAN_V_LANES);
    griddepcontrol_wait();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == WGS) {
        setmaxnreg_dec<scan_registers<WGS>::PRODUCER>();
        scan_producer_warpgroup<blocks>(x, NULL, z, n, v0, smem.in);
    } else {
        setmaxnreg_inc<scan_registers<WGS>::CONSUMER>();
        scan_consumer_warpgroup<blocks, 0>(
            x, z, n, v0, smem.in,
            keeps_states_of<K, WGS>(x, to, z, n, v0, smem.out.tile[wg]));
    }
    if (blocks > 1) cluster_sync();      // the other block may still arrive at `empty`
}

// Returns 0 if the driver cannot encode the tensor maps of the caller's k and q.
static int make_raw_rows(const struct kcp_forward *a, struct raw_rows *rows)
{
    rows->there = tensor_map_of_heads(&rows->k, a->k_raw, a->T, a->H, a->K, CHUNK)
                  && tensor_map_of_heads(&rows->q, a->q_raw, a->T, a->H, a->K, CHUNK);
    return rows->there;
}

// If `blocks` is 2, two blocks form a cluster that has all columns of a head, and each
// copy serves both blocks. If `to` is not NULL, h and v_new are stored there.
template <int K, int WGS, int kda, int blocks>
static int launch_scan_blocks(const struct forward_params *x,
                              const struct chunk_states *to)
{
    const size_t bytes = sizeof(struct scan_storage<K, WGS, OUTPUT_SCAN, kda>);
    const size_t keeping = sizeof(struct keeping_storage<K, WGS, kda>);
    static_assert(bytes <= 227 * 1024 && keeping <= 227 * 1024, "one block must fit");
    const dim3 grid(x->a.HV, x->a.NS, x->a.V / (64 * WGS));
    const int threads = 128 * WGS + 128;
    if (to)
        return launch_clusters(scan_keeping_kernel<K, WGS, kda, blocks>, keeping, grid,
                               threads, blocks, x, *to);
    struct raw_rows rows = {};
    if (!kda && x->raw_rows && !make_raw_rows(&x->a, &rows)) return KCP_CUDA;
    if (kda && x->a.q_type == KCP_TYPE_F16)
        return launch_clusters(scan_kernel<K, WGS, kda, blocks, kda>, bytes, grid,
                               threads, blocks, x, rows);
    return launch_clusters(scan_kernel<K, WGS, kda, blocks, 0>, bytes, grid, threads,
                           blocks, x, rows);
}

// `columns` per block is 64 or 128 (struct kcp_launch).
template <int K, int kda>
static int launch_scan(const struct forward_params *x, const struct chunk_states *to,
                       int columns)
{
    if (x->a.V == 64) return launch_scan_blocks<K, 1, kda, 1>(x, to);
    return columns == 128 ? launch_scan_blocks<K, 2, kda, 1>(x, to)
                          : launch_scan_blocks<K, 1, kda, 2>(x, to);
}

int forward_scan(const struct forward_params *x, const struct chunk_states *to,
                 int columns)
{
    if (x->a.KG == 1)
        return x->a.K == 128 ? launch_scan<128, 0>(x, to, columns)
                             : launch_scan<64, 0>(x, to, columns);
    return x->a.K == 128 ? launch_scan<128, 1>(x, to, columns)
                         : launch_scan<64, 1>(x, to, columns);
}
