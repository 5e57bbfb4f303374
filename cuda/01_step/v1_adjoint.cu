// v1_adjoint.cu -- the adjoint recurrence with checkpoints, one block per head.
// Book: chapter 01, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "token_decay.cuh"

// Bound: latency of three passes over the tokens. The first pass computes the states
// forward and stores every KEEP-th state. The groups of KEEP tokens are then processed
// from last to first. In each group, a forward pass stores every decayed state, and a
// backward pass computes the gradients. The workspace holds dq, dk, dS, e and the
// stored states. One thread sums a column of the state and one warp sums a row, in a
// fixed order. Each value head stores its own dq and dk, and add_heads sums them.
enum { KEEP = 64, THREADS = 256 };

struct adjoint_arrays {
    float *dq, *dk;                      // [T,HV,K]
    float *dS;                           // [N,HV,K,V]
    float *S, *Sd;                       // [T/KEEP+N,HV,K,V], [N,HV,KEEP,K,V]
    float *e;                            // [N,HV,KEEP,V]
};

static __host__ __device__ size_t adjoint_layout(const struct kcp_step &a,
                                                 struct adjoint_arrays *w)
{
    const int64_t TK = a.T * a.HV * a.K, heads = (int64_t)a.N * a.HV;
    const int64_t KV = (int64_t)a.K * a.V, kept = (a.T / KEEP + a.N) * a.HV;
    float *p = (float *)a.work;
    w->dq = p;
    w->dk = w->dq + TK;
    w->dS = w->dk + TK;
    w->S = w->dS + heads * KV;
    w->Sd = w->S + kept * KV;
    w->e = w->Sd + heads * KEEP * KV;
    return (size_t)(w->e + heads * KEEP * a.V - p) * sizeof(float);
}

struct token {
    float k[KMAX], q[KMAX], decay[KMAX], dO[KMAX], e[KMAX], de[KMAX], sum[KMAX];
    float beta;
};

template <class X>
static __device__ void read_token(const struct kcp_step &a, int64_t t, int n,
                                  struct token *s)
{
    const int m = n / (a.HV / a.H);
    __syncthreads();
    for (int i = threadIdx.x; i < a.K; i += THREADS) {
        s->k[i] = in<X>(a.k, t, a.H, m, a.K)[i];
        s->q[i] = in<X>(a.q, t, a.H, m, a.K)[i];
        s->decay[i] = token_decay(in<float>(a.g, t, a.HV, n, a.KG)[a.KG == 1 ? 0 : i]);
    }
    s->beta = ((const float *)a.beta)[t * a.HV + n];
    __syncthreads();
}

// Applies one token to column v: S <- diag(exp g) S, e = v - S^T k, S <- S + k (beta
// e)^T. Stores the decayed S in `Sd` and e in `e`, except where the pointer is NULL.
template <class X>
static __device__ void forward(const struct kcp_step &a, int64_t t, int n, int v,
                               const struct token *s, float *S, float *Sd, float *e)
{
    float x = in<X>(a.v, t, a.HV, n, a.V)[v];
    for (int i = 0; i < a.K; i++) {
        S[i] *= s->decay[i];
        x -= S[i] * s->k[i];
    }
    for (int i = 0; i < a.K && Sd; i++) Sd[i * a.V + v] = S[i];
    if (e) e[v] = x;
    for (int i = 0; i < a.K; i++) S[i] += s->k[i] * (s->beta * x);
}

// Processes one token backward. First, a thread per column computes dS += scale q do^T
// and dv = de = beta dS^T k. Then, a warp per row computes dq = scale S do, dk = beta
// dS e - Sd de, dSd = dS - k de^T, dg = sum_v dSd Sd, and dS <- diag(exp g) dSd.
template <class X>
static __device__ void adjoint_step(const struct kcp_step &a,
                                    const struct adjoint_arrays &w, int64_t t, int n,
                                    struct token *s, float *dS, const float *Sd,
                                    const float *e)
{
    const int v = threadIdx.x, lane = v % 32;
    const int64_t row = (t * a.HV + n) * a.K;
    //> kernel-adjoint
    if (v < a.V) {
        float x = 0.0f;
        s->dO[v] = in<X>(a.do_, t, a.HV, n, a.V)[v];
        for (int i = 0; i < a.K; i++) {
            dS[i * a.V + v] += (float)a.scale * s->q[i] * s->dO[v];
            x += dS[i * a.V + v] * s->k[i];
        }
        s->e[v] = e[v];
        s->sum[v] = x * e[v];
        s->de[v] = s->beta * x;
        out<X>(a.dv, t, a.HV, n, a.V)[v] = s->de[v];
    }
    __syncthreads();
    if (v == 0) {
        float x = 0.0f;
        for (int j = 0; j < a.V; j++) x += s->sum[j];
        ((float *)a.dbeta)[t * a.HV + n] = x;
    }
    __syncthreads();
    for (int i = v / 32; i < a.K; i += THREADS / 32) {
        float q = 0.0f, k = 0.0f, g = 0.0f;
        for (int j = lane; j < a.V; j += 32) {
            float *d = dS + i * a.V + j;
            const float S = Sd[i * a.V + j], dSd = *d - s->k[i] * s->de[j];
            q += (S + s->beta * s->k[i] * s->e[j]) * s->dO[j];
            k += s->beta * *d * s->e[j] - S * s->de[j];
            g += dSd * S;
            *d = s->decay[i] * dSd;
        }
        for (int b = 16; b; b /= 2) {
            q += __shfl_xor_sync(~0u, q, b);
            k += __shfl_xor_sync(~0u, k, b);
            g += __shfl_xor_sync(~0u, g, b);
        }
        if (lane) continue;
        w.dq[row + i] = (float)a.scale * q;
        w.dk[row + i] = k;
        s->sum[i] = g;
        if (a.KG > 1) out<float>(a.dg, t, a.HV, n, a.KG)[i] = g;
    }
    //< kernel-adjoint
    __syncthreads();
    if (a.KG > 1 || v) return;
    float g = 0.0f;
    for (int i = 0; i < a.K; i++) g += s->sum[i];
    ((float *)a.dg)[t * a.HV + n] = g;
}

