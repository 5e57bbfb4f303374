// v1_copy.cu -- saves a rank's first state, and restores all initial states, by copies.
// Book: chapter 12, "Code: kernels".
#include "cuda/tile/device.cuh"

// Bound: memory. Each copied state is read and written once. States are fp32 even if
// the storage type is bf16.
static int h0_v1_copy_run(void *args)
{
    const struct kcp_h0 *a = (const struct kcp_h0 *)args;
    const size_t state = sizeof(float) * a->HV * a->K * a->V;
    const cudaMemcpyKind kind = cudaMemcpyDeviceToDevice;

    if (a->NS == 0) return KCP_OK;
    if (a->pass == KCP_FORWARD) {
        cudaMemcpyAsync(a->h_kept, a->h_in, state, kind, a->stream);
        return launched();
    }
    char *others = (char *)a->h_back + state;
    cudaMemcpyAsync(a->h_back, a->h_kept_in, state, kind, a->stream);
    if (a->NS > 1 && a->h_start)
        cudaMemcpyAsync(others, (const char *)a->h_start + state, (a->NS - 1) * state,
                        kind, a->stream);
    if (a->NS > 1 && !a->h_start)
        cudaMemsetAsync(others, 0, (a->NS - 1) * state, a->stream);
    return launched();
}

KCP_VARIANT_PAIR(h0_v1_copy, "12_h0", "v1_copy", "copies on the stream", "any shape",
    h0_v1_copy_run);
