/* gpu.c -- a GPU for the judge: memory and maps by the stand-in for CUDA.
 *
 * Book: chapter 20.  Checked by: ranks.c, which leaves out a call.
 * Next: ../../judge/exchange_trials.c, whose exchanges use it. */
#include "stand_in.h"

#include "cuda/host/memory.h"
#include "ref.h"

/* ---- maps that are applied on a stream */
struct launch {
    int what, HV, K, V, backward, flag, v0, Vb, ld_in, ld_out;
    const void *a, *b;
    void *out;
    size_t pitch, from_pitch, width, rows;
};

static void run_launch(void *arg)
{
    struct launch *l = arg;
    if (l->what == 0)
        ref_mapops.apply(l->HV, l->K, l->V, l->a, l->backward, l->flag, l->v0, l->Vb,
                         l->b, l->ld_in, l->out, l->ld_out, NULL);
    else if (l->what == 1)
        ref_mapops.compose(l->HV, l->K, l->V, l->b, l->a, l->backward, l->flag, l->out,
                           NULL);
    else
        ref_mapops.copy(l->out, l->pitch, l->a, l->from_pitch, l->width, l->rows, NULL);
    free(l);
}

static int launch(struct CUstream_st *stream, struct launch how)
{
    struct launch *l = malloc(sizeof *l);
    if (!l)
        return KCP_NO_MEMORY;
    *l = how;
    return cudaLaunchHostFunc(stream, run_launch, l) ? KCP_CUDA : KCP_OK;
}

static int apply(int HV, int K, int V, const void *map, int backward, int first, int v0,
                 int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *stream)
{
    return launch(stream, (struct launch){ 0, HV, K, V, backward, first, v0, Vb, ld_in,
                                           ld_out, map, S_in, S_out, 0, 0, 0, 0 });
}

static int compose(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *stream)
{
    return launch(stream, (struct launch){ 1, HV, K, V, backward, a_first, 0, 0, 0, 0,
                                           a, b, out, 0, 0, 0, 0 });
}

static int copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t rows, struct CUstream_st *stream)
{
    return launch(stream, (struct launch){ 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, from, NULL, to,
                                           to_pitch, from_pitch, width, rows });
}

static const struct kcp_mapops on_stream = { .name = "stand-in", .elem = sizeof(double),
    .apply = apply, .compose = compose, .copy = copy };

/* ---- memory */
static void *gpu_alloc(size_t n) { return blocks_alloc(n, 1); }

static int gpu_copy(void *to, const void *from, size_t n)
{
    const cudaError_t err = cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, NULL);
    return err || cudaStreamSynchronize(NULL) ? KCP_CUDA : KCP_OK;
}

static int gpu_sync(void) { return cudaDeviceSynchronize() ? KCP_CUDA : KCP_OK; }
static int gpu_select(int i) { return cudaSetDevice(i) ? KCP_BAD : KCP_OK; }

static const struct memory memory = { .name = "stand-in", .alloc = gpu_alloc,
    .free = blocks_release, .copy = gpu_copy, .sync = gpu_sync, .mapops = &on_stream,
    .threads_run = kcp_threads_run, .gpu = gpu_select };

const struct memory *device_memory(void) { return &memory; }

/* Exchanges draw no inputs, so these stubs must not be called. */
void family_draw(struct tensor_set *b, const struct kcase *k) { abort(); }
void spike_draw(struct tensor_set *b, const struct kcase *k) { abort(); }
