// device.cu -- what cuda/ offers to ref/: properties of a GPU, operations on maps.
// Book: chapter 08, "Paths".
#include "core/paths.h"
#include "moves.h"
#include "mapops.cuh"
#include <cuda_runtime.h>

// The device can load has_code only if the program contains code for this device.
static __global__ void has_code(void) {}

enum { DEVICES = 64 };

static int query_device(int device, struct kcp_device *d)
{
    int major = 0, minor = 0, sms = 0, smem = 0, kilohertz = 0, bits = 0;
    struct cudaFuncAttributes of_kernel;
    int bad = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    bad |= cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    bad |= cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    bad |= cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                  device);
    if (bad) return KCP_CUDA;
    // The memory transfers two bits per clock and wire. A GPU without these attributes
    // counts as an H200.
    bad |= cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device);
    bad |= cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device);
    const int bandwidth = (int)(2.0 * kilohertz * bits / 8e6 + 0.5);
    const int code = cudaFuncGetAttributes(&of_kernel, has_code) == cudaSuccess;
    if (bad || !code) cudaGetLastError();        // clear the error of these queries
    *d = { 10 * major + minor, sms, smem, code, 0, bandwidth };
    return KCP_OK;
}

// Returns properties of the calling thread's device, and queries each device only once.
static int device_here(struct kcp_device *d)
{
    static struct kcp_device known[DEVICES];
    static int queried[DEVICES], any;
    int device = 0, count = 0;
    const int found = __atomic_load_n(&any, __ATOMIC_RELAXED);
    if (!found && (cudaGetDeviceCount(&count) != cudaSuccess || count < 1)) {
        cudaGetLastError();
        return KCP_NA;
    }
    __atomic_store_n(&any, 1, __ATOMIC_RELAXED);
    if (cudaGetDevice(&device) != cudaSuccess || device >= DEVICES) {
        cudaGetLastError();              // such as after a fork: clear the error
        return KCP_CUDA;
    }
    if (!__atomic_load_n(&queried[device], __ATOMIC_ACQUIRE)) {
        struct kcp_device fresh = {};
        const int status = query_device(device, &fresh);
        if (status) return status;
        known[device] = fresh;           // all threads write the same values
        __atomic_store_n(&queried[device], 1, __ATOMIC_RELEASE);
    }
    *d = known[device];
    return KCP_OK;
}

static const struct gpu offered = { device_here, &cuda_mapops };
__attribute__((constructor)) static void offer(void) { kcp_gpu = &offered; }
