// hops.cu -- kernels of the exchange algorithm `chain`, in a separate object file.
// Book: chapter 20, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/mapops.cuh"
#include "cuda/tile/state_io.cuh"
#include "hop.cuh"

const struct kcp_hops cuda_hops = { &cuda_mapops, hop, hop_blocks };
