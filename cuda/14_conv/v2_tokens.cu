// v2_tokens.cu -- causal convolution: a thread computes channels of consecutive tokens.
// Book: chapter 14, "Code: kernels".
#include "v2_tokens_rows.cuh"
#include "cuda/host/processors.cuh"

// Bound: memory. Forward reads x and writes y, 4 bytes per token and channel. Backward
// reads x and dy and writes dx, 6 bytes. Backward also writes and rereads 4 (Wc + 1)
// bytes of sums per run and channel. A thread computes N adjacent channels of a run of
// tokens. A run has one chunk in forward and x.run chunks in backward. The weights and
// the last Wc rows of x are in registers. BATCH rows are in flight: as soon as the
// registers of a row have been read, the row BATCH tokens later is loaded into these
// registers. Because a thread has few channels, many blocks fit in an SM's registers,
// so that enough bytes are in flight. There is no barrier, because threads do not share
// data. Backward recomputes dpre of the Wc - 1 rows after a run exactly as the next run
// does, so results do not depend on which rank has which tokens. A call without initial
// and final states uses the kernels with STATES = 0. One launch computes up to CALLS
// calls with one plan, for example q, k and v. grid.y selects the call.
enum { THREADS = 128 };
enum { N_FORWARD = 4, BATCH_FORWARD = 8, BLOCKS_FORWARD = 6 };
enum { N_BACKWARD = 2, BATCH_BACKWARD = 4, BLOCKS_BACKWARD = 8 };

template <int CALLS>
struct calls { struct conv of[CALLS]; };

// A thread's run: x.run chunks of stretch s (a token range of one sequence), starting
// at chunk c. `d` is the thread's first channel. If z.len is 0, the thread has no work.
// With several stretches, the grid has blocks for every chunk, and a block exits if
// its chunk is not the first of a run. Rarely executed code calls run_of_thread again
// instead of keeping the result in registers.
struct run { struct token_range z; int c, d, s; };

template <int N>
static __device__ __forceinline__ struct run run_of_thread(const struct conv &x)
{
    const int groups = x.a.D / N, blocks = (groups + THREADS - 1) / THREADS;
    const int block = opaque(blockIdx.x);
    const int g = block % blocks * THREADS + threadIdx.x,
              step = x.a.NS == 1 ? x.run : 1;
    const int c = block / blocks * step;
    const int s = x.a.NS == 1 ? 0 : ((const int *)x.a.sc)[c];
    struct token_range z = chunk_tokens(x.a, s, c);
    z.len = (int)min(((const int *)x.a.cu)[s + 1] - z.t, (int64_t)x.run * x.a.C);
    if (g >= groups || (c - ((const int *)x.a.cn)[s]) % x.run) z.len = 0;
    return { z, c, g * N, s };
}

template <int N, int Wc>
static __device__ __forceinline__ void forward_row(const struct weights<N, Wc> &f,
                                                   const struct packed<N> &x, int silu,
                                                   float (*row)[N], bf16 *to)
{
    //> kernel-tokens
    float y[N];
    next_row<N, Wc>(row);
    unpack<N>(row[Wc - 1], x);
    #pragma unroll
    for (int e = 0; e < N; e++) {
        const float pre = pre_of(f, row, e);
        y[e] = silu ? pre * sigmoid_approx(pre) : pre;
    }
    write<N>(to, y);
    //< kernel-tokens
}

