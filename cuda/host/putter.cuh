// putter.cuh -- sends small integer arrays to the device, up to 256 numbers per launch.
// Book: chapters 08 and 14.
//
// The numbers are kernel arguments, so a CUDA graph can replay the launches.
#pragma once

#include "cuda/tile/device.cuh"

struct marks { int at, count, x[256]; };

static __global__ void put_marks(int *to, const struct marks m)
{
    if (threadIdx.x < m.count) to[m.at + threadIdx.x] = m.x[threadIdx.x];
}

struct putter {
    int *to;
    struct marks m;
    struct CUstream_st *stream;
};

static inline void put_rest(struct putter *x)
{
    if (x->m.count) put_marks<<<1, 256, 0, x->stream>>>(x->to, x->m);
    x->m.at += x->m.count;
    x->m.count = 0;
}

static inline void put(struct putter *x, int value)
{
    if (x->m.count == 256) put_rest(x);
    x->m.x[x->m.count++] = value;
}
