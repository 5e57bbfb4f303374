// v2_tokens_workspace.cuh -- the arrays of a v2_tokens call and its index tables.
// Book: chapter 14, "Code: kernels".
#include "cuda/host/halo.cuh"
#include "cuda/host/putter.cuh"

enum { WC_MAX = 4 };

// Columns of table `bounds`, in local token numbers. The table has one row per stretch
// (a local token range of one sequence). START and STOP are the bounds of the sequence,
// clamped to WC_MAX tokens outside the contiguous local tokens around the stretch, so
// that they fit in an int. LOW to HIGH_AT describe these contiguous tokens and their
// halos (struct surround).
enum { START, STOP, LOW, HIGH, LOW_AT, HIGH_AT, BOUNDS };
struct conv {
    struct conv_call a;
    struct conv_states st;
    const bf16 *before;                  // [nb,D]: rows of x before the cuts
    float *edge, *after;                 // [edge,D], [na,D]: dpre sent, dpre received
    float *chunk, *mine, *all, *sum;     // sums of runs [NC,n], stretches, ranks; total
    int *bounds, *edge_token;            // [NS,BOUNDS]; [edge]
    int *sequence;                       // [NS]: the sequence of a stretch
    int64_t nb, na, rows, n;             // n = D (Wc + 1)
    int run;                             // chunks per run of a thread
    unsigned blocks;                     // of the main kernel, for this call
};

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

// Returns the halo of dpre: the first rows of segments, which ranks with earlier
// segments need.
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

// Writes the local token number of each row of edge_halo to `edge_token`.
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

// Places the arrays in the workspace and returns the size of the workspace in bytes.
static size_t place(struct conv *x, const struct kcp_conv *c)
{
    const struct conv_call *a = &x->a;
    void *x0 = NULL, *dxt = NULL;
    x->a = conv_call_of(c);
    x->st = states_of(c);
    const struct kcp_halo h = halo_of(a, a->Wc, 0, sizeof(bf16));
    const struct kcp_halo back = halo_of(a, a->Wc, 1, sizeof(float));
    x->nb = kcp_halo_rows(&h, a->r);
    x->na = kcp_halo_rows(&back, a->r);
    x->n = (int64_t)a->D * (a->Wc + 1);
    x->rows = padded_rows(a->plan);

    const int64_t grads = a->pass == KCP_BACKWARD;
    const int64_t sums = grads && (a->dweight || a->dbias);
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
        { (void **)&x->all, sums * x->n * x->rows * a->plan->R, sizeof(float) },
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
