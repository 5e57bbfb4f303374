// v1_row.cu -- causal convolution and token shift: one thread per token and channel.
// Book: chapter 14, "Code: kernels".
#include "cuda/host/halo.cuh"

// Bound: memory. The Wc rows that a token reads are cached. The communicator sends
// halos (rows near a cut between ranks) on the kernels' stream. Sums over tokens are
// computed per chunk, then per stretch, then over all segments in order, so the results
// do not depend on which rank has which tokens. A call without initial and final states
// uses the kernels with STATES = 0.

// A stretch is a local token range of one sequence. Its chunks are c0 to c0 + nc - 1.
// `start` and `stop` are the bounds of sequence n, in local token numbers. `at` is
// described in halo.cuh.
struct stretch {
    int64_t begin, end, start, stop;
    struct surround at;
    int c0, nc, s, n;
};

// A call, its states, and arrays in the workspace. `before` [nb,D] has rows before cuts
// between ranks. `dpre` [T+na,D] has gradients of the pre-activation: of T local rows
// and na rows after cuts. `chunk` [NC,n] and `mine` [rows,n] have sums of each chunk
// and stretch, n = D (Wc + 1). `all` [R,rows,n] has all ranks' sums, `sum` the total.
struct conv {
    struct conv_call a;
    struct conv_states st;
    const void *before;
    float *dpre, *chunk, *mine, *all, *sum;
    int64_t nb, na, rows, n;
};

static __device__ float weight(const struct conv &x, int d, int j)
{
    if (x.a.shift) return j ? -1.0f : 1.0f;
    return ((const float *)x.a.weight)[(int64_t)d * x.a.Wc + j];
}

// An array [N,Wc-1,D] holds Wc - 1 rows per sequence, here those before token `at`.
// Returns the index of row t, channel d, in such an array.
static __device__ int64_t state_at(const struct conv &x, const struct stretch &s,
                                   int64_t t, int64_t at, int d)
{
    const int reach = x.a.Wc - 1;
    return (s.n * (int64_t)reach + t - (at - reach)) * x.a.D + d;
}

// Returns x_t of channel d. Rows before the sequence are rows of x0, or 0 without x0.
template <class X, int STATES>
static __device__ float tap(const struct conv &x, const struct stretch &s, int64_t t,
                            int d)
{
    if (STATES && t < s.start && x.st.x0)
        return ((const X *)x.st.x0)[state_at(x, s, t, s.start, d)];
    if (t < s.start) return 0.0f;
    if (t < s.at.low) return ((const X *)x.before)[(s.at.low_at + t) * x.a.D + d];
    return ((const X *)x.a.x)[t * x.a.D + d];
}

// Computes y_t = act(pre_t) or, backward, dpre_t = dy_t act'(pre_t), with pre_t = bias
// + sum_j weight_j x_{t+j-Wc+1}.
template <class X, int STATES>
static __global__ void window(const struct conv x, const struct stretch s)
{
    const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const int64_t t = s.begin + at / x.a.D;
    const int d = at % x.a.D;
    if (t >= s.end) return;
    float pre = x.a.bias ? ((const float *)x.a.bias)[d] : 0.0f;
    //> kernel-window
    for (int j = 0; j < x.a.Wc; j++)
        pre += weight(x, d, j) * tap<X, STATES>(x, s, t + j - x.a.Wc + 1, d);
    //< kernel-window
    const float sg = 1.0f / (1.0f + expf(-pre)), silu = x.a.act == KCP_ACT_SILU;
    if (x.a.pass == KCP_FORWARD)
        ((X *)x.a.y)[t * x.a.D + d] = silu ? pre * sg : pre;
    else
        x.dpre[t * x.a.D + d] = (float)((const X *)x.a.dy)[t * x.a.D + d]
                              * (silu ? sg * (1.0f + pre * (1.0f - sg)) : 1.0f);
}

