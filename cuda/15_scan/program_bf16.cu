// program_bf16.cu -- the program of chapter 15 for arrays of bf16, compiled separately.
// Book: chapter 15, "Code: kernels".
#include "program.cuh"

template int scan_run<bf16>(void *args, const struct scan_kernel &by);
template size_t scan_work<bf16>(const void *args, const struct scan_kernel &by);