template <int Wc, int STATES, int CALLS>
static __global__ __launch_bounds__(THREADS, BLOCKS_FORWARD) void forward_tokens(
    const __grid_constant__ struct calls<CALLS> all)
{
    enum { N = N_FORWARD, BATCH = BATCH_FORWARD };
    const struct conv &x = all.of[CALLS > 1 ? blockIdx.y : 0];
    if (CALLS > 1 && blockIdx.x >= x.blocks) return;    // another call has more blocks
    const struct run r = run_of_thread<N>(x);
    if (!r.z.len) return;
    const int silu = x.a.act == KCP_ACT_SILU;
    const int bytes = sizeof(bf16) * x.a.D;
    const bf16 *from = in<bf16>(x.a.x, r.z.t, 1, 0, x.a.D) + r.d;
    bf16 *to = out<bf16>(x.a.y, r.z.t, 1, 0, x.a.D) + r.d;
    struct packed<N> now[BATCH];
    struct weights<N, Wc> f;
    float row[Wc][N];
    read_batch<N, BATCH>(now, from, bytes, r.z.len);
    read_weights(x, r.d, &f);
    rows_before<N, Wc, STATES>(x, r.s, r.z.t, r.d, row);
    int left = r.z.len;
    #pragma unroll 1
    for (; left >= BATCH; left -= BATCH) {
        from = row_at(from, BATCH, bytes);
        #pragma unroll
        for (int u = 0; u < BATCH; u++) {
            forward_row<N, Wc>(f, now[u], silu, row, row_at(to, u, bytes));
            if (u + BATCH < left) now[u] = read<N>(row_at(from, u, bytes));
        }
        to = row_at(to, BATCH, bytes);
    }
    #pragma unroll
    for (int u = 0; u + 1 < BATCH; u++)
        if (u < left) forward_row<N, Wc>(f, now[u], silu, row, row_at(to, u, bytes));
}

// Copies to xt the last rows of the sequences that end on this rank, with one block per
// row and group of channels.
static __global__ __launch_bounds__(THREADS) void last_rows(const struct conv x)
{
    enum { N = N_FORWARD };
    const int blocks = (x.a.D / N + THREADS - 1) / THREADS, reach = x.a.Wc - 1;
    const int d = (blockIdx.x % blocks * THREADS + threadIdx.x) * N;
    const int k = blockIdx.x / blocks % reach, s = blockIdx.x / blocks / reach;
    const int end = ((const int *)x.a.cu)[s + 1];
    if (d >= x.a.D || end != x.bounds[BOUNDS * s + STOP]) return;
    const struct packed<N> y = tap<N, 1>(x, s, end - reach + k, d);
    *(uint2 *)state_row(x, x.st.xt, s, k, d) = make_uint2(y.w[0], y.w[1]);
}

// Computes dpre of the first rows of each contiguous token range, because earlier ranks
// need these rows.
template <int Wc, int STATES>
static __global__ __launch_bounds__(THREADS) void edge_rows(const struct conv x)
{
    enum { N = N_BACKWARD };
    const int d = (blockIdx.x * THREADS + threadIdx.x) * N;
    const int64_t e_row = blockIdx.y, t = x.edge_token[e_row];
    if (d >= x.a.D) return;
    int s = 0;
    while (((const int *)x.a.cu)[s + 1] <= t) s++;
    struct weights<N, Wc> f;
    float row[Wc][N], dy[N];
    read_weights(x, d, &f);
    rows_before<N, Wc, STATES>(x, s, t, d, row);
    next_row<N, Wc>(row);
    unpack<N>(row[Wc - 1], read<N>((const bf16 *)x.a.x + t * x.a.D + d));
    unpack<N>(dy, read<N>((const bf16 *)x.a.dy + t * x.a.D + d));
    #pragma unroll
    for (int e = 0; e < N; e++)
        x.edge[e_row * x.a.D + d + e] =
            through_act(dy[e], pre_of(f, row, e), x.a.act == KCP_ACT_SILU);
}

// Loads dpre for step k, whose token is past this rank's rows of the sequence: the dpre
// that another rank sent, or 0 past the sequence's end.
template <int N>
static __device__ __forceinline__ void late_dpre(const struct conv &x, int k,
                                                 float *dpre)
{
    const struct run r = run_of_thread<N>(x);
    const int *bounds = x.bounds + BOUNDS * r.s;
    const int64_t t = r.z.t + k;
    #pragma unroll
    for (int e = 0; e < N; e++) {
        dpre[e] = 0.0f;
        if (t < bounds[STOP])
            dpre[e] = x.after[(bounds[HIGH_AT] + t) * x.a.D + r.d + e];
    }
}

// Step k completes dx of one token. If this token is one of the last Wc - 1 of the
// sequence, loads the token's row of dxt into dx.
template <int N>
static __device__ __forceinline__ void add_dxt(const struct conv &x, int k, float *dx)
{
    const struct run r = run_of_thread<N>(x);
    const int64_t late = r.z.t + k - x.bounds[BOUNDS * r.s + STOP];
    if (late >= 0) unpack<N>(dx, read<N>(state_row(x, x.st.dxt, r.s, late, r.d)));
}

