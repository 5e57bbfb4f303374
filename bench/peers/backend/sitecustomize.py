"""sitecustomize.py -- processes that a test spawns get FLA's backend too.

Book: chapter 19.  Checked by: fla_tests.py, which wants the backend's name in their
logs.  Next: ../fla_tests.py.

FLA's tests over ranks start their ranks by multiprocessing; pytest's -p reaches its own
process alone. Python reads this file at its start where its folder is in PYTHONPATH.
All of those tests meet at one port; those that run side by side meet at KCP_PORT.
"""
import os
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    sys.modules.setdefault("transformers", None)      # as in told.py
    if os.environ.get("KCP_FLA") == "0":      # FLA's own kernels, their values alone
        import ahead
        ahead.install(first=True)
    import kcp_torch.fla  # noqa: F401

    import torch.distributed as dist
    meet = dist.init_process_group

    def meet_at(*args, **more):
        if "KCP_PORT" in os.environ:
            os.environ["MASTER_PORT"] = os.environ["KCP_PORT"]
        return meet(*args, **more)
    dist.init_process_group = meet_at
