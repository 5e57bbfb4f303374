"""sitecustomize.py -- gives FLA's backend to processes that a test starts.

Book: chapter 19.  Checked by: verdicts.py, which looks for the backend in their logs.
Next: ../rounded_keys.py.

FLA's tests on ranks start ranks by multiprocessing, where pytest's -p has no effect. Python
runs this file at start if this folder is in PYTHONPATH.
"""
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    sys.modules.setdefault("transformers", None)      # as in verdicts.py
    import kcp_torch.fla  # noqa: F401
