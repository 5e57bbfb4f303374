// rows.cuh -- copies arrays between a call and the call that runs for it.
// Book: chapter 18.
#pragma once

#include "cuda/tile/typed.cuh"
#include "checked.h"
#include <string.h>

// An array as rows: [outer][heads][a][b], b contiguous. The columns of v, o and of the
// states are cut into parts: along a (states [V,K]) or along b. Other axes are padded.
enum cut_axis { CUT_NONE, CUT_A, CUT_B };
struct rows {
    int64_t outer;
    int heads, a, b;
    enum cut_axis cut;
};

// Returns the rows of a field. Its shape is an optional T or N, heads, and at most two
// more sizes. States [K,V] are [V,K] if the call says so.
static inline struct rows rows_of(const struct kcp_call *c, const struct kcp_field *f)
{
    struct rows x = { 1, 1, 1, 1, CUT_NONE };
    int sizes = 0;
    for (const char *s = f->shape; *s; s += strspn(s, " ")) {
        const size_t len = strcspn(s, " ");
        const int64_t n = shape_letter(c, s, len);
        if (*s == 'T' || *s == 'N') x.outer = n;
        else if (*s == 'H') x.heads = (int)n;
        else {
            x.a = x.b;
            x.b = (int)n;
            if (*s == 'V') x.cut = CUT_B;
            sizes++;
        }
        s += len;
    }
    if (sizes == 2 && c->layout == KCP_VK) {
        const int K = x.a;
        x.a = x.b;
        x.b = K;
        x.cut = CUT_A;
    }
    return x;
}

static inline int64_t numbers_of(const struct rows *x)
{
    return x->outer * x->heads * x->a * x->b;
}

// Returns 1 if the inner call can read the caller's array itself: cutting the outermost
// axis of a head into parts moves no number.
static inline int is_view(const struct rows *x, const struct rows *inner)
{
    const int parts = inner->heads / x->heads;
    if (parts == 1) return x->a == inner->a && x->b == inner->b;
    if (x->cut == CUT_A) return x->b == inner->b && x->a == parts * inner->a;
    return x->cut == CUT_B && x->a == 1 && inner->a == 1 && x->b == parts * inner->b;
}

// Copies units of sizeof(U) bytes, `b` of x and y counted in units, to the inner call's
// array y (out = 0), where units that x does not have become `fill`, or back to x
// (out = 1). If half = 1, numbers of x are f16 and numbers of y are bf16. A block has
// blockDim.y rows of y. Bound: memory.
template <class U, int out, int half>
static __global__ void copy_rows(U *__restrict__ x, U *__restrict__ y,
                                 struct rows of_x, struct rows of_y, U fill)
{
    constexpr enum kcp_type to = out ? KCP_TYPE_F16 : KCP_TYPE_BF16;
    const int64_t row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    const int in_outer = of_y.heads * of_y.a, parts = of_y.heads / of_x.heads;
    const int64_t o = row / in_outer;
    if (o >= of_y.outer) return;
    const int at = (int)(row - o * in_outer), n = at / of_y.a, part = n % parts;
    const int a = at % of_y.a + (of_x.cut == CUT_A ? part * of_y.a : 0);
    const int first = of_x.cut == CUT_B ? part * of_y.b : 0;
    x += ((o * of_x.heads + n / parts) * of_x.a + a) * of_x.b + first;
    y += row * of_y.b;
#pragma unroll 4
    for (int b = threadIdx.x; b < of_y.b; b += blockDim.x) {
        if (a < of_x.a && first + b < of_x.b) {
            const U unit = out ? y[b] : x[b];
            (out ? x : y)[b] = half ? converted<to>(unit) : unit;
        } else if (!out) {
            y[b] = fill;
        }
    }
}

// Gradients of inputs that the parts share: x is the sum over the parts, in order, in
// fp32. Parts of bf16 were rounded before.
static __global__ void sum_parts(void *x, const void *y, enum kcp_type type,
                                 struct rows of_x, struct rows of_y)
{
    const int64_t row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    const int in_outer = of_x.heads * of_x.a, parts = of_y.heads / of_x.heads;
    const int64_t o = row / in_outer;
    if (o >= of_x.outer) return;
    const int at = (int)(row - o * in_outer), n = at / of_x.a, a = at % of_x.a;
    const int64_t first = ((o * of_y.heads + n * parts) * of_y.a + a) * of_y.b;
    for (int b = threadIdx.x; b < of_x.b; b += blockDim.x) {
        float sum = 0.0f;
        for (int j = 0; j < parts; j++) {
            const int64_t at = first + (int64_t)j * of_y.a * of_y.b + b;
            sum += float_of_bits(load_bits(y, at, type), type);
        }
        store_number(x, row * of_x.b + b, type, sum);
    }
}

// Threads of a block: enough along b for a row, 256 in all.
static inline dim3 threads_for(int b)
{
    int along = 1;
    while (along < b && along < 32) along *= 2;
    return dim3(along, 256 / along);
}

template <class U, int out, int half>
static void launch_copy(void *x, void *y, struct rows of_x, struct rows of_y,
                        size_t bytes, uint4 fill, struct CUstream_st *stream)
{
    of_x.b = (int)(of_x.b * bytes / sizeof(U));
    of_y.b = (int)(of_y.b * bytes / sizeof(U));
    const dim3 threads = threads_for(of_y.b);
    const int64_t rows = of_y.outer * of_y.heads * of_y.a;
    const int64_t blocks = (rows + threads.y - 1) / threads.y;
    U unit;
    memcpy(&unit, &fill, sizeof unit);
    if (blocks)
        copy_rows<U, out, half><<<(unsigned)blocks, threads, 0, stream>>>(
            (U *)x, (U *)y, of_x, of_y, unit);
}

// Copies numbers of `bytes` bytes, in the largest units that fit rows and pointers.
// `fill` is the number that pads the inner call's rows, repeated in 16 bytes. Arrays of
// equal shapes have one long row per outer index.
template <int out, int half>
static void copy_numbers(void *x, void *y, struct rows of_x, struct rows of_y,
                         size_t bytes, uint4 fill, struct CUstream_st *stream)
{
    if (is_view(&of_x, &of_y) && of_x.heads == of_y.heads) {
        of_x.b *= of_x.heads * of_x.a;
        of_x.heads = of_x.a = 1;
        of_x.cut = CUT_NONE;
        of_y = of_x;
    }
    const uintptr_t any = (uintptr_t)x | (uintptr_t)y | of_x.b * bytes | of_y.b * bytes;
    if (any % 16 == 0)
        launch_copy<uint4, out, half>(x, y, of_x, of_y, bytes, fill, stream);
    else if (any % 8 == 0)
        launch_copy<uint2, out, half>(x, y, of_x, of_y, bytes, fill, stream);
    else if (any % 4 == 0)
        launch_copy<uint32_t, out, half>(x, y, of_x, of_y, bytes, fill, stream);
    else
        launch_copy<uint16_t, out, half>(x, y, of_x, of_y, bytes, fill, stream);
}

static inline void sum_numbers(void *x, const void *y, enum kcp_type type,
                               const struct rows &of_x, const struct rows &of_y,
                               struct CUstream_st *stream)
{
    const dim3 threads = threads_for(of_x.b);
    const int64_t rows = of_x.outer * of_x.heads * of_x.a;
    const int64_t blocks = (rows + threads.y - 1) / threads.y;
    if (blocks)
        sum_parts<<<(unsigned)blocks, threads, 0, stream>>>(x, y, type, of_x, of_y);
}
