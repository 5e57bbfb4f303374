// inputs.cu -- allocates the tensors of kcp-bench and draws random inputs.
// Book: chapter 18.
#include "bench.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

void *device_find(const struct tensor_set *s, const char *name)
{
    const struct tensor *t = tensor_find(s, name);
    return t ? t->p : NULL;
}

size_t device_bytes(const struct tensor_set *s, const char *name)
{
    const struct tensor *t = tensor_find(s, name);
    return t ? (size_t)t->n : 0;
}

// Reallocates an existing tensor that is too small for this variant, e.g. "saved".
void *device_add(struct tensor_set *s, const char *name, size_t bytes)
{
    struct tensor *t = tensor_find(s, name);
    void *p = NULL;
    const int most = sizeof s->t / sizeof s->t[0];
    if (t && (size_t)t->n >= bytes) return t->p;
    if ((!t && s->n == most) || cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess)
        return NULL;
    cudaMemset(p, 0xff, bytes);
    if (t) cudaFree(t->p);
    else t = &s->t[s->n++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->p = p;
    t->n = (int64_t)bytes;
    return p;
}

void device_free(struct tensor_set *s)
{
    for (int i = 0; i < s->n; i++) cudaFree(s->t[i].p);
    s->n = 0;
}

static __device__ unsigned long long mix(unsigned long long z)       // splitmix64
{
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static __device__ float normal_at(unsigned long long seed, unsigned long long i)
{
    const unsigned long long a = mix(seed ^ mix(i));
    const float u = ((unsigned)(a >> 40) + 0.5f) * 0x1p-24f;
    const float w = (float)(a & 0xffffff) * 0x1p-24f;
    return sqrtf(-2 * logf(u)) * cospif(2 * w);
}

// Distributions of the random numbers.
enum draw { ROWS, GATE, BETA, A_LOG, DT_BIAS, ALPHA, SPIKES, WEIGHTS };

static __device__ float gate_input(float z, const struct kcp_call &c, int regime,
                                   int closes, float A, float dt)
{
    float g = -5 / (1 + expf(-6 - z));
    if (regime == LIVE) g = -fabsf(z) / (float)c.T - 1e-7f;
    if (regime == STRONG) g = -log1pf(expf(-z));
    if (closes) g = c.gate == KCP_GATE_BOUNDED ? (float)c.lower_bound : -12.0f;
    if (c.gate == KCP_GATE_RAW) return g;
    if (c.gate == KCP_GATE_SOFTPLUS) return logf(expm1f(-g / expf(A))) - dt;
    const float p = fminf(g / (float)c.lower_bound, 0.9995f);
    return logf(p / (1 - p)) / expf(A) - dt;
}

template <class X>
static __global__ void draw_all(X *x, long long n, int what, unsigned long long seed,
                                struct kcp_call c, int regime, int deep,
                                int deep_channels, const float *A, const float *dt)
{
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n) return;
    const float z = normal_at(seed, i);
    float y = z;
    if (what == GATE) {
        const int at = (int)(i % ((long long)c.HV * c.KG));
        const int closes = at / c.KG >= c.HV - deep && at % c.KG < deep_channels;
        y = gate_input(z, c, regime, closes, A ? A[at / c.KG] : 0, dt ? dt[at] : 0);
    }
    if (what == BETA) {
        y = z - (regime == LIVE ? 3 : 0);
        if (c.beta_form == KCP_BETA_RAW) y = 1 / (1 + expf(-y));
    }
    if (what == ALPHA) {                             // the logit of exp(g)
        struct kcp_call raw = c;
        raw.gate = KCP_GATE_RAW;
        y = -logf(expm1f(-gate_input(z, raw, regime, 0, 0, 0)));
    }
    if (what == SPIKES) y = z > 0.5f;
    if (what == WEIGHTS) y = 0.1f * z;
    if (what == A_LOG) y = 0.5f * (i + 0.5f) / c.HV;
    if (what == DT_BIAS) y = logf(expm1f(expf(-6.9f + 4.6f * (i % 17) / 17)));
    x[i] = (X)y;
}

// Ranks draw different numbers. c.T is the whole batch's T: `live` gates depend on it.
template <class X>
static int draw_one(struct runner *x, const char *name, size_t n, int what)
{
    const float *A = (const float *)device_find(&x->tensors, "A_log");
    const float *dt = (const float *)device_find(&x->tensors, "dt_bias");
    unsigned long long seed = 1469598103934665603ull + x->world->r;
    for (const char *p = name; *p; p++) seed = (seed ^ *p) * 1099511628211ull;
    struct kcp_call c = x->call;
    c.T = x->b->call.T;
    X *y = (X *)device_add(&x->tensors, name, n * sizeof *y);
    if (!y) return KCP_NO_MEMORY;
    if (!n) return KCP_OK;
    draw_all<<<(unsigned)((n + 255) / 256), 256>>>(y, (long long)n, what, seed, c,
                                                   x->b->regime, x->b->deep,
                                                   x->b->deep_channels, A, dt);
    return cudaDeviceSynchronize() == cudaSuccess ? KCP_OK : KCP_CUDA;
}

// Draws an input of a stage, with the size and type of its field.
static int draw_field(struct runner *x, const struct kcp_stage *st, const char *name,
                      int what)
{
    const struct kcp_field *f = st->fields;
    struct kcp_call c = x->call;
    while (strcmp(f->name, name)) f++;
    if (st->facts & KCP_CONVOLVES) {               // the convolution of v
        c.D = c.HV * c.V;
        c.Wc = CONV_WIDTH;
    }
    const size_t n = (size_t)kcp_field_numbers(&c, f);
    switch (kcp_type_of(&c, f->store, KCP_BF16)) {
    case KCP_TYPE_F64: return draw_one<double>(x, name, n, what);
    case KCP_TYPE_F32: return draw_one<float>(x, name, n, what);
    case KCP_TYPE_F16: return draw_one<__half>(x, name, n, what);
    default: return draw_one<__nv_bfloat16>(x, name, n, what);
    }
}

// ---- chapter 16: unit vectors q, k, `a`; DPLR's b = -s * a shrinks a state along `a`
template <class X>
static __global__ void unit_rows(X *x, float sign, int K, unsigned long long seed)
{
    const long long row = blockIdx.x;
    float sum = 0;
    for (int i = 0; i < K; i++) {              // every thread computes the sum
        const float z = normal_at(seed, row * K + i);
        sum += z * z;
    }
    for (int i = threadIdx.x; i < K; i += blockDim.x)
        x[row * K + i] = (X)(sign * normal_at(seed, row * K + i) * rsqrtf(sum));
}

// Draws s = sigmoid(normal + center). Sets y to s or, if `a` is not NULL, to -s * a.
template <class X>
static __global__ void rates(X *y, const X *a, long long n, float center,
                             unsigned long long seed)
{
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n) return;
    const float s = 1 / (1 + expf(-(normal_at(seed, i) + center)));
    y[i] = (X)(a ? s * -(float)a[i] : s);
}

