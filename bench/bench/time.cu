// time.cu -- times calls by events on the stream, and measures two controls.
// Book: chapter 18.
//
// The host enqueues all calls and waits once at the end. A layer marks the start of its
// later parts (cuda/host/profile_hooks.cuh), and each mark records an event.
#include "bench.h"
#include "cuda/host/profile_hooks.cuh"
#include <algorithm>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <vector>

// Events of one call: `begin` at its start, part[i] at the start of each later part. A
// call ends where the next call starts.
struct call_events { cudaEvent_t begin, part[3]; };
static thread_local struct call_events *now;
static thread_local unsigned marked;

extern "C" void kcp_part(int part, struct CUstream_st *stream)
{
    if (!now) return;
    cudaEventRecord(now->part[part], stream);
    marked |= 1u << part;
}

static float quantile(std::vector<float> us, double q)
{
    std::sort(us.begin(), us.end());
    return us[(size_t)(q * (double)us.size())];
}

// Computes *t from the events of all calls. If a part has no mark, sets all parts to 0.
static void read_times(const std::vector<struct call_events> &at, struct times *t)
{
    const size_t n = at.size() - 1;
    std::vector<float> us(n);
    *t = {};
    for (int p = FRONT; p < PARTS && marked == 7; p++) {
        for (size_t i = 0; i < n; i++) {
            cudaEventElapsedTime(&us[i], p == FRONT ? at[i].begin : at[i].part[p - 1],
                                 p == MAIN ? at[i + 1].begin : at[i].part[p]);
            us[i] *= 1000;
        }
        t->part[p] = quantile(us, 0.5);
    }
    for (size_t i = 0; i < n; i++) {
        cudaEventElapsedTime(&us[i], at[i].begin, at[i + 1].begin);
        us[i] *= 1000;
    }
    t->median = quantile(us, 0.5);
    t->low = quantile(us, 0.1);
    t->high = quantile(us, 0.9);
}

int time_calls(int (*run)(void *), void *args, struct CUstream_st *stream, int warmup,
               int iters, struct times *t)
{
    std::vector<struct call_events> at(iters + 1);
    int e = KCP_OK;
    for (auto &a : at)
        for (cudaEvent_t *x : { &a.begin, &a.part[0], &a.part[1], &a.part[2] })
            if (cudaEventCreate(x)) e = KCP_CUDA;
    for (int i = 0; i < warmup && !e; i++) e = run(args);
    marked = 0;
    cudaEventRecord(at[0].begin, stream);
    for (int i = 0; i < iters && !e; i++) {
        now = &at[i];
        e = run(args);
        now = NULL;
        cudaEventRecord(at[i + 1].begin, stream);
    }
    if (!e && cudaStreamSynchronize(stream) != cudaSuccess) e = KCP_CUDA;
    if (!e) read_times(at, t);
    for (auto &a : at)
        for (cudaEvent_t x : { a.begin, a.part[0], a.part[1], a.part[2] })
            cudaEventDestroy(x);
    return e;
}

// Calls of one function in a row. Only after a switch may the GPU wait for the host.
enum { TURN = 5 };
static int kind_of(int i) { return i / TURN % 2; }

static double median_of_kind(const std::vector<cudaEvent_t> &at, int kind)
{
    std::vector<float> us;
    for (int i = 0; i + 1 < (int)at.size(); i++) {
        float ms = 0;
        if (kind_of(i) != kind) continue;
        cudaEventElapsedTime(&ms, at[i], at[i + 1]);
        us.push_back(ms * 1000);
    }
    return quantile(us, 0.5);
}

int time_alternately(struct alternated *x, struct CUstream_st *stream, int warmup,
                     int iters)
{
    std::vector<cudaEvent_t> at(2 * iters + 1);
    int e = KCP_OK;
    for (auto &a : at)
        if (cudaEventCreate(&a)) e = KCP_CUDA;
    for (int i = 0; i < warmup && !e; i++) e = x[0].run(x[0].args);
    cudaEventRecord(at[0], stream);
    for (int i = 0; i < 2 * iters && !e; i++) {
        e = x[kind_of(i)].run(x[kind_of(i)].args);
        cudaEventRecord(at[i + 1], stream);
    }
    if (!e && cudaStreamSynchronize(stream)) e = KCP_CUDA;
    for (int kind = 0; kind < 2 && !e; kind++) x[kind].us = median_of_kind(at, kind);
    for (cudaEvent_t a : at) cudaEventDestroy(a);
    return e;
}

struct captured { cudaGraphExec_t exec; struct CUstream_st *stream; };

static int launch(void *args)
{
    const struct captured *c = (const struct captured *)args;
    return cudaGraphLaunch(c->exec, c->stream) ? KCP_CUDA : KCP_OK;
}

