"""verdicts.py -- a pytest plugin: installs the backend, and logs which kernels a test ran on.

Book: chapter 19.  Checked by: ../fla_tests.py.  Next: sitecustomize.py.

FLA logs the chosen backend once per process; with this plugin, once per test. At the end of
each test the plugin appends the verdict and the output as a line of JSON to the file
KCP_VERDICTS, so that an interrupted run keeps the results of finished tests.
"""
import json
import os
import sys

import pytest

# Importing FLA's models, which no test uses, would take ten seconds per process.
sys.modules.setdefault("transformers", None)
import ahead  # noqa: E402

ahead.install(first=True)                     # for calls that fall back to FLA's kernels
from fla.ops.backends import BackendRegistry  # noqa: E402

import kcp_torch.fla  # noqa: E402,F401


@pytest.fixture(autouse=True)
def log_again():
    for registry in BackendRegistry._registries.values():
        registry._logged.clear()
    yield


def pytest_runtest_logreport(report):
    path = os.environ.get("KCP_VERDICTS")
    if not path or "PYTEST_XDIST_WORKER" in os.environ or \
            (report.when != "call" and report.outcome == "passed"):
        return
    why = report.longrepr
    crash = getattr(why, "reprcrash", None)
    why = crash.message if crash else why[2] if isinstance(why, tuple) else ""
    output = "".join(text for _, text in report.sections) + (report.longreprtext or "")
    with open(path, "a") as f:
        f.write(json.dumps(dict(name=report.nodeid.split("::")[-1], output=output,
                                verdict=report.outcome, why=str(why))) + "\n")
