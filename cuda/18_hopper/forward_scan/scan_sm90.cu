// scan_sm90.cu -- the scan: a head's state walks over the factors of its chunks.
// Book: chapter 18, "Code: kernels".
// Checked by: tests/08_forward/checks.c.
// Next: ../maps/maps_sm90.cu.
#include "staged_stores.cuh"

// ---- the way of o to memory
//
// o^T of a chunk is packed to bf16 as soon as it is there: an accumulator may not be
// read while later products are under way. Each warp stores its 16 columns, transposed,
// in the stage of v from which it has just read the next chunk's columns. Later the
// warpgroup copies whole rows of 128 bytes to memory, and then releases that stage. A
// barrier, o_ready, stands between the two; by then it has long been passed.

// Where this thread's 16 bytes of each row go: its first row of the next chunk, the
// distance of rows, and how many rows are left from there.
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
static __device__ __forceinline__ void store_o_tile(bf16 *v, const uint32_t (*p)[4],
                                                    uint64_t *o_ready)
{
    const int lane = threadIdx.x % 32;
    v += threadIdx.x / 32 * 16;
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < 4; i++)
        stmatrix_x4_trans(
            v + (i * 16 + lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8, p[i]);
    mbarrier_arrive(o_ready + threadIdx.x / 128);
}

template <int ld>
static __device__ __forceinline__ void copy_o_rows(struct o_rows &to, const bf16 *v,
                                                   uint64_t *o_ready, int chunk)
{
    const int wg = threadIdx.x / 128, at = threadIdx.x % 128;
    mbarrier_wait(o_ready + wg, chunk);
    #pragma unroll
    for (int i = 0; i < CHUNK; i += 16)
        if (i < to.left)
            *(uint4 *)(to.to + i * to.step) =
                *(const uint4 *)&v[(i + at / 8) * ld + 64 * wg + at % 8 * 8];
    to.to += CHUNK * to.step;
    to.left -= CHUNK;
}

// The last chunk's o. No other chunk's v is there, so any stage will do.
template <class Consumer>
static __device__ __forceinline__ void store_last_o(Consumer &c, int count)
{
    uint32_t packed[4][4];
    bf16 *v = c.smem.v[count % c.smem.K_STAGES][0];
    wgmma_wait<0>();
    fence_operand<CHUNK / 8>(c.o);
    pack_accumulator<CHUNK / 8>(packed, c.o);
    store_o_tile<Consumer::LD>(v, packed, c.smem.o_ready);
    copy_o_rows<Consumer::LD>(c.to, v, c.smem.o_ready, count - 1);
}

// ---- what backward wants of every chunk
//
// A scan that keeps nothing, and one that keeps the state h with which each chunk
// begins and v_new, packed as backward's three kernels read them.
template <int K>
struct keeps_nothing {
    __device__ __forceinline__ void stage_h(const uint32_t (*)[4]) {}
    __device__ __forceinline__ void send_h(void) {}
    __device__ __forceinline__ void send_v_new(const uint32_t (*)[4]) {}
    __device__ __forceinline__ void finish(void) {}
};

template <int K>
struct keeps_states {
    unsigned char (*staged)[TILE_BYTES];         // K / 64 tiles of h, one of v_new
    unsigned char *h, *v_new;                    // of this chunk, of these columns
    int64_t h_step, v_step;                      // to the next chunk's
    int columns;                                 // warpgroups' of a head

    __device__ __forceinline__ void stage_h(const uint32_t (*a)[4])
    {
        wait_for_stores();
        store_operand_transposed<K / 16>(staged[0], a);
    }

    __device__ __forceinline__ void send_h(void)
    {
        show_stores();
        if (threadIdx.x % 128 == 0) tma_store_state<K>(h, 0, columns, staged);
        h += h_step;
    }

    __device__ __forceinline__ void send_v_new(const uint32_t (*b)[4])
    {
        store_operand_transposed<CHUNK / 16>(staged[K / 64], b);
        show_stores();
        if (threadIdx.x % 128 == 0) tma_store_tile(v_new, staged[K / 64]);
        v_new += v_step;
    }

