// launch.cuh -- device check and programmatic dependent launch.
// Book: chapter 18.
#ifndef KCP_TILE_LAUNCH_CUH
#define KCP_TILE_LAUNCH_CUH

#include "device.cuh"

// Host: returns 1 if the GPU is of compute capability 9.0, as sm_90a code requires.
static inline int device_is_sm90(void)
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
}

// Programmatic dependent launch: a kernel with the attribute "programmatic stream
// serialization" may start before the previous kernel in the stream has finished.

// Launches kernel(x...) on `stream` with programmatic stream serialization. If
// `cluster` is 2, two neighbouring blocks along z form a cluster.
template <class Kernel, class... Params>
static int launch_on(struct CUstream_st *stream, Kernel kernel, size_t bytes,
                     dim3 blocks, int threads, int cluster, const Params &... x)
{
    cudaLaunchAttribute how[2] = {};
    how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how[0].val.programmaticStreamSerializationAllowed = 1;
    how[1].id = cudaLaunchAttributeClusterDimension;
    how[1].val.clusterDim.x = how[1].val.clusterDim.y = 1;
    how[1].val.clusterDim.z = cluster;
    cudaLaunchConfig_t c = {};
    c.gridDim = blocks;
    c.blockDim = dim3(threads);
    c.dynamicSmemBytes = bytes;
    c.stream = stream;
    c.attrs = how;
    c.numAttrs = cluster;                // 1: only the first attribute
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaLaunchKernelEx(&c, kernel, x...);
    return launched();
}

template <class Kernel, class Params, class... More>
static int launch_clusters(Kernel kernel, size_t bytes, dim3 blocks, int threads,
                           int cluster, const Params *x, More... more)
{
    return launch_on(x->a.stream, kernel, bytes, blocks, threads, cluster, *x, more...);
}

template <class Kernel, class Params, class... More>
static int launch_dependent(Kernel kernel, size_t bytes, dim3 blocks, int threads,
                            const Params *x, More... more)
{
    return launch_clusters(kernel, bytes, blocks, threads, 1, x, more...);
}

// griddepcontrol.launch_dependents, called by any thread: the next kernel's blocks may
// start as soon as every block of this kernel has called this function or has exited.
// The call does not make this kernel's writes visible.
static __device__ __forceinline__ void griddepcontrol_launch_dependents(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    jitter(1, 15);                   // the next kernel must not read early
}

// griddepcontrol.wait, called by each thread that reads results of earlier kernels:
// waits until the previous kernel in the stream has finished and all writes of that
// kernel are visible. Kernels before that kernel have finished too, because at least
// one block of each kernel that launch_clusters launches calls this function.
static __device__ __forceinline__ void griddepcontrol_wait(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    jitter();
}

#ifdef KCP_OMIT
#define griddepcontrol_wait OMIT(griddepcontrol_wait)
#endif

#endif
