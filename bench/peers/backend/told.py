"""told.py -- a plugin of pytest: the backend is there, and each test says whose kernels
it ran on.

Book: chapter 19.  Checked by: fla_tests.py.  Next: sitecustomize.py.

FLA logs a choice of backend once a process; here once a test. A test's verdict and all
that it printed go to KCP_TOLD as a line of JSON when it ends, so that a run which is
cut off loses nothing of what had ended.
"""
import json
import os
import sys

import pytest

# FLA's models, which no test here asks for: ten seconds of import in forty processes.
sys.modules.setdefault("transformers", None)
import ahead  # noqa: E402

ahead.install(first=True)                     # what falls back to FLA's own kernels
from fla.ops.backends import BackendRegistry  # noqa: E402

import kcp_torch.fla  # noqa: E402,F401

if "KCP_ONE_GPU" in os.environ:               # what a test asks before it runs
    import torch
    torch.cuda.device_count = lambda: int(os.environ["KCP_ONE_GPU"])


@pytest.fixture(autouse=True)
def say_it_again():
    for registry in BackendRegistry._registries.values():
        registry._logged.clear()
    yield


def pytest_runtest_logreport(report):
    path = os.environ.get("KCP_TOLD")
    if not path or "PYTEST_XDIST_WORKER" in os.environ or \
            (report.when != "call" and report.outcome == "passed"):
        return
    why = report.longrepr
    crash = getattr(why, "reprcrash", None)
    why = crash.message if crash else why[2] if isinstance(why, tuple) else ""
    said = "".join(text for _, text in report.sections) + (report.longreprtext or "")
    with open(path, "a") as f:
        f.write(json.dumps(dict(name=report.nodeid.split("::")[-1], said=said,
                                verdict=report.outcome, why=str(why))) + "\n")
