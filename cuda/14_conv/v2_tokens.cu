// v2_tokens.cu -- causal convolution: a thread has some channels and goes down a chunk.
// Book: chapter 14, "Code: kernels".
// Checked by: tests/14_conv/checks.c.
// Next: cuda/15_scan/v1_plain.cu.
#include "cuda/host/halo.cuh"
#include "cuda/host/putter.cuh"
#include "cuda/host/segment_sum.cuh"
#include "core/paths.h"
#include "cuda/tile/math.cuh"
#include "cuda/tile/pack.cuh"

// Bound: memory. Forward reads x and writes y, 4 bytes a token and channel; backward
// reads x and dy and writes dx, 6 bytes, and 4 (Wc + 1) bytes a chunk and channel of
// sums, written and read. A thread owns N neighbouring channels, 16 or 8 bytes of a
// row; the last Wc rows stay in its registers, and its weights too. It asks for AHEAD
// rows before it uses the first. One launch serves all stretches, by their chunks.
// Backward makes d pre-activation again where a chunk needs the next one's first rows,
// by the same instructions, so that the bits do not depend on who made them. The rows
// before and after a sequence are met at a chunk's ends alone; a call without them has
// kernels without them (STATES 0).
enum { THREADS = 128, AHEAD = 8, N_FORWARD = 8, WC_MAX = 4 };
enum { BACK_BLOCKS = 4, BACK_AHEAD = 4, N_BACKWARD = 4 };    // 128 registers a thread

// Stretch s in local tokens: where its sequence starts and stops, at most WC_MAX beside
// the run of tokens that it lies in; then that run and its halos (halo.cuh).
enum { START, STOP, LOW, HIGH, LOW_AT, HIGH_AT, BOUNDS };
struct conv {
    struct conv_call a;
    const bf16 *before;                  // [nb,D]: rows of x before the cuts
    float *edge, *after;                 // [edge,D], [na,D]: dpre sent, dpre got
    float *chunk, *mine, *all, *sum;     // sums of chunks [NC,n], stretches, ranks
    int *bounds, *edge_token;            // [NS,BOUNDS]; [edge]
    int64_t nb, na, rows, n;
    struct conv_states st;
    int *sequence;                       // [NS]: which sequence a stretch is of
};

template <int N>
struct channels { float c[N]; };

// N numbers of bf16, 2 N bytes at once.
template <int N>
struct packed { uint32_t w[N / 2]; };

template <int N>
static __device__ __forceinline__ struct packed<N> read(const bf16 *p)
{
    struct packed<N> x;
    if (N == 8) *(uint4 *)x.w = *(const uint4 *)p;
    else *(uint2 *)x.w = *(const uint2 *)p;
    return x;
}

template <int N>
static __device__ __forceinline__ struct channels<N> unpack(const struct packed<N> &x)
{
    struct channels<N> y;
    #pragma unroll
    for (int i = 0; i < N; i++)
        y.c[i] = __uint_as_float(i % 2 ? x.w[i / 2] & 0xffff0000u : x.w[i / 2] << 16);
    return y;
}

template <int N>
static __device__ __forceinline__ void write(bf16 *p, const struct channels<N> &y)
{
    struct packed<N> x;
    #pragma unroll
    for (int i = 0; i < N / 2; i++) x.w[i] = pack_bf16x2(y.c[2 * i], y.c[2 * i + 1]);
    if (N == 8) *(uint4 *)p = *(const uint4 *)x.w;
    else *(uint2 *)p = *(const uint2 *)x.w;
}

// Row k of the states [N,Wc-1,D] of the sequence that stretch s is of: channels d ..
static __device__ __forceinline__ bf16 *state_row(const struct conv &x,
                                                  const void *states, int s, int64_t k,
                                                  int d)
{
    const int64_t row = x.sequence[s] * (int64_t)(x.a.Wc - 1) + k;
    return (bf16 *)states + row * x.a.D + d;
}