template <int N>
static __device__ __forceinline__ void store_dx0(const struct conv &x, int k,
                                                 const float *dx)
{
    const struct run r = run_of_thread<N>(x);
    write<N>(state_row(x, x.st.dx0, r.s, k, r.d), dx);
}

// Adds to a token's dx the terms with dpre of this token and of the next Wc - 1 tokens.
template <int N, int Wc>
static __device__ __forceinline__ void dx_of(const struct weights<N, Wc> &f,
                                             const float (*dpre)[N], float *dx)
{
    #pragma unroll
    for (int j = 0; j < Wc; j++)
        #pragma unroll
        for (int e = 0; e < N; e++)
            dx[e] = fmaf(f.w[e][Wc - 1 - j], dpre[j][e], dx[e]);
}

// Stores sums for dweight [D,Wc] and dbias [D] in the row of the run's first chunk.
template <int N, int Wc>
static __device__ __forceinline__ void store_sums(const struct conv &x,
                                                  const float (*dw)[Wc],
                                                  const float *db)
{
    static_assert(N == 2, "pieces of two numbers");
    const struct run r = run_of_thread<N>(x);
    float *sums = x.chunk + r.c * x.n;
    float2 *to = (float2 *)(sums + (int64_t)r.d * Wc);
    #pragma unroll
    for (int j = 0; j < Wc; j++)
        to[j] = make_float2(dw[2 * j / Wc][2 * j % Wc],
                            dw[(2 * j + 1) / Wc][(2 * j + 1) % Wc]);
    *(float2 *)(sums + (int64_t)x.a.D * Wc + r.d) = make_float2(db[0], db[1]);
}

// Computes dpre of the next token, and adds the token's terms to dw and db if the run
// owns the token.
template <int N, int Wc>
static __device__ __forceinline__ void add_row(const struct weights<N, Wc> &f,
                                               const struct packed<N> &x,
                                               const struct packed<N> &dy, int silu,
                                               int own, float (*row)[N],
                                               float (*dpre)[N], float (*dw)[Wc],
                                               float *db)
{
    float g[N];
    next_row<N, Wc>(row);
    next_row<N, Wc>(dpre);
    unpack<N>(row[Wc - 1], x);
    unpack<N>(g, dy);
    #pragma unroll
    for (int e = 0; e < N; e++) {
        dpre[Wc - 1][e] = through_act(g[e], pre_of(f, row, e), silu);
        const float term = own ? dpre[Wc - 1][e] : 0.0f;
        db[e] += term;
        #pragma unroll
        for (int j = 0; j < Wc; j++) dw[e][j] = fmaf(term, row[j][e], dw[e][j]);
    }
}

