// scans_sm90.cu -- backward's two scans: states walk forward, their gradients back.
// Book: chapter 18, "Backward".
// Checked by: tests/13_backward/checks.c.
// Next: ../v4_factors_sm90.cu.
#include "reverse.cuh"

// Neither scan waits for the other, so both are in one grid, and so are strips. A block
// has a job's columns of a head; blocks of one job and head are neighbours, since they
// read the same factors.
//
// Bound: that of states_block and reverse_block. Flops: 5.2e6 and 8.4e6 a chunk and
// head at K = V = 128. Shared memory: up to 226 KiB, one block an SM. Registers, of 232
// a consumer thread: the state 64, rounded 32, products 32 to 64, operands 16 or 32.
template <int K, int WGS, int kda>
static __global__ __launch_bounds__(128 * WGS + 128, 1) void backward_scan_kernel(
    const __grid_constant__ struct forward_params f,
    const __grid_constant__ struct backward_params x,
    const __grid_constant__ CUtensorMap dO)
{
    extern __shared__ __align__(1024) unsigned char on_chip[];
    const unsigned parts = x.a.V / (64 * WGS), block = blockIdx.x / parts;
    const int n = block % x.a.HV, v0 = blockIdx.x % parts * 64 * WGS;
    const int job = x.jobs[block / x.a.HV], z = job / SCAN_JOBS;
    griddepcontrol_launch_dependents();
    if (job % SCAN_JOBS == SCAN_STATES)
        states_block<K, WGS, kda>(x, f, z, n, v0, on_chip);
    else reverse_block<K, WGS, kda>(x, f, dO, job % SCAN_JOBS, z, n, v0, on_chip);
}

// The call as forward's kernels read it.
static struct forward_params forward_of(const struct backward_params *x)
{
    struct forward_params f = {};
    memcpy((void *)&f.a, &x->a, offsetof(struct kcp_backward, do_));
    f.factors = (void *)x->factors;
    f.qk_rows = (void *)x->qk_rows;
    f.count = x->a.NC;
    return f;
}

template <int K, int WGS, int kda>
static int launch_scans(const struct backward_params *x, const CUtensorMap *dO)
{
    const size_t states = sizeof(struct states_storage<K, WGS, kda>);
    const size_t reverse = sizeof(struct reverse_storage<K, WGS, kda>);
    const size_t bytes = states > reverse ? states : reverse;
    static_assert(bytes <= 227 * 1024, "on chip");
    const struct forward_params f = forward_of(x);
    return launch_dependent(backward_scan_kernel<K, WGS, kda>, bytes,
                            dim3(x->njobs * x->a.HV * (x->a.V / (64 * WGS))),
                            128 * WGS + 128, &f, *x, *dO);
}

// Blocks of 64 columns while there is an SM for each, and with a gate a channel for
// twice as many: two such blocks read so much that they share memory's rate. Then of
// 128. Strips are cut so that blocks of 64 are as many as SMs, or twice as many.
template <int K, int kda>
static int launch_both(const struct backward_params *x, const CUtensorMap *dO,
                       int processors, int strips)
{
    const int64_t blocks = (int64_t)x->a.HV * x->njobs * x->a.V / 64;
    const int narrow = strips || x->a.V == 64 || (1 + kda) * blocks <= processors;
    return narrow ? launch_scans<K, 1, kda>(x, dO) : launch_scans<K, 2, kda>(x, dO);
}

int backward_scans(const struct backward_params *x, int processors, int strips)
{
    CUtensorMap dO;
    if (!tensor_map_of_heads(&dO, x->a.do_, x->a.T, x->a.HV, x->a.V, CHUNK))
        return KCP_CUDA;
    if (x->a.KG == 1)
        return x->a.K == 128 ? launch_both<128, 0>(x, &dO, processors, strips)
                             : launch_both<64, 0>(x, &dO, processors, strips);
    return x->a.K == 128 ? launch_both<128, 1>(x, &dO, processors, strips)
                         : launch_both<64, 1>(x, &dO, processors, strips);
}

int backward_maps(const struct backward_params *x, const int *own)
{
    struct forward_params f = forward_of(x);
    f.want = x->want;
    f.own = own;
    f.maps = x->maps;
    return forward_maps(&f);
}