    __device__ __forceinline__ void finish(void)
    {
        if (threadIdx.x % 128 == 0) tma_store_wait_read();
        __syncwarp();
    }
};

// A scan step has two halves. new_values makes v_new and q S from the state before the
// chunk. update_state adds v_new to the state and to o. The loop is cut between them,
// where no product is under way: where a loop begins the compiler waits for all
// products. The next new_values runs beside the end of update_state.
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

// ---- a gate a channel (KDA)
//
// y = v - k~ S, v_new = A beta y, S <- Lambda S + kg^T v_new, o = qg S + Aqk v_new. A
// product is waited for as late as its result is needed. In series are k~ S, v_new and
// S; the products of o run behind them. Rows of the chunk before leave in update_state,
// while S takes v_new. With two warpgroups they leave in new_values (O_EARLY): the
// other one has products to run then.
template <int K, int WGS, int blocks, int pipelines, class Keep>
struct kda_consumer {
    enum { LD = 64 * WGS + PAD, O_EARLY = WGS == 2 };    // LD: from row to row of v
    struct shared_storage<K, WGS, pipelines, 1> &smem;
    struct o_rows to;
    Keep keep;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];

    // y = v of a chunk, 0 past its end.
    __device__ __forceinline__ void load_v(int chunk)
    {
        consumer_wait(smem, PIPE_K, chunk);
        from_rows(y, smem.v[chunk % smem.K_STAGES][0] + threadIdx.x / 32 * 16, LD);
    }

    // o of the chunk before leaves the stage of this one's v, which is released.
    __device__ __forceinline__ void copy_previous_o(int chunk)
    {
        const int at = chunk % smem.K_STAGES;
        if (chunk) copy_o_rows<LD>(to, smem.v[at][0], smem.o_ready, chunk - 1);
        mbarrier_arrive(&smem.v_empty[at]);
    }

    __device__ __forceinline__ void new_values(int chunk, float (*S)[4])
    {
        const int at = chunk % smem.A_STAGES;
        uint32_t a[K / 16][4], b[CHUNK / 16][4], packed[4][4];
        if (chunk == 0) load_v(0);
        pack_accumulator<K / 8>(a, S);
        //> kernel-records-walk
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
            store_o_tile<LD>(smem.v[chunk % smem.K_STAGES][0], packed, smem.o_ready);
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
    }

    __device__ __forceinline__ void update_state(int chunk, int next, float (*S)[4])
    {
        uint32_t b[CHUNK / 16][4];
        pack_accumulator<CHUNK / 8>(b, y);
        wgmma_fence();
        wgmma_add_tiles<K>(S, b, smem.a[chunk % smem.A_STAGES].kg[0]);
        wgmma_commit();
        consumer_wait(smem, PIPE_AQK, chunk);
        wgmma_fence();
        wgmma_times_triangle(o, b, smem.q[chunk % smem.Q_STAGES].Aqk, 1);
        wgmma_commit();
        //< kernel-records-walk
        keep.send_v_new(b);
        if (!O_EARLY) copy_previous_o(chunk);
        if (next) load_v(next);
        wgmma_wait<1>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(smem, PIPE_A, chunk);
    }
};

// ---- one gate a head (GDN)

// With k and q as they are: y = v - F (k S), v_new = A beta y, S <- decay S + k^T (B
// v_new) and o = Q (q S) + Aqk v_new. One k on chip serves two products.
template <int K, int WGS, int blocks, int pipelines, class Keep>
struct gdn_consumer {
    enum { LD = 64 * WGS + PAD };        // from a row of v to the next
    struct shared_storage<K, WGS, pipelines, 0> &smem;
    struct o_rows to;
    Keep keep;
    float y[CHUNK / 8][4], o[CHUNK / 8][4];

