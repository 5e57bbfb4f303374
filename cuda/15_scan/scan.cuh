// scan.cuh -- the interface of the scan's variants: their products and cost model.
// Book: chapter 15, "Code: kernels".
#pragma once

#include "cuda/host/workspace.cuh"
#include "tree.cuh"

// The cost model of KCP_AUTO, in nanoseconds. `token` is the time per token of the
// sequential scan, for any number of heads. `launch` is the time per dependent launch.
// `number` is the time per element of one token's map, for all levels of the map tree.
// The constants were fitted to forward passes on an H200 (bench/results/, case scan):
// 256 ns per token at K = 16 and 32, 315 ns at 64. Sequential and parallel results
// agree up to rounding.
struct pace { float token, launch, number; };
struct scan_kernel {
    const char *name[2];                 // for bf16 and fp32, in the table of paths
    products *run;
    struct pace pace;
};

// scan_run runs one rank's pass with the arguments `args` (struct kcp_scan) and returns
// a status of kcp.h. `scan_work` returns the bytes of workspace for scan_run. All
// variants share one object with both.
template <class X>
int scan_run(void *args, const struct scan_kernel &by);
template <class X>
size_t scan_work(const void *args, const struct scan_kernel &by);
extern template int scan_run<bf16>(void *, const struct scan_kernel &);
extern template int scan_run<float>(void *, const struct scan_kernel &);
extern template size_t scan_work<bf16>(const void *, const struct scan_kernel &);
extern template size_t scan_work<float>(const void *, const struct scan_kernel &);
