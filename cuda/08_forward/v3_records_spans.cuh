// v3_records_spans.cuh -- (I + L)^-1 by four warps: a span each, then pairs of spans.
// Book: chapter 17, "Code: kernels".
// Checked by: tests/08_forward.c.
// Next: v3_records_gdn.cuh.
#ifndef KCP_V3_RECORDS_SPANS_CUH
#define KCP_V3_RECORDS_SPANS_CUH

#include "v3_records_inverse.cuh"

// A chunk's squares of 16: -L below the diagonal and the diagonal's inverses as
// fragments (bf16 and its rest), L's diagonal in fp32; of A, later, square (3, 2).
struct squares {
    uint4 N[6][2][32], A[SPANS][2][32], A32[2][32];
    float square[SPANS][SPAN][SPAN + 4];
};

// Where square (I, J), J < I, lies among six.
static __device__ __forceinline__ int below(int I, int J)
{
    return I * (I - 1) / 2 + J;
}

// The inverse of I + L of span I, by its warp.
static __device__ __forceinline__ void invert_span(int I, struct squares &s)
{
    __syncwarp();
    invert_square(s.square[I], threadIdx.x % 16);
    put(s.A[I], square_as_a(s.square[I]));
}

// Where squares of A go: the call's block and the record.
struct squares_to {
    const struct records &x;
    const struct span &z;
    int n;
    const float *beta;
    unsigned char *Ab;
};

static __device__ __forceinline__ void square_out(const struct squares_to &to, int I,
                                                  int J, const float (*d)[4])
{
    square_out(to.x, to.z, to.n, I, J, d, to.beta, to.Ab);
}

// All in transposes, so that what a product leaves in registers, packed, is the A of
// the next. Warp J begins with A_JJ^T; warps 0 and 2 make A_(J+1)J^T = A_JJ^T N^T A^T.
// A_32 = A_33 (N_32 A_22), untransposed, is what the lower rows want of warp 2. Then
// warps 0 and 1 have a column of the lower left quarter: X_M = sum_p A_pJ^T N_Mp^T,
//     A_2J^T = X_2 A_22^T,  A_3J^T = X_2 A_32^T + X_3 A_33^T.
// Every warp of the block calls it: there is a barrier inside.
static __device__ __forceinline__ void invert_pairs(int J, const struct squares_to &to,
                                                    struct squares &s)
{
    struct pieces A0, A1;
    float d[2][4], X[2][2][4] = {};
    diagonal_square(d, J, s);
    square_out(to, J, J, d);
    A0 = as_a(d);
    if (J % 2 == 0) {
        float y[2][4] = {}, w[2][4] = {};
        add_product(y, A0, s.N[below(J + 1, J)]);
        const struct pieces of_y = as_a(y);
        add_product(w, of_y, s.A[J + 1]);
        square_out(to, J + 1, J, w);
        A1 = as_a(w);
        if (J == 2) {
            float u[2][4] = {};
            put(s.A32, of_y);            // y^T as B, for this warp alone
            __syncwarp();
            add_product(u, square_as_a(s.square[3]), s.A32);
            __syncwarp();
            put(s.A32, as_a(u));
        }
    }
    if (J < 2) {
        #pragma unroll
        for (int M = 0; M < 2; M++) add_product(X[M], A0, s.N[below(M + 2, J)]);
        if (J == 0)
            #pragma unroll
            for (int M = 0; M < 2; M++) add_product(X[M], A1, s.N[below(M + 2, 1)]);
    }
    __syncthreads();
    if (J >= 2) return;
    const struct pieces X2 = as_a(X[0]), X3 = as_a(X[1]);
    float u[2][4] = {}, w[2][4] = {};
    add_product(u, X2, s.A[2]);
    add_product(w, X2, s.A32);
    add_product(w, X3, s.A[3]);
    square_out(to, 2, J, u);
    square_out(to, 3, J, w);
}

#endif
