"""sitecustomize.py -- gives FLA's backend to processes that a test starts.

Book: chapter 19.  Checked by: fla_tests.py, which looks for the backend in their logs.
Next: ../fla_tests.py.

FLA's tests on ranks start their ranks by multiprocessing, where pytest's -p has no effect.
Python runs this file at its start if PYTHONPATH has its folder. KCP_PORT replaces the one
port of all those tests, so that tests can run concurrently. KCP_ONE_GPU=N: the ranks of a
test of at most N ranks share one GPU: NCCL accepts ranks that seem to be on several hosts
(NCCL_HOSTID), and cuda:3 becomes cuda:0.
"""
import os
import sys


def share_a_gpu(torch, rank):
    """Settings of a rank before it connects to the others."""
    os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo")
    real, choose = torch.device, torch.cuda.set_device

    class Kind(type):
        def __instancecheck__(cls, x):
            return isinstance(x, real)

    class Device(metaclass=Kind):
        def __new__(cls, *words, **more):
            device = real(*words, **more)
            return real("cuda", 0) if device.type == "cuda" and device.index else device
    torch.device = Device
    torch.cuda.set_device = lambda device: choose(0)


def wait_on_the_host(dist):
    """NCCL's barrier spins on the GPU, which rank 0 needs for the reference."""
    host, barrier = dist.new_group(backend="gloo"), dist.barrier
    dist.barrier = lambda: barrier(group=host)


if "--multiprocessing-fork" in sys.orig_argv:
    sys.modules.setdefault("transformers", None)      # as in verdicts.py
    if os.environ.get("KCP_FLA") == "0":      # FLA's own kernels, their values alone
        import ahead
        ahead.install(first=True)
    import kcp_torch.fla  # noqa: F401

    import torch
    import torch.distributed as dist
    meet = dist.init_process_group

    def meet_at(*args, **more):
        if "KCP_PORT" in os.environ:
            os.environ["MASTER_PORT"] = os.environ["KCP_PORT"]
        if "KCP_ONE_GPU" not in os.environ:
            return meet(*args, **more)
        share_a_gpu(torch, more["rank"])
        meet(*args, **more)
        wait_on_the_host(dist)
    dist.init_process_group = meet_at