// Computes dx of a run, and the run's sums for dweight and dbias. Step k computes dpre
// of token r.z.t + k, which completes dx of token r.z.t + k - (Wc - 1). At the start of
// a sequence, the first steps complete dx of positions before the sequence, which are
// rows of dx0.
template <int Wc, int STATES, int CALLS>
static __global__ __launch_bounds__(THREADS, BLOCKS_BACKWARD) void backward_tokens(
    const __grid_constant__ struct calls<CALLS> all)
{
    enum { N = N_BACKWARD, BATCH = BATCH_BACKWARD };
    const struct conv &x = all.of[CALLS > 1 ? blockIdx.y : 0];
    if (CALLS > 1 && blockIdx.x >= x.blocks) return;
    const struct run r = run_of_thread<N>(x);
    if (!r.z.len) return;
    const int silu = x.a.act == KCP_ACT_SILU, len = r.z.len, steps = len + Wc - 1;
    const int bytes = sizeof(bf16) * x.a.D;
    const int64_t first = r.z.t * x.a.D + r.d;
    const bf16 *from = (const bf16 *)x.a.x + first, *dy = (const bf16 *)x.a.dy + first;
    bf16 *to = row_at((bf16 *)x.a.dx + first, 1 - Wc, bytes);
    struct packed<N> now[BATCH], now_dy[BATCH];
    struct weights<N, Wc> f;
    float row[Wc][N], dpre[Wc][N] = {}, dw[N][Wc] = {}, db[N] = {};
    read_batch<N, BATCH>(now, from, bytes, len);
    read_batch<N, BATCH>(now_dy, dy, bytes, len);
    read_weights(x, r.d, &f);
    rows_before<N, Wc, STATES>(x, r.s, r.z.t, r.d, row);
    const int *bounds = x.bounds + BOUNDS * r.s;
    const int rows = min(steps, min(bounds[STOP], bounds[HIGH]) - (int)r.z.t);
    const int starts = STATES && x.st.dx0 && r.z.t == bounds[START];
    if (len < BATCH) {                   // short run: loads later rows of its sequence
        read_batch<N, BATCH>(now, from, bytes, rows);
        read_batch<N, BATCH>(now_dy, dy, bytes, rows);
    }
    //> backward-steps
    int i = 0;
    #pragma unroll 1
    for (; i + BATCH <= rows; i += BATCH) {
        from = row_at(from, BATCH, bytes);
        dy = row_at(dy, BATCH, bytes);
        #pragma unroll
        for (int u = 0; u < BATCH; u++) {
            const int k = i + u;
            float dx[N] = {};
            add_row<N, Wc>(f, now[u], now_dy[u], silu, k < len, row, dpre, dw, db);
            if (k + BATCH < rows) {
                now[u] = read<N>(row_at(from, u, bytes));
                now_dy[u] = read<N>(row_at(dy, u, bytes));
            }
            dx_of<N, Wc>(f, dpre, dx);
            if (STATES && k < Wc - 1) {
                if (starts) store_dx0<N>(x, k, dx);
            } else if (k >= Wc - 1) write<N>(row_at(to, u, bytes), dx);
        }
        to = row_at(to, BATCH, bytes);
    }
    #pragma unroll
    for (int u = 0; u + 1 < BATCH; u++) {
        const int k = i + u;
        float dx[N] = {};
        if (k >= rows) break;
        add_row<N, Wc>(f, now[u], now_dy[u], silu, k < len, row, dpre, dw, db);
        dx_of<N, Wc>(f, dpre, dx);
        if (STATES && k < Wc - 1) {
            if (starts) store_dx0<N>(x, k, dx);
        } else if (k >= Wc - 1) write<N>(row_at(to, u, bytes), dx);
    }
    #pragma unroll 1
    for (int k = rows; k < steps; k++) {
        float dx[N] = {};
        next_row<N, Wc>(dpre);
        late_dpre<N>(x, k, dpre[Wc - 1]);
        if (k < Wc - 1 && !starts) continue;
        if (STATES && x.st.dxt) add_dxt<N>(x, k, dx);
        dx_of<N, Wc>(f, dpre, dx);
        if (STATES && k < Wc - 1) store_dx0<N>(x, k, dx);
        else write<N>(row_at(to, k - i, bytes), dx);
    }
    //< backward-steps
    if (x.a.dweight || x.a.dbias) store_sums<N, Wc>(x, dw, db);
}

static __host__ __device__ int needs_sums(const struct conv_call *a)
{
    return a->dweight || a->dbias;
}

// Computes sums [rows,n] per stretch (token range) by adding its runs' sums in order.
// Rows past this rank's last stretch become 0. If `total` is set, stores the only
// stretch's sums as dweight and dbias. `grid.z` selects the call.
template <int CALLS>
static __global__ void add_runs(const __grid_constant__ struct calls<CALLS> all,
                                int total)
{
    const struct conv &x = all.of[CALLS > 1 ? blockIdx.z : 0];
    if (CALLS > 1 && !needs_sums(&x.a)) return;
    const int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const int s = blockIdx.y, *cn = (const int *)x.a.cn;
    if (e >= x.n) return;
    float sum = 0.0f;
    if (s < x.a.NS) {
        #pragma unroll 8
        for (int c = cn[s]; c < cn[s + 1]; c += x.run)
            sum += x.chunk[c * x.n + e];
    }
    const int64_t weights = (int64_t)x.a.D * x.a.Wc, bias = e - weights;
    float *to = x.mine + s * x.n + e;
    if (total && bias < 0 && x.a.dweight) to = (float *)x.a.dweight + e;
    if (total && bias >= 0 && x.a.dbias) to = (float *)x.a.dbias + bias;
    *to = sum;
}

