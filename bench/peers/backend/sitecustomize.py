"""sitecustomize.py -- processes that a test spawns get FLA's backend too.

Book: chapter 19.  Checked by: fla_tests.py, which wants the backend's name in their
logs.  Next: ../fla_tests.py.

FLA's tests over ranks start their ranks by multiprocessing; pytest's -p reaches its own
process alone. Python reads this file at its start where its folder is in PYTHONPATH.
"""
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    import kcp_torch.fla  # noqa: F401