    // S before the chunk gives v_new in y and Q (q S) in o; then S decays.
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
        if (chunk) store_o_tile<LD>(smem.v[at][0], packed, smem.o_ready);
        keep.stage_h(a);
        consumer_wait(smem, PIPE_A, chunk);
        wgmma_wait<1>();
        fence_operand<CHUNK / 8>(y);

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
        consumer_release<blocks>(smem, PIPE_Q, chunk);
        wgmma_wait<0>();
        fence_operand<CHUNK / 8>(y);
    }

    // v_new into S, and beside it into o.
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
            copy_o_rows<LD>(to, smem.v[chunk % smem.K_STAGES][0], smem.o_ready,
                            chunk - 1);
        mbarrier_arrive(&smem.v_empty[chunk % smem.K_STAGES]);
        wgmma_wait<1>();
        fence_operand<K / 8>(S);
        consumer_release<blocks>(smem, PIPE_K, chunk);
        consumer_release<blocks>(smem, PIPE_A, chunk);
    }
};

// ---- the kernel

// A producer warp for each pipeline.
template <int blocks, int K, int WGS, int pipelines, int kda>
static __device__ __forceinline__ void producer_warpgroup(
    const struct forward_params &x, const struct raw_rows *rows, int z, int n, int v0,
    struct shared_storage<K, WGS, pipelines, kda> &smem)
{
    const struct raw_rows *raw = !kda && K == 128 ? rows : NULL;
    const int pipeline = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
    if (pipeline == PIPE_K)
        producer_warp<PIPE_K, 1, 32, blocks>(x, z, n, v0, smem, raw);
    if (pipeline == PIPE_A) producer_warp<PIPE_A, 1, 0, blocks>(x, z, n, v0, smem);
    if (pipeline == PIPE_Q)
        producer_warp<PIPE_Q, 1, 0, blocks>(x, z, n, v0, smem, raw);
    if (pipeline == PIPE_AQK) producer_warp<PIPE_AQK, 1, 0, blocks>(x, z, n, v0, smem);
}

// A consumer warpgroup loads 64 columns of the state, walks over the chunks of this
// window, and stores them: as ht where the stretch ends, else for the next window.
template <int blocks, int K, int WGS, int pipelines, int kda, class Keep>
static __device__ __forceinline__ void consumer_warpgroup(
    const struct forward_params &x, int z, int n, int v0,
    struct shared_storage<K, WGS, pipelines, kda> &smem, Keep keep)
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
        scan_chunks(kda_consumer<K, WGS, blocks, pipelines, Keep>{ smem, o, keep },
                    count, S);
    else
        scan_chunks(gdn_consumer<K, WGS, blocks, pipelines, Keep>{ smem, o, keep },
                    count, S);
    const struct state_view t =
        !ends ? c : state_view_of(x.a, x.a.ht, x.a.layout, to, n, v);
    if (!ends || to >= 0) store_state<K>(t.p, t.dv, t.di, S);
    keep.finish();
}

// Bound: memory, 6K + 2.5C + 2V bytes read and 2V written a token-head; with few states
// the series of T / C scan steps, three products each, about 1000 cycles a step. Flops:
// 8.4e6 a chunk and head at K = V = 128. Shared memory: up to 164 KiB, one block an SM.
// Registers, of 232 a consumer thread: S 64, S in bf16 32, y 32, o 32, o packed 16, y
// in bf16 16. Who owns what: a block has 64 WGS columns of a head's state; each
// consumer warpgroup 64 of them; each producer warp one pipeline. full: the stage's
// bytes are there; empty: every consumer has read them; o_ready: all four warps have
// stored their columns of o.
template <int K, int WGS, int kda, int blocks>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void scan_kernel(
    const __grid_constant__ struct forward_params x,
    const __grid_constant__ struct raw_rows rows)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    auto &smem = *(struct shared_storage<K, WGS, 4, kda> *)on_chip;
    const int n = blockIdx.x, z = x.order[blockIdx.y], v0 = blockIdx.z * 64 * WGS;

    griddepcontrol_launch_dependents();
    pipeline_init<blocks>(smem, 33);
    griddepcontrol_wait();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == WGS) {
        setmaxnreg_dec<WGS == 1 ? 56 : 40>();
        producer_warpgroup<blocks>(x, &rows, z, n, v0, smem);
    } else {
        setmaxnreg_inc<232>();
        consumer_warpgroup<blocks>(x, z, n, v0, smem, keeps_nothing<K>{});
    }
    if (blocks > 1) cluster_sync();      // the other block may still write here
}

