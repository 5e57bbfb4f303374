// scans_sm90.cu -- backward's two scans: of states, and of their gradients in reverse.
// Book: chapter 18c.
#include "cuda/18_hopper/deep_steps.cuh"
#include "reverse.cuh"

// v7_by_head: returns 1 if v5_steps computes this head. Otherwise appends the pairs of
// the sequence's chunks and the query/key head to x.pairs, in one of the head's blocks.
// Their order does not change any result.
static __device__ __forceinline__ int leaves_to_steps(const struct backward_params &x,
                                                      int job, int z, int n)
{
    const int *cn = (const int *)x.a.cn;
    const int heads = x.a.HV / x.a.H, first = cn[z], count = cn[z + 1] - first;
    if (!is_deep(x, z, n)) {
        last_block_waits();
        return 1;
    }
    if (job || n % heads || blockIdx.z || threadIdx.x >= 32) return 0;
    int at = threadIdx.x ? 0 : atomicAdd(x.pairs, count);
    at = __shfl_sync(~0u, at, 0);
    for (int i = threadIdx.x; i < count; i += 32)
        x.pairs[1 + at + i] = (first + i) * x.a.H + n / heads;
    return 0;
}

// The two scans are independent, so both run in one grid. A block computes 64 WGS
// columns (WGS warpgroups) of one head in one job, a scan of one token range. If
// `blocks` is 2, two blocks of 64 columns form a cluster, and each factor is copied
// once for both blocks. Separate blocks would drift apart in time and read the factors
// twice.
//
// Bounds: see states_block and reverse_block, which compute 5.2e6 and 8.4e6 flops per
// chunk and head at K = V = 128. Shared memory: up to 226 KiB, one block per SM. A
// consumer thread has 232 registers: 64 for the state, 32 for the state's bf16
// copy, 32 to 64 for products, and 16 or 32 for operands.
template <int K, int WGS, int kda, int blocks, int by_head>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void backward_scan_kernel(
    const __grid_constant__ struct forward_params f,
    const __grid_constant__ struct backward_params x,
    const __grid_constant__ CUtensorMap dO)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    const int n = blockIdx.x % x.a.HV, v0 = blockIdx.z * 64 * WGS;
    const int job = x.jobs[blockIdx.x / x.a.HV], z = job / SCAN_JOBS;
    griddepcontrol_launch_dependents();
    if (by_head && leaves_to_steps(x, job % SCAN_JOBS, z, n)) return;
    if (job % SCAN_JOBS == SCAN_STATES)
        states_block<K, WGS, kda, blocks>(x, f, z, n, v0, on_chip);
    else
        reverse_block<K, WGS, kda, blocks>(x, f, dO, job % SCAN_JOBS, z, n, v0,
                                           on_chip);
    if (blocks == 1) return;
    cluster_sync();                      // the other block may still write here
}

static struct forward_params forward_of(const struct backward_params *x)
{
    struct forward_params f = {};
    memcpy((void *)&f.a, &x->a, offsetof(struct kcp_backward, do_));
    f.factors = (void *)x->factors;
    f.qk_rows = (void *)x->qk_rows;
    f.count = x->a.NC;
    return f;
}

template <int K, int WGS, int kda, int blocks>
static int launch_scans(const struct backward_params *x, const CUtensorMap *dO)
{
    const size_t states = sizeof(struct states_storage<K, WGS, kda>);
    const size_t reverse = sizeof(struct reverse_storage<K, WGS, kda>);
    const size_t bytes = states > reverse ? states : reverse;
    static_assert(bytes <= 227 * 1024, "one block must fit");
    const struct forward_params f = forward_of(x);
    const dim3 grid(x->njobs * x->a.HV, 1, x->a.V / (64 * WGS));
    if constexpr (kda && K == 128)
        if (x->deep)
            return launch_clusters(backward_scan_kernel<K, WGS, kda, blocks, 1>, bytes,
                                   grid, 128 * WGS + 128, blocks, &f, *x, *dO);
    return launch_clusters(backward_scan_kernel<K, WGS, kda, blocks, 0>, bytes, grid,
                           128 * WGS + 128, blocks, &f, *x, *dO);
}

template <int kda>
static int launch_128(const struct backward_params *x, const CUtensorMap *dO,
                      int columns)
{
    return columns == 64 ? launch_scans<128, 1, kda, 2>(x, dO)
                         : launch_scans<128, 2, kda, 1>(x, dO);
}

// Requires K = V, and the table of paths selects this kernel only if K = V. `columns`
// per block is 64 or 128 (struct kcp_launch).
int backward_scans(const struct backward_params *x, int columns)
{
    const int kda = x->a.KG != 1;
    CUtensorMap dO;
    if (!tensor_map_of_heads(&dO, x->a.do_, x->a.T, x->a.HV, x->a.V, CHUNK))
        return KCP_CUDA;
    if (x->a.K == 64)
        return kda ? launch_scans<64, 1, 1, 1>(x, &dO)
                   : launch_scans<64, 1, 0, 1>(x, &dO);
    return kda ? launch_128<1>(x, &dO, columns) : launch_128<0>(x, &dO, columns);
}

int backward_maps(const struct backward_params *x, const int *own)
{
    struct forward_params f = forward_of(x);
    f.want = x->want;
    f.own = own;
    f.maps = x->maps;
    return forward_maps(&f);
}