// Channels d .. of row t of x: of a halo before the cut; before the sequence of x0, or
// 0.
template <int N, int STATES>
static __device__ __forceinline__ struct channels<N> tap(const struct conv &x, int s,
                                                         int64_t t, int d)
{
    const int *bounds = x.bounds + BOUNDS * s;
    if (STATES && t < bounds[START] && x.st.x0)
        return unpack(read<N>(state_row(x, x.st.x0, s,
                                        t - bounds[START] + x.a.Wc - 1, d)));
    if (t < bounds[START]) return {};
    const bf16 *row = t < bounds[LOW] ? x.before + (bounds[LOW_AT] + t) * x.a.D
                                      : (const bf16 *)x.a.x + t * x.a.D;
    return unpack(read<N>(row + d));
}

template <int N, int Wc>
struct weights { float w[N][Wc], bias[N]; };

// The token shift is the window of two with the weights 1 and -1.
template <int N, int Wc>
static __device__ __forceinline__ void read_weights(const struct conv &x, int d,
                                                    struct weights<N, Wc> *f)
{
    #pragma unroll
    for (int i = 0; i < N; i++) {
        f->bias[i] = x.a.bias ? ((const float *)x.a.bias)[d + i] : 0.0f;
        #pragma unroll
        for (int j = 0; j < Wc; j++)
            f->w[i][j] = x.a.shift ? 1.0f - 2.0f * j
                                   : ((const float *)x.a.weight)[(d + i) * Wc + j];
    }
}

// pre = bias + sum_j w_j x_{t+j-Wc+1} of one channel; row [Wc], the oldest first.
template <int N, int Wc>
static __device__ __forceinline__ float pre_of(const struct weights<N, Wc> &f,
                                               const struct channels<N> *row, int i)
{
    float pre = f.bias[i];
    #pragma unroll
    for (int j = 0; j < Wc; j++) pre = fmaf(f.w[i][j], row[j].c[i], pre);
    return pre;
}

static __device__ __forceinline__ float sigmoid_approx(float x)
{
    return rcp_approx(1.0f + ex2_approx(-1.44269504088896341f * x));
}

// dy act'(pre). The roundings are spelled out: the same bits in every kernel.
static __device__ __forceinline__ float through_act(float dy, float pre, int silu)
{
    if (!silu) return dy;
    const float sg = sigmoid_approx(pre);
    return __fmul_rn(__fmul_rn(dy, sg), fmaf(pre, __fadd_rn(1.0f, -sg), 1.0f));
}

// The window moves on by one row.
template <int N, int Wc>
static __device__ __forceinline__ void move_on(struct channels<N> *row)
{
    #pragma unroll
    for (int j = 0; j + 1 < Wc; j++) row[j] = row[j + 1];
}

// Where a thread is: its chunk, its first channel, and its stretch's bounds.
struct place_in_call {
    struct token_range z;
    int c, d, s, there;
};

template <int N>
static __device__ __forceinline__ struct place_in_call find_place(const struct conv &x)
{
    const int groups = x.a.D / N, per_chunk = (groups + THREADS - 1) / THREADS;
    const int c = blockIdx.x / per_chunk;
    const int g = blockIdx.x % per_chunk * THREADS + threadIdx.x;
    const int s = ((const int *)x.a.sc)[c];
    return { chunk_tokens(x.a, s, c), c, g * N, s, g < groups };
}

template <int Wc, int STATES>
static __global__ __launch_bounds__(THREADS) void forward_tokens(const struct conv x)
{
    enum { N = N_FORWARD };
    const struct place_in_call at = find_place<N>(x);
    if (!at.there) return;
    const int silu = x.a.act == KCP_ACT_SILU;
    const int64_t D = x.a.D;
    struct weights<N, Wc> f;
    read_weights(x, at.d, &f);

    struct channels<N> row[Wc];
    #pragma unroll
    for (int j = 0; j + 1 < Wc; j++)
        row[j + 1] = tap<N, STATES>(x, at.s, at.z.t + j - Wc + 1, at.d);
    const bf16 *from = (const bf16 *)x.a.x + at.z.t * D + at.d;
    bf16 *to = (bf16 *)x.a.y + at.z.t * D + at.d;
    for (int i = 0; i < at.z.len; i += AHEAD) {
        struct packed<N> next[AHEAD];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (i + u < at.z.len) next[u] = read<N>(from + (i + u) * D);
        //> kernel-tokens
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (i + u >= at.z.len) break;
            move_on<N, Wc>(row);
            row[Wc - 1] = unpack(next[u]);
            struct channels<N> y;
            #pragma unroll
            for (int e = 0; e < N; e++) {
                const float pre = pre_of(f, row, e);
                y.c[e] = silu ? pre * sigmoid_approx(pre) : pre;
            }
            write(to + (i + u) * D, y);
        }
        //< kernel-tokens
    }
}