// Computes dx_t = sum_{i<Wc} weight_{Wc-1-i} dpre_{t+i}, with dpre = 0 past the
// sequence's end, and adds dxt to the last Wc - 1 rows. At the start of a sequence, dx0
// is this sum for the `earlier` rows before the sequence, where dpre is 0.
template <class X, int STATES>
static __global__ void into_x(const struct conv x, const struct stretch s, int earlier)
{
    const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const int64_t t = s.begin - (STATES ? earlier : 0) + at / x.a.D;
    const int d = at % x.a.D;
    if (t >= s.end) return;
    float dx = 0.0f;
    if (STATES && x.st.dxt && t >= s.stop - (x.a.Wc - 1))
        dx = ((const X *)x.st.dxt)[state_at(x, s, t, s.stop, d)];
    const int from = STATES && t < s.start ? s.start - t : 0;
    for (int i = from; i < x.a.Wc && t + i < s.stop; i++) {
        const int64_t row = t + i < s.at.high ? t + i : x.a.T + s.at.high_at + t + i;
        dx += weight(x, d, x.a.Wc - 1 - i) * x.dpre[row * x.a.D + d];
    }
    if (STATES && t < s.start) ((X *)x.st.dx0)[state_at(x, s, t, s.start, d)] = dx;
    else ((X *)x.a.dx)[t * x.a.D + d] = dx;
}

// Copies to xt the last Wc - 1 rows of the sequence, which ends with this range.
template <class X>
static __global__ void last_rows(const struct conv x, const struct stretch s)
{
    const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const int64_t t = s.stop - (x.a.Wc - 1) + at / x.a.D;
    const int d = at % x.a.D;
    if (t < s.stop)
        ((X *)x.st.xt)[state_at(x, s, t, s.stop, d)] = tap<X, 1>(x, s, t, d);
}

// Computes a chunk's terms of dbias = sum_t dpre_t and of dweight_j = sum_t dpre_t
// x_{t+j-Wc+1}.
template <class X, int STATES>
static __global__ void into_weight(const struct conv x, const struct stretch s)
{
    const int D = x.a.D, Wc = x.a.Wc, d = blockIdx.y * blockDim.x + threadIdx.x;
    const int64_t from = s.begin + (int64_t)blockIdx.x * x.a.C;
    const int64_t to = from + x.a.C < s.end ? from + x.a.C : s.end;
    float *part = x.chunk + (s.c0 + blockIdx.x) * x.n;
    if (d >= D) return;
    for (int j = 0; j < Wc; j++) {
        float dw = 0.0f;
        for (int64_t t = from; t < to; t++)
            dw += x.dpre[t * D + d] * tap<X, STATES>(x, s, t + j - Wc + 1, d);
        part[(int64_t)d * Wc + j] = dw;
    }
    float db = 0.0f;
    for (int64_t t = from; t < to; t++) db += x.dpre[t * D + d];
    part[(int64_t)D * Wc + d] = db;
}

static unsigned blocks(int64_t n)
{
    return (unsigned)((n + 255) / 256);
}

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

// Places the arrays in the workspace and returns the size of the workspace in bytes.
template <class X>
static size_t conv_layout(struct conv *x, const struct kcp_conv *c)
{
    const struct conv_call *a = &x->a;
    const struct kcp_plan *p = c->plan;
    x->a = conv_call_of(c);
    x->st = states_of(c);
    const struct kcp_halo h = halo_of(a, x->a.Wc, 0, sizeof(X));
    const struct kcp_halo back = halo_of(a, x->a.Wc, 1, sizeof(float));
    const size_t x0_bytes = states_copied(&h, x->st.x0);
    const size_t dxt_bytes = states_copied(&h, x->st.dxt);
    x->nb = kcp_halo_rows(&h, a->r);
    x->na = kcp_halo_rows(&back, a->r);
    x->n = (int64_t)a->D * (x->a.Wc + 1);
    x->rows = padded_rows(p);

    char *at = (char *)a->work;
    const int grads = a->pass == KCP_BACKWARD;
    const size_t row = sizeof(float) * x->n;
    x->before = at;
    at += aligned(sizeof(X) * x->nb * a->D);
    if (x0_bytes) x->st.x0 = at;
    at += aligned(x0_bytes);
    if (dxt_bytes) x->st.dxt = at;
    at += aligned(dxt_bytes);
    x->dpre = (float *)at;
    at += grads * aligned(sizeof(float) * (a->T + x->na) * a->D);
    x->chunk = (float *)at;
    at += grads * aligned(row * a->NC);
    x->mine = (float *)at;
    at += grads * aligned(row * x->rows);
    x->all = (float *)at;
    at += grads * aligned(row * x->rows * p->R);
    x->sum = (float *)at;
    at += grads * aligned(row);
    return at - (char *)a->work;
}