static int fill_family(struct runner *x)
{
    typedef __nv_bfloat16 X;
    const struct kcp_call *c = &x->call;
    const size_t T = (size_t)c->T, QK = T * c->H * c->K, n = T * c->HV * c->K;
    const size_t VV = T * c->HV * c->V;
    struct tensor_set *s = &x->tensors;
    X *q = (X *)device_add(s, "q", QK * 2), *k = (X *)device_add(s, "k", QK * 2);
    X *a = kcp_model_reads(c->model, "a") ? (X *)device_add(s, "a", n * 2) : NULL;
    X *b = kcp_model_reads(c->model, "b") ? (X *)device_add(s, "b", n * 2) : NULL;
    X *w = kcp_model_reads(c->model, "omega") ? (X *)device_add(s, "omega", VV * 2)
                                              : NULL;
    if (!q || !k || (!b && kcp_model_reads(c->model, "b"))) return KCP_NO_MEMORY;
    const float center = x->b->regime == LIVE ? -3 : 0;
    unit_rows<<<(unsigned)(QK / c->K), 32>>>(q, 1, c->K, 1);
    unit_rows<<<(unsigned)(QK / c->K), 32>>>(k, 1, c->K, 2);
    if (a) unit_rows<<<(unsigned)(n / c->K), 32>>>(a, -1, c->K, 3);
    if (b) rates<<<(unsigned)((n + 255) / 256), 256>>>(b, a, n, center, 4);
    if (w) rates<<<(unsigned)((VV + 255) / 256), 256>>>(w, (X *)NULL, VV, 0, 5);
    x->call.gate = KCP_GATE_RAW;
    int e = draw_one<X>(x, "v", VV, ROWS);
    if (!e) e = draw_one<X>(x, "do_", VV, ROWS);
    if (!e) e = draw_one<float>(x, "g", n, GATE);
    return e;
}

