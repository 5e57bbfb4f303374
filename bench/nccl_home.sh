# nccl_home.sh -- adds the NCCL and CUDA libraries of Python packages to LD_LIBRARY_PATH.
# Book: chapter 20.
for home in $(python3 -c '
import sysconfig, os
for k in ("purelib", "platlib"):
    for d in ("nccl", "cu13", "cuda_runtime"):
        p = os.path.join(sysconfig.get_paths()[k], "nvidia", d, "lib")
        if os.path.isdir(p): print(p)' 2>/dev/null); do
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$home
done
export LD_LIBRARY_PATH