template <class X>
static size_t conv_v1_row_work(const void *args)
{
    const struct kcp_conv *c = (const struct kcp_conv *)args;
    struct conv x;
    return c->plan ? conv_layout<X>(&x, c) : 0;
}

static struct stretch stretch_of(const struct conv_call *a, int s)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    const int64_t *cu = a->plan->cu_seqlens;
    const struct kcp_segment *g = &a->plan->seg[x->seg0 + s];
    const int64_t to_local = x->cu[s] - g->begin;
    return { x->cu[s], x->cu[s + 1], cu[g->n] + to_local, cu[g->n + 1] + to_local,
             surround_of(a->plan, a->r, s, a->Wc - 1), x->cn[s],
             x->cn[s + 1] - x->cn[s], s, g->n };
}

// Computes dweight and dbias: sums over chunks, then over the token ranges (stretches)
// of all ranks in order. Rows of `mine` past the last token range are 0.
static int add_up(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    cudaMemsetAsync(x->mine, 0, sizeof(float) * x->rows * x->n, a->stream);
    for (int s = 0; s < a->NS; s++) {
        const struct stretch z = stretch_of(a, s);
        add_rows<<<blocks(x->n), 256, 0, a->stream>>>(
            x->n, z.nc, x->chunk + z.c0 * x->n, x->mine + s * x->n);
    }
    return store_conv_sums(a, x->mine, x->n, x->all, x->sum);
}

template <class X, int STATES>
static int backward(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    const struct kcp_halo h = halo_of(a, a->Wc, 1, sizeof(float));
    int status = kcp_halo_run(&h, x->dpre, x->dpre + a->T * a->D);
    if (status) return status;
    for (int s = 0; s < a->NS; s++) {
        const struct stretch z = stretch_of(a, s);
        const int earlier = x->st.dx0 && z.begin == z.start ? a->Wc - 1 : 0;
        into_x<X, STATES><<<blocks((z.end - z.begin + earlier) * a->D), 256, 0,
                            a->stream>>>(*x, z, earlier);
        if (a->dweight || a->dbias)
            into_weight<X, STATES><<<dim3(z.nc, blocks(a->D)), 256, 0, a->stream>>>(
                *x, z);
    }
    if (x->st.dx0)
        status = pass_empty_rows(a, sizeof(X), a->plan->h0_rank, x->st.dxt, x->st.dx0);
    if (status) return status;
    return a->dweight || a->dbias ? add_up(x) : launched();
}

template <class X>
static int forward(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    if (!x->st.xt || a->Wc == 1) return launched();
    for (int s = 0; s < a->NS; s++) {
        const struct stretch z = stretch_of(a, s);
        if (z.end == z.stop)
            last_rows<X><<<blocks((a->Wc - 1) * (int64_t)a->D), 256, 0, a->stream>>>(
                *x, z);
    }
    return pass_empty_rows(a, sizeof(X), a->plan->ht_rank, x->st.x0, x->st.xt);
}

template <class X, int STATES>
static int all_stretches(const struct conv *x)
{
    const struct conv_call *a = &x->a;
    for (int s = 0; s < a->NS; s++) {
        const struct stretch z = stretch_of(a, s);
        window<X, STATES><<<blocks((z.end - z.begin) * a->D), 256, 0, a->stream>>>(
            *x, z);
    }
    return a->pass == KCP_FORWARD ? forward<X>(x) : backward<X, STATES>(x);
}

template <class X>
static int conv_v1_row_run(void *args)
{
    const struct kcp_conv *c = (const struct kcp_conv *)args;
    struct conv x;
    const struct conv_call *a = &x.a;
    if (conv_status(c) || conv_layout<X>(&x, c) > c->work_bytes) return KCP_BAD;

    const struct kcp_halo h = halo_of(a, a->Wc, 0, sizeof(X));
    int status = bring_both(c, a, &x.st, sizeof(X));
    if (!status) status = kcp_halo_run(&h, a->x, (void *)x.before);
    if (status) return status;
    return has_states(&x.st) ? all_stretches<X, 1>(&x) : all_stretches<X, 0>(&x);
}

KCP_VARIANT_PAIR(conv_v1_row, "14_conv", "v1_row",
    "one thread per token and channel, one launch per stretch", "any shape",
    conv_v1_row_run<X>, conv_v1_row_work<X>);
