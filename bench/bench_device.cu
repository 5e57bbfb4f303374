// bench_device.cu -- the device side of kcp-bench: inputs, controls, timing.
// Book: chapter 17.
// Checked by: the regimes are those of tests/inputs.c.
// Next: bench.c.
#include "bench.h"
#include <algorithm>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

void *shelf_find(const struct shelf *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->t[i].name, name)) return s->t[i].p;
    return NULL;
}

void *shelf_add(struct shelf *s, const char *name, size_t bytes)
{
    void *p = shelf_find(s, name);
    if (p) return p;
    if (s->n == 80 || cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) return NULL;
    cudaMemset(p, 0xff, bytes);
    snprintf(s->t[s->n].name, sizeof s->t[0].name, "%s", name);
    s->t[s->n].p = p, s->t[s->n].bytes = bytes;
    s->n++;
    return p;
}

void shelf_free(struct shelf *s)
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

// What a number is drawn for.
enum draw { ROWS, GATE, BETA, A_LOG, DT_BIAS };

static __device__ float gate_input(float z, struct kcp_call c, int regime, float A, float dt)
{
    const float g = regime == LIVE ? -fabsf(z) / (float)c.T - 1e-7f
                  : regime == STRONG ? -log1pf(expf(-z)) : -5 / (1 + expf(-6 - z));
    if (c.gate == KCP_GATE_RAW) return g;
    if (c.gate == KCP_GATE_SOFTPLUS) return logf(expm1f(-g / expf(A))) - dt;
    const float p = fminf(g / (float)c.lower_bound, 0.9995f);
    return logf(p / (1 - p)) / expf(A) - dt;
}

template <class X>
static __global__ void draw_all(X *x, long long n, int what, unsigned long long seed,
                                struct kcp_call c, int regime, const float *A,
                                const float *dt)
{
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n) return;
    const float z = normal_at(seed, i);
    float y = z;
    if (what == GATE) {
        const int at = (int)(i % ((long long)c.HV * c.KG));
        y = gate_input(z, c, regime, A ? A[at / c.KG] : 0, dt ? dt[at] : 0);
    }
    if (what == BETA) {
        y = z - (regime == LIVE ? 3 : 0);
        if (c.beta_form == KCP_BETA_RAW) y = 1 / (1 + expf(-y));
    }
    if (what == A_LOG) y = 0.5f * (i + 0.5f) / c.HV;
    if (what == DT_BIAS) y = logf(expm1f(expf(-6.9f + 4.6f * (i % 17) / 17)));
    x[i] = (X)y;
}

template <class X>
static int draw_one(struct shelf *s, const struct bench *b, const char *name, size_t n,
                    int what, const float *A, const float *dt)
{
    unsigned long long seed = 1469598103934665603ull;
    for (const char *p = name; *p; p++) seed = (seed ^ *p) * 1099511628211ull;
    X *x = (X *)shelf_add(s, name, n * sizeof *x);
    if (!x) return KCP_NO_MEMORY;
    draw_all<<<(unsigned)((n + 255) / 256), 256>>>(x, (long long)n, what, seed, b->call,
                                                   b->regime, A, dt);
    return cudaDeviceSynchronize() == cudaSuccess ? KCP_OK : KCP_CUDA;
}

int fill_inputs(struct shelf *s, const struct bench *b)
{
    typedef __nv_bfloat16 X;
    const struct kcp_call *c = &b->call;
    const size_t T = (size_t)c->T, state = (size_t)c->NS * c->HV * c->K * c->V;
    int e = draw_one<float>(s, b, "A_log", c->HV, A_LOG, NULL, NULL);
    if (!e) e = draw_one<float>(s, b, "dt_bias", (size_t)c->HV * c->KG, DT_BIAS, NULL, NULL);
    const float *A = (float *)shelf_find(s, "A_log"), *dt = (float *)shelf_find(s, "dt_bias");
    if (!e) e = draw_one<X>(s, b, "q_raw", T * c->H * c->K, ROWS, NULL, NULL);
    if (!e) e = draw_one<X>(s, b, "k_raw", T * c->H * c->K, ROWS, NULL, NULL);
    if (!e) e = draw_one<X>(s, b, "v", T * c->HV * c->V, ROWS, NULL, NULL);
    if (!e) e = draw_one<X>(s, b, "do_", T * c->HV * c->V, ROWS, NULL, NULL);
    if (!e) e = draw_one<X>(s, b, "g_raw", T * c->HV * c->KG, GATE, A, dt);
    if (!e) e = draw_one<X>(s, b, "beta_raw", T * c->HV, BETA, NULL, NULL);
    const char *states[] = { "h0", "dht", "h_in", "h_start", "dh_out", "dh_end" };
    for (int i = 0; i < 6 && !e; i++) e = draw_one<float>(s, b, states[i], state, ROWS, NULL, NULL);
    return e;
}

