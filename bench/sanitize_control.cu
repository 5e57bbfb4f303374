// sanitize_control.cu -- one fault a tool of compute-sanitizer must see, and none.
//
// Book: chapter 17.  Checked by: sanitize.sh, which runs it first.
// Next: sanitize.sh.  sanitize-control memcheck|racecheck|initcheck|synccheck|none
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

static const char *const faults[] = { "none", "memcheck", "racecheck", "initcheck",
                                      "synccheck" };

// Each thread adds its neighbour's number: past the end, unwritten, with no barrier
// between write and read, or a barrier without half a warp.
__global__ void neighbour(int fault, const int *x, int *y)
{
    __shared__ int row[64];
    const int t = threadIdx.x;
    row[t] = x[t];
    if (fault != 2) __syncthreads();
    y[t] = row[63 - t] + (fault == 1 && t == 63 ? x[1 << 20] : 0);
    if (fault == 4 && t % 32 < 16) __syncthreads();
    if (fault == 4 && t < 16) __syncwarp(0xffff0000);
}

int main(int argc, char **argv)
{
    int fault = -1, *x, *y;
    for (int i = 0; argc == 2 && i < 5; i++)
        if (!strcmp(argv[1], faults[i])) fault = i;
    if (fault < 0) {
        fprintf(stderr, "sanitize-control: found '%s', expected a tool or none\n",
                argc == 2 ? argv[1] : "");
        return 2;
    }
    const size_t bytes = 64 * sizeof *x;
    if (cudaMalloc((void **)&x, bytes) || cudaMalloc((void **)&y, bytes))
        return puts("sanitize-control: no device"), 3;
    if (fault != 3) cudaMemset(x, 0, bytes);
    neighbour<<<1, 64>>>(fault, x, y);
    return cudaDeviceSynchronize() != cudaSuccess;
}