// xt: the last rows of the sequences that end here, a block a row and some channels.
static __global__ __launch_bounds__(THREADS) void last_rows(const struct conv x)
{
    enum { N = N_FORWARD };
    const int per_row = (x.a.D / N + THREADS - 1) / THREADS, reach = x.a.Wc - 1;
    const int d = (blockIdx.x % per_row * THREADS + threadIdx.x) * N;
    const int k = blockIdx.x / per_row % reach, s = blockIdx.x / per_row / reach;
    const int end = ((const int *)x.a.cu)[s + 1];
    if (d >= x.a.D || end != x.bounds[BOUNDS * s + STOP]) return;
    write(state_row(x, x.st.xt, s, k, d), tap<N, 1>(x, s, end - reach + k, d));
}

// d pre-activation of the first rows of runs, which the tokens before them lack.
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
    read_weights(x, d, &f);
    struct channels<N> row[Wc];
    #pragma unroll
    for (int j = 0; j < Wc; j++)
        row[j] = tap<N, STATES>(x, s, t + j - Wc + 1, d);
    const struct channels<N> dy =
        unpack(read<N>((const bf16 *)x.a.dy + t * x.a.D + d));
    #pragma unroll
    for (int e = 0; e < N; e++)
        x.edge[e_row * x.a.D + d + e] =
            through_act(dy.c[e], pre_of(f, row, e), x.a.act == KCP_ACT_SILU);
}