template <class X>
static __global__ __launch_bounds__(THREADS) void adjoint(const struct kcp_step a)
{
    __shared__ struct token s;
    const int64_t *cu = (const int64_t *)a.cu_seqlens;
    const int z = blockIdx.x, n = blockIdx.y, v = threadIdx.x, vk = a.layout == KCP_VK;
    const int64_t KV = (int64_t)a.K * a.V, head = (int64_t)z * a.HV + n, at = head * KV;
    const float *h0 = (const float *)a.h0, *dht = (const float *)a.dht;
    struct adjoint_arrays w;
    adjoint_layout(a, &w);
    float *dS = w.dS + at, *Sd = w.Sd + head * KEEP * KV, *e = w.e + head * KEEP * a.V;
    float *kept = w.S + ((cu[z] / KEEP + z) * a.HV + n) * KV, S[KMAX];
    const int64_t len = cu[z + 1] - cu[z], next = a.HV * KV;

    for (int i = 0; i < a.K && v < a.V; i++) {
        const int64_t iv = at + (vk ? (int64_t)v * a.K + i : (int64_t)i * a.V + v);
        S[i] = h0 ? h0[iv] : 0.0f;
        dS[i * a.V + v] = dht ? dht[iv] : 0.0f;
    }
    for (int64_t t = 0; t < len; t++) {
        if (t % KEEP == 0 && v < a.V)
            for (int i = 0; i < a.K; i++) kept[t / KEEP * next + i * a.V + v] = S[i];
        read_token<X>(a, cu[z] + t, n, &s);
        if (v < a.V) forward<X>(a, cu[z] + t, n, v, &s, S, NULL, NULL);
    }
    for (int64_t b = (len - 1) / KEEP * KEEP; b >= 0 && len; b -= KEEP) {
        const int rows = len - b < KEEP ? (int)(len - b) : (int)KEEP;
        for (int i = 0; i < a.K && v < a.V; i++)
            S[i] = kept[b / KEEP * next + i * a.V + v];
        for (int r = 0; r < rows; r++) {
            read_token<X>(a, cu[z] + b + r, n, &s);
            if (v < a.V)
                forward<X>(a, cu[z] + b + r, n, v, &s, S, Sd + r * KV, e + r * a.V);
        }
        for (int r = rows - 1; r >= 0; r--) {
            read_token<X>(a, cu[z] + b + r, n, &s);
            adjoint_step<X>(a, w, cu[z] + b + r, n, &s, dS, Sd + r * KV, e + r * a.V);
        }
    }
    __syncthreads();
    for (int i = 0; i < a.K && v < a.V; i++)
        ((float *)a.dh0)[at + (vk ? (int64_t)v * a.K + i : (int64_t)i * a.V + v)] =
            dS[i * a.V + v];
}

// Sums dq and dk over the value heads of each query/key head.
template <class X>
static __global__ void add_heads(const struct kcp_step a)
{
    const int64_t at = blockIdx.x * (int64_t)THREADS + threadIdx.x, i = at % a.K;
    const int64_t t = at / a.K / a.H, m = at / a.K % a.H, group = a.HV / a.H;
    float q = 0.0f, k = 0.0f;
    struct adjoint_arrays w;
    adjoint_layout(a, &w);
    if (t >= a.T) return;
    for (int n = 0; n < group; n++) {
        const int64_t from = (t * a.HV + m * group + n) * a.K + i;
        q += w.dq[from];
        k += w.dk[from];
    }
    ((X *)a.dq)[at] = q;
    ((X *)a.dk)[at] = k;
}

static size_t step_v1_adjoint_work(const void *args)
{
    struct kcp_step a = *(const struct kcp_step *)args;
    struct adjoint_arrays w;
    a.work = NULL;
    return a.pass == KCP_BACKWARD ? adjoint_layout(a, &w) : 0;
}

template <class X>
static int step_v1_adjoint_run(void *args)
{
    const struct kcp_step *a = (const struct kcp_step *)args;
    if (a->K > KMAX || a->V > KMAX || a->pass != KCP_BACKWARD) return KCP_NA;
    if (a->work_bytes < step_v1_adjoint_work(args)) return KCP_BAD;
    const unsigned blocks = (unsigned)((a->T * a->H * a->K + THREADS - 1) / THREADS);
    if (a->N) adjoint<X><<<dim3(a->N, a->HV), THREADS, 0, a->stream>>>(*a);
    if (a->T) add_heads<X><<<blocks, THREADS, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(step_v1_adjoint, "01_step", "v1_adjoint",
    "one block per head, states stored every 64 tokens", "backward; K, V up to 256",
    step_v1_adjoint_run<X>, step_v1_adjoint_work);