// The same, keeping the states. Bound: memory, 2 KV / C + 2V bytes more written a
// token-head. Shared memory: up to 223 KiB. Two barriers of a warpgroup a chunk more
// stand behind the tiles that it has staged, one before tiles are staged anew.
template <int K, int WGS, int kda>
struct keeping_storage {
    struct shared_storage<K, WGS, KEEPING, kda> in;
    struct __align__(1024) { unsigned char tile[WGS][K / 64 + 1][TILE_BYTES]; } out;
};

// This warpgroup's tiles of the stretch's first chunk in this window.
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

template <int K, int WGS, int kda, int blocks>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void scan_keeping_kernel(
    const __grid_constant__ struct forward_params x, const struct chunk_states to)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    auto &smem = *(struct keeping_storage<K, WGS, kda> *)on_chip;
    const int n = blockIdx.x, z = x.order[blockIdx.y], v0 = blockIdx.z * 64 * WGS;

    griddepcontrol_launch_dependents();
    pipeline_init<blocks>(smem.in, 33);
    griddepcontrol_wait();
    const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == WGS) {
        setmaxnreg_dec<WGS == 1 ? 56 : 40>();
        producer_warpgroup<blocks>(x, NULL, z, n, v0, smem.in);
    } else {
        setmaxnreg_inc<232>();
        consumer_warpgroup<blocks>(
            x, z, n, v0, smem.in,
            keeps_states_of<K, WGS>(x, to, z, n, v0, smem.out.tile[wg]));
    }
    if (blocks > 1) cluster_sync();      // the other block may still write here
}

// Maps of the caller's k and q. Returns 0 where the driver makes none.
static int make_raw_rows(const struct kcp_forward *a, struct raw_rows *rows)
{
    rows->there = tensor_map_of_heads(&rows->k, a->k_raw, a->T, a->H, a->K, CHUNK)
                  && tensor_map_of_heads(&rows->q, a->q_raw, a->T, a->H, a->K, CHUNK);
    return rows->there;
}

// blocks: 2 makes the two halves of a head's columns a cluster that shares its copies.
// to: where states go, or NULL.
template <int K, int WGS, int kda, int blocks>
static int launch_scan_blocks(const struct forward_params *x,
                              const struct chunk_states *to)
{
    const size_t bytes = sizeof(struct shared_storage<K, WGS, 4, kda>);
    const size_t keeping = sizeof(struct keeping_storage<K, WGS, kda>);
    static_assert(bytes <= 227 * 1024 && keeping <= 227 * 1024, "on chip");
    const dim3 grid(x->a.HV, x->a.NS, x->a.V / (64 * WGS));
    const int threads = 128 * WGS + 128;
    if (to)
        return launch_clusters(scan_keeping_kernel<K, WGS, kda, blocks>, keeping, grid,
                               threads, blocks, x, *to);
    struct raw_rows rows = {};
    if (!kda && x->raw_rows && !make_raw_rows(&x->a, &rows)) return KCP_CUDA;
    return launch_clusters(scan_kernel<K, WGS, kda, blocks>, bytes, grid, threads,
                           blocks, x, rows);
}

// Blocks of 64 columns while there is an SM for each of them, then of 128.
template <int K, int kda>
static int launch_scan(const struct forward_params *x, const struct chunk_states *to,
                       int processors)
{
    const int64_t states = (int64_t)x->a.HV * x->a.NS;
    if (x->a.V == 64) return launch_scan_blocks<K, 1, kda, 1>(x, to);
    return 2 * states > processors ? launch_scan_blocks<K, 2, kda, 1>(x, to)
                                   : launch_scan_blocks<K, 1, kda, 2>(x, to);
}

int forward_scan(const struct forward_params *x, const struct chunk_states *to,
                 int processors)
{
    if (x->a.KG == 1)
        return x->a.K == 128 ? launch_scan<128, 0>(x, to, processors)
                             : launch_scan<64, 0>(x, to, processors);
    return x->a.K == 128 ? launch_scan<128, 1>(x, to, processors)
                         : launch_scan<64, 1>(x, to, processors);
}