// dx of a chunk, and the chunk's part of dweight and dbias. Row u of the walk is token
// t = z.t + u: its d pre-activation, made here, or a later rank's; then dx of token
// t - (Wc - 1), whose last term that was. At the start of a sequence that token lies
// before it, and its row is one of dx0.
template <int Wc, int STATES>
static __global__ __launch_bounds__(THREADS, BACK_BLOCKS) void backward_tokens(
    const struct conv x)
{
    enum { N = N_BACKWARD };
    const struct place_in_call at = find_place<N>(x);
    if (!at.there) return;
    const int silu = x.a.act == KCP_ACT_SILU, len = at.z.len;
    const int64_t D = x.a.D;
    const int stop = x.bounds[BOUNDS * at.s + STOP], T = x.bounds[BOUNDS * at.s + HIGH];
    struct weights<N, Wc> f;
    read_weights(x, at.d, &f);

    struct channels<N> row[Wc], dpre[Wc] = {};
    float dw[N][Wc] = {}, db[N] = {};
    #pragma unroll
    for (int j = 0; j + 1 < Wc; j++)
        row[j + 1] = tap<N, STATES>(x, at.s, at.z.t + j - Wc + 1, at.d);
    const bf16 *from = (const bf16 *)x.a.x + at.d, *dy = (const bf16 *)x.a.dy + at.d;
    bf16 *to = (bf16 *)x.a.dx + at.d;
    const int starts = STATES && x.st.dx0 && at.z.t == x.bounds[BOUNDS * at.s + START];
    for (int i = 0; i < len + Wc - 1; i += BACK_AHEAD) {
        struct packed<N> next[BACK_AHEAD], next_dy[BACK_AHEAD];
        #pragma unroll
        for (int u = 0; u < BACK_AHEAD; u++) {
            const int64_t t = at.z.t + i + u;
            if (i + u >= len + Wc - 1 || t >= T || t >= stop) continue;
            next[u] = read<N>(from + t * D);
            next_dy[u] = read<N>(dy + t * D);
        }
        #pragma unroll
        for (int u = 0; u < BACK_AHEAD; u++) {
            const int64_t t = at.z.t + i + u;
            if (i + u >= len + Wc - 1) break;
            move_on<N, Wc>(row);
            move_on<N, Wc>(dpre);
            dpre[Wc - 1] = {};
            if (t < stop && t < T) {
                row[Wc - 1] = unpack(next[u]);
                const struct channels<N> g = unpack(next_dy[u]);
                #pragma unroll
                for (int e = 0; e < N; e++)
                    dpre[Wc - 1].c[e] = through_act(g.c[e], pre_of(f, row, e), silu);
            } else if (t < stop) {
                const int after = x.bounds[BOUNDS * at.s + HIGH_AT];
                #pragma unroll
                for (int e = 0; e < N; e++)
                    dpre[Wc - 1].c[e] = x.after[(after + t) * D + at.d + e];
            }
            #pragma unroll
            for (int e = 0; e < N; e++) {
                if (i + u >= len) continue;
                db[e] += dpre[Wc - 1].c[e];
                #pragma unroll
                for (int j = 0; j < Wc; j++)
                    dw[e][j] = fmaf(dpre[Wc - 1].c[e], row[j].c[e], dw[e][j]);
            }
            if (i + u < Wc - 1 && !starts) continue;
            struct channels<N> dx = {};
            if (STATES && x.st.dxt && t >= stop)
                dx = unpack(read<N>(state_row(x, x.st.dxt, at.s, t - stop, at.d)));
            #pragma unroll
            for (int j = 0; j < Wc; j++)
                #pragma unroll
                for (int e = 0; e < N; e++)
                    dx.c[e] = fmaf(f.w[e][Wc - 1 - j], dpre[j].c[e], dx.c[e]);
            if (STATES && i + u < Wc - 1)
                write(state_row(x, x.st.dx0, at.s, i + u, at.d), dx);
            else
                write(to + (t - Wc + 1) * D, dx);
        }
    }
    if (!x.a.dweight && !x.a.dbias) return;
    float *part = x.chunk + at.c * x.n;
    #pragma unroll
    for (int j = 0; j < Wc; j++) {                      // N = 4: Wc pieces of 16 bytes
        float4 piece;
        piece.x = dw[4 * j / Wc][4 * j % Wc];
        piece.y = dw[(4 * j + 1) / Wc][(4 * j + 1) % Wc];
        piece.z = dw[(4 * j + 2) / Wc][(4 * j + 2) % Wc];
        piece.w = dw[(4 * j + 3) / Wc][(4 * j + 3) % Wc];
        ((float4 *)(part + (int64_t)at.d * Wc))[j] = piece;
    }
    *(float4 *)(part + D * Wc + at.d) = make_float4(db[0], db[1], db[2], db[3]);
}

// Sums of stretches [rows,n] from those of their chunks, in order; 0 where a rank has
// fewer stretches than another.
static __global__ void add_chunks(const struct conv x)
{
    const int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const int s = blockIdx.y, *cn = (const int *)x.a.cn;
    if (e >= x.n) return;
    float sum = 0.0f;
    if (s < x.a.NS) {
        #pragma unroll 8
        for (int c = cn[s]; c < cn[s + 1]; c++) sum += x.chunk[c * x.n + e];
    }
    x.mine[s * x.n + e] = sum;
}

static int clamped(int64_t x, int64_t low, int64_t high)
{
    if (x < low) return (int)low;
    return x > high ? (int)high : (int)x;
}

static void write_bounds(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const struct kcp_context *ctx = &a->plan->ctx[a->r];
    const int64_t *cu = a->plan->cu_seqlens;
    struct putter to = { x->bounds, {}, a->stream };
    for (int s = 0; s < a->NS; s++) {
        const struct kcp_segment *g = &a->plan->seg[ctx->seg0 + s];
        const struct surround z = surround_of(a->plan, a->r, s, a->Wc - 1);
        const int64_t local = ctx->cu[s] - g->begin, low = z.low - WC_MAX;
        const int64_t high = z.high + WC_MAX;
        const int number[BOUNDS] = { clamped(cu[g->n] + local, low, high),
                                     clamped(cu[g->n + 1] + local, low, high),
                                     (int)z.low, (int)z.high, (int)z.low_at,
                                     (int)z.high_at };
        for (int i : number) put(&to, i);
    }
    put_rest(&to);
}