int time_calls(int (*run)(void *), void *args, int warmup, int iters, struct times *t)
{
    cudaEvent_t *at = (cudaEvent_t *)calloc(iters + 1, sizeof *at);
    float *us = (float *)calloc(iters, sizeof *us);
    int e = at && us ? KCP_OK : KCP_NO_MEMORY;
    for (int i = 0; i <= iters && !e; i++) e = cudaEventCreate(&at[i]) ? KCP_CUDA : KCP_OK;
    for (int i = 0; i < warmup && !e; i++) e = run(args);
    if (!e) cudaEventRecord(at[0]);
    for (int i = 0; i < iters && !e; i++) {
        e = run(args);
        cudaEventRecord(at[i + 1]);
    }
    if (!e && cudaDeviceSynchronize() != cudaSuccess) e = KCP_CUDA;
    for (int i = 0; i < iters && !e; i++) {
        cudaEventElapsedTime(&us[i], at[i], at[i + 1]);
        us[i] *= 1000;
    }
    if (!e) {
        std::sort(us, us + iters);
        *t = { us[iters / 2], us[iters / 10], us[iters - 1 - iters / 10] };
    }
    for (int i = 0; at && i <= iters; i++)
        if (at[i]) cudaEventDestroy(at[i]);
    free(at), free(us);
    return e;
}

static struct { void *a, *b, *c; size_t n; cublasHandle_t blas; } ctl;

static int run_copy(void *)
{
    return cudaMemcpyAsync(ctl.a, ctl.b, ctl.n, cudaMemcpyDeviceToDevice, 0) ? KCP_CUDA : KCP_OK;
}

static int run_product(void *)
{
    const float one = 1, zero = 0;
    const int n = 8192;
    return cublasGemmEx(ctl.blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, ctl.a, CUDA_R_16BF,
                        n, ctl.b, CUDA_R_16BF, n, &zero, ctl.c, CUDA_R_16BF, n,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) ? KCP_CUDA : KCP_OK;
}

// A copy of 2 GiB, bytes read and written counted, and an 8192^3 bf16 product on random
// numbers: every percentage has its control in the same run.
int measure_controls(struct bench *b)
{
    struct shelf s = {};
    struct times t;
    const size_t n = 8192ull * 8192;
    ctl.n = 2ull << 30;
    ctl.a = shelf_add(&s, "a", ctl.n), ctl.b = shelf_add(&s, "b", ctl.n);
    ctl.c = shelf_add(&s, "c", n * 2);
    if (!ctl.a || !ctl.b || !ctl.c) return shelf_free(&s), KCP_NO_MEMORY;
    draw_all<<<(unsigned)(n / 256), 256>>>((__nv_bfloat16 *)ctl.a, n, ROWS, 1, b->call, 0, NULL, NULL);
    draw_all<<<(unsigned)(n / 256), 256>>>((__nv_bfloat16 *)ctl.b, n, ROWS, 2, b->call, 0, NULL, NULL);
    int e = cublasCreate(&ctl.blas) ? KCP_CUDA : KCP_OK;
    if (!e) e = time_calls(run_product, NULL, 3, 10, &t);
    if (!e) b->product = 2.0 * 8192 * 8192 * 8192 / t.median * 1e6;
    if (!e) e = time_calls(run_copy, NULL, 3, 20, &t);
    if (!e) b->copy = 2.0 * ctl.n / t.median * 1e6;
    cublasDestroy(ctl.blas);
    shelf_free(&s);
    return e;
}