// Returns an error if the call cannot be captured, e.g. because it allocates memory.
int time_replays(int (*run)(void *), void *args, struct CUstream_st *stream, int warmup,
                 int iters, struct times *t)
{
    cudaGraph_t graph = NULL;
    struct captured c = { NULL, stream };
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal))
        return KCP_CUDA;
    int e = run(args);
    if (cudaStreamEndCapture(stream, &graph) && !e) e = KCP_CUDA;
    if (!e && cudaGraphInstantiateWithFlags(&c.exec, graph, 0)) e = KCP_CUDA;
    struct alternated x[2] = { { launch, &c, 0 }, { run, args, 0 } };
    if (!e) e = time_alternately(x, stream, warmup, iters);
    t->replay = x[0].us;
    t->replay_beside = x[1].us;
    if (c.exec) cudaGraphExecDestroy(c.exec);
    if (graph) cudaGraphDestroy(graph);
    return e;
}

// ---- on ranks
int slowest(struct runner *x, struct times *t)
{
    struct kcp_comm *comm = x->world;
    const size_t n = sizeof *t;
    std::vector<struct times> all(comm->R);
    if (comm->R == 1) return KCP_OK;
    char *p = (char *)device_add(&x->tensors, "times", n * comm->R);
    if (!p || cudaMemcpy(p + n * comm->r, t, n, cudaMemcpyDefault)) return KCP_CUDA;
    int e = comm->all_gather(comm, p + n * comm->r, p, n, x->call.stream);
    if (!e && cudaStreamSynchronize(x->call.stream)) e = KCP_CUDA;
    if (!e && cudaMemcpy(all.data(), p, n * comm->R, cudaMemcpyDefault)) e = KCP_CUDA;
    for (const struct times &o : all) {
        if (e) break;
        const double *from = (const double *)&o;
        for (size_t i = 0; i < n / sizeof *from; i++)
            ((double *)t)[i] = std::max(((double *)t)[i], from[i]);
    }
    return e;
}

struct gather {
    struct kcp_comm *comm;
    char *all;
    size_t bytes;
    struct CUstream_st *stream;
};

static int run_gather(void *args)
{
    const struct gather *g = (const struct gather *)args;
    const char *mine = g->all + g->comm->r * g->bytes;
    return g->comm->all_gather(g->comm, mine, g->all, g->bytes, g->stream);
}

// Times an in-place all_gather of `bytes` (a map) per rank, a control for exchanges.
int measure_gather(struct runner *x, size_t bytes)
{
    struct times t;
    struct gather g = { x->world, NULL, bytes, x->call.stream };
    if (cudaMalloc((void **)&g.all, bytes * x->world->R)) return KCP_NO_MEMORY;
    int e = time_calls(run_gather, &g, g.stream, x->b->warmup, x->b->iters, &t);
    if (!e) e = slowest(x, &t);
    if (x->world->r == 0) {
        x->b->gather_us = t.median;
        x->b->gather_bytes = bytes;
    }
    cudaFree(g.all);
    return e;
}

// ---- the machine
static __global__ void noise(__nv_bfloat16 *x, unsigned seed)
{
    unsigned z = (blockIdx.x * 256u + threadIdx.x) * 2654435761u + seed;
    z = (z ^ (z >> 15)) * 2246822519u;
    x[blockIdx.x * 256ll + threadIdx.x] = (float)(z >> 8) * 0x1p-23f - 1;
}

static struct { void *a, *b, *c; size_t n; cublasHandle_t blas; } ctl;

static int run_copy(void *)
{
    return cudaMemcpyAsync(ctl.a, ctl.b, ctl.n, cudaMemcpyDeviceToDevice, 0) ? KCP_CUDA
                                                                             : KCP_OK;
}

static int run_product(void *)
{
    const float one = 1, zero = 0;
    const int n = 8192;
    return cublasGemmEx(ctl.blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, ctl.a,
                        CUDA_R_16BF, n, ctl.b, CUDA_R_16BF, n, &zero, ctl.c,
                        CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT)
        ? KCP_CUDA : KCP_OK;
}

// Measures the rates for the lower bounds: bytes/s (read plus written) of a copy of
// 2 GiB, and flop/s of an 8192^3 product of random bf16 numbers.
int measure_controls(struct bench *b)
{
    struct tensor_set s = {};
    struct times t;
    const size_t n = 8192ull * 8192;
    ctl.n = 2ull << 30;
    ctl.a = device_add(&s, "a", ctl.n);
    ctl.b = device_add(&s, "b", ctl.n);
    ctl.c = device_add(&s, "c", n * 2);
    if (!ctl.a || !ctl.b || !ctl.c) {
        device_free(&s);
        return KCP_NO_MEMORY;
    }
    noise<<<(unsigned)(n / 256), 256>>>((__nv_bfloat16 *)ctl.a, 1);
    noise<<<(unsigned)(n / 256), 256>>>((__nv_bfloat16 *)ctl.b, 2);
    int e = cublasCreate(&ctl.blas) ? KCP_CUDA : KCP_OK;
    if (!e) e = time_calls(run_product, NULL, NULL, 3, 10, &t);
    if (!e) b->product = 2.0 * 8192 * 8192 * 8192 / t.median * 1e6;
    if (!e) e = time_calls(run_copy, NULL, NULL, 3, 20, &t);
    if (!e) b->copy = 2.0 * ctl.n / t.median * 1e6;
    cublasDestroy(ctl.blas);
    device_free(&s);
    return e;
}