// A_log and dt_bias are equal on all ranks. With --ranks, draws no states, because FLA,
// timed on the same case, supports no states in context parallelism.
int fill_inputs(struct runner *x)
{
    static const struct { const char *stage, *name; enum draw what; } rows[] = {
        { "02", "A_log", A_LOG }, { "02", "dt_bias", DT_BIAS }, { "02", "q_raw", ROWS },
        { "02", "k_raw", ROWS }, { "08", "v", ROWS }, { "13", "do_", ROWS },
        { "02", "g_raw", GATE }, { "02", "beta_raw", BETA }, { "14", "x", ROWS },
        { "14", "dy", ROWS }, { "14", "weight", WEIGHTS }, { "14", "bias", WEIGHTS },
        { "15", "alpha_base", ALPHA }, { "15", "beta_base", BETA },
        { "15", "spike", SPIKES }, { "15", "W_alpha", WEIGHTS },
        { "15", "w_beta", WEIGHTS },
    };
    static const char *const states[] = { "h0", "dht", "h_in", "h_start", "dh_out",
                                          "dh_end" };
    const struct kcp_call *c = &x->call;
    const size_t state = (size_t)c->NS * c->HV * c->K * c->V;
    int e = KCP_OK;
    if (kcp_models[c->model].kind == KCP_FAMILY) return fill_family(x);
    for (const auto &r : rows) {
        const struct kcp_stage *st = stage_find(r.stage);
        const int is_own = st->facts & (KCP_CONVOLVES | KCP_SPIKES);
        if (!e && (!is_own || bench_selects(x->b, st)))
            e = draw_field(x, st, r.name, r.what);
    }
    for (const char *name : states)
        if (!e && !x->b->ranks) e = draw_one<float>(x, name, state, ROWS);
    return e;
}

// ---- chapter 17, KDA: decay = exp2(G at the chunk's last token)
static __global__ void chunk_decays(struct kcp_call c, const int *cu, const int *cn,
                                    const int *sc, const float *G, float *decay)
{
    const int chunk = blockIdx.x, n = blockIdx.y, s = sc[chunk];
    const long long t0 = cu[s] + (long long)(chunk - cn[s]) * c.C;
    const long long end = t0 + c.C < cu[s + 1] ? t0 + c.C : cu[s + 1];
    for (int i = threadIdx.x; i < c.K; i += blockDim.x)
        decay[((long long)chunk * c.HV + n) * c.K + i] =
            exp2f(G[((end - 1) * c.HV + n) * c.K + i]);
}

int fill_ladder(struct runner *x)
{
    const struct kcp_call *c = &x->call;
    struct tensor_set *s = &x->tensors;
    if (!bench_selects(x->b, stage_find("17")) || c->KG == 1) return KCP_OK;
    float *decay =
        (float *)device_add(s, "decay", sizeof(float) * c->NC * c->HV * c->K);
    if (!decay) return KCP_NO_MEMORY;
    chunk_decays<<<dim3(c->NC, c->HV), 128>>>(
        *c, (const int *)device_find(s, "cu"), (const int *)device_find(s, "cn"),
        (const int *)device_find(s, "sc"), (const float *)device_find(s, "G"), decay);
    return cudaDeviceSynchronize() == cudaSuccess ? KCP_OK : KCP_CUDA;
}
