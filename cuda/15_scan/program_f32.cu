// program_f32.cu -- the program of chapter 15 for arrays of float, compiled separately.
// Book: chapter 15, "Code: kernels".
#include "program.cuh"

template int scan_run<float>(void *args, const struct scan_kernel &by);
template size_t scan_work<float>(const void *args, const struct scan_kernel &by);
