"""sitecustomize.py -- installs kcp_torch's backend in processes that FLA's tests start.

Book: chapter 19.

FLA's tests start ranks by multiprocessing. In these processes pytest's option -p has no effect,
but Python runs this file when it starts, if this folder is in PYTHONPATH.
"""
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    sys.modules.setdefault("transformers", None)      # as in verdicts.py
    import kcp_torch.fla  # noqa: F401