static void write_sequences(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    struct putter to = { x->sequence, {}, a->stream };
    for (int s = 0; s < a->NS; s++)
        put(&to, a->plan->seg[a->plan->ctx[a->r].seg0 + s].n);
    put_rest(&to);
}

static struct kcp_halo edge_halo(const struct conv *x)
{
    struct kcp_halo h = halo_of(&x->a, x->a.Wc, 1, sizeof(float));
    h.edges = 1;
    return h;
}

static int64_t edge_count(const struct conv *x)
{
    const struct kcp_halo h = edge_halo(x);
    return kcp_halo_edge(&h, x->a.r, x->a.NS);
}

// The local tokens of the rows that other segments may lack.
static void write_edges(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const struct kcp_halo h = edge_halo(x);
    const struct kcp_context *ctx = &a->plan->ctx[a->r];
    struct putter to = { x->edge_token, {}, a->stream };
    for (int s = 0; s < a->NS; s++) {
        const int64_t rows = kcp_halo_edge(&h, a->r, s + 1) -
                             kcp_halo_edge(&h, a->r, s);
        for (int i = 0; i < rows; i++) put(&to, ctx->cu[s] + i);
    }
    put_rest(&to);
}

// The arrays of a call, from the start of work; returns the bytes they take.
static size_t place(struct conv *x, const struct kcp_conv *c)
{
    const struct conv_call *a = (const struct conv_call *)c;
    const struct kcp_plan *p = a->plan;
    void *x0 = NULL, *dxt = NULL;
    x->a = *a;
    x->st = states_of(c);
    if (a->shift) {
        x->a.Wc = 2;
        x->a.act = KCP_ACT_NONE;
        x->a.bias = NULL;
        x->a.dweight = NULL;
        x->a.dbias = NULL;
    }
    const struct kcp_halo h = halo_of(a, x->a.Wc, 0, sizeof(bf16));
    const struct kcp_halo back = halo_of(a, x->a.Wc, 1, sizeof(float));
    x->nb = kcp_halo_rows(&h, a->r);
    x->na = kcp_halo_rows(&back, a->r);
    x->n = (int64_t)a->D * (x->a.Wc + 1);
    x->rows = padded_rows(p);

    const int64_t grads = a->pass == KCP_BACKWARD;
    const int64_t sums = grads && (x->a.dweight || x->a.dbias);
    const int64_t x0_bytes = states_copied(&h, x->st.x0);
    const int64_t dxt_bytes = states_copied(&h, x->st.dxt);
    struct { void **to; int64_t count; size_t size; } piece[] = {
        { (void **)&x->before, x->nb * a->D, sizeof(bf16) },
        { (void **)&x->bounds, BOUNDS * a->NS, sizeof(int) },
        { (void **)&x->edge_token, grads * edge_count(x), sizeof(int) },
        { (void **)&x->edge, grads * edge_count(x) * a->D, sizeof(float) },
        { (void **)&x->after, grads * x->na * a->D, sizeof(float) },
        { (void **)&x->chunk, sums * x->n * a->NC, sizeof(float) },
        { (void **)&x->mine, sums * x->n * x->rows, sizeof(float) },
        { (void **)&x->all, sums * x->n * x->rows * p->R, sizeof(float) },
        { (void **)&x->sum, sums * x->n, sizeof(float) },
        { (void **)&x->sequence, has_states(&x->st) * a->NS, sizeof(int) },
        { &x0, x0_bytes, 1 },
        { &dxt, dxt_bytes, 1 },
    };
    size_t used = 0;
    for (size_t j = 0; j < sizeof piece / sizeof *piece; j++) {
        *piece[j].to = (char *)a->work + used;
        used += (piece[j].count * piece[j].size + 255) / 256 * 256;
    }
    if (x0_bytes) x->st.x0 = x0;
    if (dxt_bytes) x->st.dxt = dxt;
    return used;
}

static size_t work(const void *args)
{
    const struct kcp_conv *c = (const struct kcp_conv *)args;
    struct conv x;
    return c->plan ? place(&x, c) : 0;
}

static unsigned blocks_of(const struct conv_call *a, int N)
{
    return (unsigned)(((int64_t)a->D / N + THREADS - 1) / THREADS * a->NC);
}

