"""sitecustomize.py -- gives FLA's backend to processes that a test starts.

Book: chapter 19.  Checked by: ../fla_tests.py, which looks for the backend in their
logs.  Next: ../fla_tests.py.

FLA's tests on ranks start ranks by multiprocessing, where pytest's -p has no effect. Python
runs this file at start if this folder is in PYTHONPATH. KCP_PORT replaces the port that all
these tests share, so that tests can run concurrently.
"""
import os
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    sys.modules.setdefault("transformers", None)      # as in verdicts.py
    import kcp_torch.fla  # noqa: F401

    import torch.distributed as dist
    connect = dist.init_process_group

    def connect_at(*args, **more):
        os.environ["MASTER_PORT"] = os.environ["KCP_PORT"]
        connect(*args, **more)
    dist.init_process_group = connect_at