// ---- launches

static int column_blocks(const struct conv_call *a, int N)
{
    return (a->D / N + THREADS - 1) / THREADS;
}

// Returns the number of blocks of the main kernel for one call.
static unsigned blocks_of(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const int runs = a->NS == 1 ? (a->NC + x->run - 1) / x->run : a->NC;
    const int N = a->pass == KCP_FORWARD ? (int)N_FORWARD : (int)N_BACKWARD;
    return (unsigned)(column_blocks(a, N) * runs);
}

// Returns the number of chunks per run in backward. For a single token range, this
// number minimizes the predicted time: blocks run in waves, and a run takes the time of
// its tokens plus the time of OF_RUN tokens. With several ranges, or in a canonical
// plan, whose results must not depend on the number of ranks, the number is FIXED.
static int run_of_backward(const struct conv_call *a)
{
    enum { FIXED = 2, MOST = 8, OF_RUN = 20 };
    const int64_t at_once = (int64_t)processors() * BLOCKS_BACKWARD;
    int64_t shortest = INT64_MAX;
    int best = FIXED;
    for (int run = 1; run <= MOST && a->NS == 1 && !a->plan->L; run++) {
        const int64_t blocks =
            (int64_t)column_blocks(a, N_BACKWARD) * ((a->NC + run - 1) / run);
        const int64_t time =
            (blocks + at_once - 1) / at_once * ((int64_t)run * a->C + OF_RUN);
        if (time >= shortest) continue;
        shortest = time;
        best = run;
    }
    return best;
}

template <int CALLS>
static struct calls<CALLS> calls_of(const struct conv *x, int n)
{
    struct calls<CALLS> all = {};
    for (int i = 0; i < n; i++) all.of[i] = x[i];
    return all;
}

// Returns the grid of n calls: as many blocks per call as the largest call needs.
static dim3 grid_of(const struct conv *x, int n)
{
    unsigned blocks = 0;
    for (int i = 0; i < n; i++) blocks = x[i].blocks > blocks ? x[i].blocks : blocks;
    return dim3(blocks, (unsigned)n);
}

template <int CALLS>
static int sums(const struct conv *x, int n)
{
    const struct conv_call *a = &x->a;
    const int total = a->plan->R == 1 && a->NS == 1;
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        if (needs_sums(&x[i].a) && x[i].n > most) most = x[i].n;
    if (!most) return launched();
    add_runs<CALLS><<<dim3((unsigned)((most + 255) / 256), (unsigned)x->rows,
                           (unsigned)n), 256, 0, a->stream>>>(calls_of<CALLS>(x, n),
                                                              total);
    int status = launched();
    for (int i = 0; i < n && !total && !status; i++)
        if (needs_sums(&x[i].a))
            status = store_conv_sums(&x[i].a, x[i].mine, x[i].n, x[i].all, x[i].sum);
    return status;
}

// Sends dpre of this rank's first rows to earlier ranks, and receives dpre of the rows
// after this rank's rows.
template <int Wc, int STATES>
static int bring_dpre(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const int64_t edge = edge_count(x);
    const struct kcp_halo h = edge_halo(x);
    if (a->plan->R > 1 && edge) {
        write_edges(x);
        edge_rows<Wc, STATES><<<dim3(column_blocks(a, N_BACKWARD), (unsigned)edge),
                                THREADS, 0, a->stream>>>(*x);
    }
    return kcp_halo_run(&h, x->edge, x->after);
}

template <int Wc, int STATES, int CALLS>
static int backward(const struct conv *x, int n)
{
    int status = KCP_OK;
    for (int i = 0; i < n && !status; i++) status = bring_dpre<Wc, STATES>(&x[i]);
    if (status) return status;
    if (x->a.NC)
        backward_tokens<Wc, STATES, CALLS><<<grid_of(x, n), THREADS, 0, x->a.stream>>>(
            calls_of<CALLS>(x, n));
    for (int i = 0; i < n && !status; i++)
        if (STATES && x[i].st.dx0)
            status = pass_empty_rows(&x[i].a, sizeof(bf16), x[i].a.plan->h0_rank,
                                     x[i].st.dxt, x[i].st.dx0);
    return status ? status : sums<CALLS>(x, n);
}