// dweight and dbias: chunks, stretches, then every rank's stretches.
static int add_up(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const int64_t nw = (int64_t)a->D * a->Wc;
    const cudaMemcpyKind kind = cudaMemcpyDeviceToDevice;
    add_chunks<<<dim3((unsigned)((x->n + 255) / 256), (unsigned)x->rows), 256, 0,
                 a->stream>>>(*x);
    const int status = parameter_sum((const struct kcp_call *)a, x->mine, x->n, x->all,
                                     x->sum);
    if (status) return status;
    if (a->dweight)
        cudaMemcpyAsync(a->dweight, x->sum, sizeof(float) * nw, kind, a->stream);
    if (a->dbias)
        cudaMemcpyAsync(a->dbias, x->sum + nw, sizeof(float) * a->D, kind, a->stream);
    return launched();
}

template <int Wc, int STATES>
static int backward(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const int64_t edge = edge_count(x);
    const struct kcp_halo h = edge_halo(x);
    if (a->plan->R > 1 && edge) {
        write_edges(x);
        const int groups = a->D / N_BACKWARD;
        edge_rows<Wc, STATES><<<dim3((groups + THREADS - 1) / THREADS, (unsigned)edge),
                                THREADS, 0, a->stream>>>(*x);
    }
    int status = kcp_halo_run(&h, x->edge, x->after);
    if (status) return status;
    if (a->NC)
        backward_tokens<Wc, STATES><<<blocks_of(a, N_BACKWARD), THREADS, 0,
                                      a->stream>>>(*x);
    if (STATES && x->st.dx0)
        status =
            pass_empty_rows(a, sizeof(bf16), a->plan->h0_rank, x->st.dxt, x->st.dx0);
    if (status) return status;
    return a->dweight || a->dbias ? add_up(x) : launched();
}

template <int Wc, int STATES>
static int forward(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    if (a->NC)
        forward_tokens<Wc, STATES><<<blocks_of(a, N_FORWARD), THREADS, 0,
                                     a->stream>>>(*x);
    if (!STATES || !x->st.xt || Wc == 1) return launched();
    const int per_row = (a->D / N_FORWARD + THREADS - 1) / THREADS;
    if (a->NS)
        last_rows<<<per_row * a->NS * (Wc - 1), THREADS, 0, a->stream>>>(*x);
    return pass_empty_rows(a, sizeof(bf16), a->plan->ht_rank, x->st.x0, x->st.xt);
}

template <int Wc, int STATES>
static int run_width(const struct kcp_conv *c, const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const struct kcp_halo h = halo_of(a, Wc, 0, sizeof(bf16));
    int status = STATES ? bring_both(c, a, &x->st, sizeof(bf16)) : KCP_OK;
    if (!status) status = kcp_halo_run(&h, a->x, (void *)x->before);
    if (status) return status;
    write_bounds(x);
    if (STATES) write_sequences(x);
    return a->pass == KCP_FORWARD ? forward<Wc, STATES>(x) : backward<Wc, STATES>(x);
}

template <int STATES>
static int run_states(const struct kcp_conv *c, const struct conv *x)
{
    switch (x->a.Wc) {
        case 1: return run_width<1, STATES>(c, x);
        case 2: return run_width<2, STATES>(c, x);
        case 3: return run_width<3, STATES>(c, x);
        default: return run_width<4, STATES>(c, x);
    }
}

static int run(void *args)
{
    const struct kcp_conv *c = (const struct kcp_conv *)args;
    struct conv x;
    if (!c->plan || c->D < 1 || c->plan->ctx[c->r].NS != c->NS) return KCP_BAD;
    if (!c->shift && (!c->weight || c->Wc < 1)) return KCP_BAD;
    if (!kcp_path_of("14_conv", "v2_tokens", KCP_BF16, c)) return KCP_NA;
    if (place(&x, c) > c->work_bytes) return KCP_BAD;
    return has_states(&x.st) ? run_states<1>(c, &x) : run_states<0>(c, &x);
}

KCP_VARIANT(conv_v2_tokens) = {
    "14_conv", "v2_tokens", "a thread some channels down a chunk, window in registers",
    KCP_BF16, KCP_DEVICE, "D in steps of 8, Wc up to 4", run, work };
