// scan.cuh -- what a variant of the scan gives: its products, and how fast they are.
// Book: chapter 15, "Code: kernels".
// Checked by: tests/15_scan/checks.c.
// Next: tree.cuh, which products there are; program.cuh, what is done with them.
#ifndef KCP_15_SCAN_CUH
#define KCP_15_SCAN_CUH

#include "cuda/host/workspace.cuh"
#include "tree.cuh"

// What auto goes by, in nanoseconds: a walked token, whatever the heads; a launch that
// the next one waits for; a number of a leaf's map, through all levels. Fitted to
// forward passes timed on an H200 (bench/results/, case scan): 256 ns a token of K = 16
// and 32, 315 of 64. They choose between two right results and change neither.
struct pace { float token, launch, number; };
struct scan_kernel {
    const char *name[2];                 // of its rows of paths: in bf16, in fp32
    products *run;
    struct pace pace;
};

// One rank's pass of args, struct kcp_scan, and the bytes that it needs: a status, as
// kcp.h says. The program compiles once a type, whatever the products.
template <class X>
int scan_run(void *args, const struct scan_kernel &by);
template <class X>
size_t scan_work(const void *args, const struct scan_kernel &by);
extern template int scan_run<bf16>(void *, const struct scan_kernel &);
extern template int scan_run<float>(void *, const struct scan_kernel &);
extern template size_t scan_work<bf16>(const void *, const struct scan_kernel &);
extern template size_t scan_work<float>(const void *, const struct scan_kernel &);

#endif