static int final_states(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    if (!x->st.xt || a->Wc == 1) return launched();
    const int blocks = column_blocks(a, N_FORWARD);
    if (a->NS)
        last_rows<<<blocks * a->NS * (a->Wc - 1), THREADS, 0, a->stream>>>(*x);
    return pass_empty_rows(a, sizeof(bf16), a->plan->ht_rank, x->st.x0, x->st.xt);
}

template <int Wc, int STATES, int CALLS>
static int forward(const struct conv *x, int n)
{
    if (x->a.NC)
        forward_tokens<Wc, STATES, CALLS><<<grid_of(x, n), THREADS, 0, x->a.stream>>>(
            calls_of<CALLS>(x, n));
    int status = launched();
    for (int i = 0; i < n && !status; i++) status = final_states(&x[i]);
    return status;
}

// Receives the rows of x before this rank's rows.
static int bring_x(const struct kcp_conv *c, const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const struct kcp_halo h = halo_of(a, a->Wc, 0, sizeof(bf16));
    int status = bring_both(c, a, &x->st, sizeof(bf16));
    if (!status) status = kcp_halo_run(&h, a->x, (void *)x->before);
    if (!status && has_states(&x->st)) write_sequences(x);
    return status;
}

template <int Wc, int STATES, int CALLS>
static int run_width(const struct kcp_conv *const *c, const struct conv *x, int n)
{
    int status = KCP_OK;
    for (int i = 0; i < n && !status; i++) status = bring_x(c[i], &x[i]);
    if (status) return status;
    write_bounds(x);                     // all calls read the first call's bounds
    return x->a.pass == KCP_FORWARD ? forward<Wc, STATES, CALLS>(x, n)
                                    : backward<Wc, STATES, CALLS>(x, n);
}

template <int STATES, int CALLS>
static int run_states(const struct kcp_conv *const *c, const struct conv *x, int n)
{
    switch (x->a.Wc) {
        case 1: return run_width<1, STATES, CALLS>(c, x, n);
        case 2: return run_width<2, STATES, CALLS>(c, x, n);
        case 3: return run_width<3, STATES, CALLS>(c, x, n);
        default: return run_width<4, STATES, CALLS>(c, x, n);
    }
}

template <int CALLS>
static int run_calls(void *const *args, int n)
{
    const struct kcp_conv *c[CALLS];
    struct conv x[CALLS] = {};
    int states = 0;
    for (int i = 0; i < n; i++) {
        c[i] = (const struct kcp_conv *)args[i];
        if (conv_status(c[i])) return KCP_BAD;
        if (!kcp_path_of("14_conv", "v2_tokens", KCP_BF16, c[i])) return KCP_NA;
        if (place(&x[i], c[i]) > c[i]->work_bytes) return KCP_BAD;
        if (x[i].a.Wc != x->a.Wc) return KCP_NA;
        x[i].run = c[i]->pass == KCP_FORWARD ? 1 : run_of_backward(&x[i].a);
        x[i].blocks = blocks_of(&x[i]);
        x[i].bounds = x->bounds;
        states |= has_states(&x[i].st);
    }
    return states ? run_states<1, CALLS>(c, x, n) : run_states<0, CALLS>(c, x, n);
}

static int run(void *args)
{
    return run_calls<1>(&args, 1);
}

// Returns KCP_NA for backward over several ranks: the caller then runs the calls one by
// one. A common launch sends the halos of all calls before all sums. A rank with
// unaligned arrays runs calls one by one, so the order of its messages would differ.
static int run_many(void *const *args, int n)
{
    const struct kcp_call *c = (const struct kcp_call *)args[0];
    if (c->pass == KCP_BACKWARD && c->R > 1) return KCP_NA;
    return run_calls<KCP_CONVS>(args, n);
}

static size_t work(const void *args)
{
    const struct kcp_conv *c = (const struct kcp_conv *)args;
    struct conv x;
    return c->plan ? place(&x, c) : 0;
}

KCP_VARIANT(conv_v2_tokens) = {
    "14_conv", "v2_tokens", "a thread computes 2 or 4 channels of adjacent tokens",
    KCP_BF16, KCP_DEVICE, "D a multiple of 8, Wc up to 4", run, work, 0,
    run_many };
