// narrow.cu -- converts floats to bf16 and back on a GPU, for messages between ranks.
// Book: chapter 20.  Checked by: tests/20_clusters/narrow_gpu.c.
// Next: ../../comm/narrow.c, which calls it.
//
// Bound: memory, 6 bytes per number. A thread converts four numbers if the addresses
// are aligned, otherwise one. No barrier: threads do not share data.
#include "cuda/tile/device.cuh"
#include "core/narrowing.h"

#include <math.h>
#include <stdlib.h>

enum { THREADS = 256, MOST_BLOCKS = 4096, AT_ONCE = 4 };

static __device__ __forceinline__ uint32_t to_bf16_pair(float x, float y)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *(const uint32_t *)&pair;
}

static __device__ __forceinline__ float from_bf16(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

static __global__ void narrow_floats(uint16_t *to, const float *from, size_t numbers,
                                     size_t fours)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t i = first; i < fours; i += step) {
        const float4 x = ((const float4 *)from)[i];
        const uint2 y = { to_bf16_pair(x.x, x.y), to_bf16_pair(x.z, x.w) };
        ((uint2 *)to)[i] = y;
    }
    for (size_t i = fours * AT_ONCE + first; i < numbers; i += step)
        to[i] = (uint16_t)to_bf16_pair(from[i], 0.0f);
}

static __global__ void widen_floats(float *to, const uint16_t *from, size_t numbers,
                                    size_t fours)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t i = first; i < fours; i += step) {
        const uint2 x = ((const uint2 *)from)[i];
        const float4 y = { from_bf16(x.x & 0xffff), from_bf16(x.x >> 16),
                           from_bf16(x.y & 0xffff), from_bf16(x.y >> 16) };
        ((float4 *)to)[i] = y;
    }
    for (size_t i = fours * AT_ONCE + first; i < numbers; i += step)
        to[i] = from_bf16(from[i]);
}

static size_t fours_of(const void *floats, const void *halves, size_t numbers)
{
    const int aligned = (uintptr_t)floats % 16 == 0 && (uintptr_t)halves % 8 == 0;
    return aligned ? numbers / AT_ONCE : 0;
}

static unsigned blocks_of(size_t numbers, size_t fours)
{
    const size_t work = fours ? fours : numbers;
    const size_t blocks = (work + THREADS - 1) / THREADS;
    return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

static int narrow(uint16_t *to, const void *from, size_t numbers,
                  struct CUstream_st *stream)
{
    const size_t fours = fours_of(from, to, numbers);
    if (numbers)
        narrow_floats<<<blocks_of(numbers, fours), THREADS, 0, stream>>>(
            to, (const float *)from, numbers, fours);
    return launched();
}

static int widen(void *to, const uint16_t *from, size_t numbers,
                 struct CUstream_st *stream)
{
    const size_t fours = fours_of(to, from, numbers);
    if (numbers)
        widen_floats<<<blocks_of(numbers, fours), THREADS, 0, stream>>>(
            (float *)to, from, numbers, fours);
    return launched();
}

// Computes the 2-norm of a state for the host. Called only after a message was dropped
// because of a tolerance.
static int norm(const void *of, size_t numbers, double *norm,
                struct CUstream_st *stream)
{
    float *x = (float *)malloc(sizeof *x * numbers + 1);
    double s = 0;
    int status = x ? KCP_OK : KCP_NO_MEMORY;
    if (x && (cudaMemcpyAsync(x, of, sizeof *x * numbers, cudaMemcpyDeviceToHost,
                              stream) ||
              cudaStreamSynchronize(stream)))
        status = KCP_CUDA;
    for (size_t i = 0; i < numbers && !status; i++) s += (double)x[i] * x[i];
    *norm = sqrt(s);
    free(x);
    return status;
}

const struct narrowing cuda_narrowing = { narrow, widen, norm };
