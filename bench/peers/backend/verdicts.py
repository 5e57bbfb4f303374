"""verdicts.py -- pytest plugin that installs kcp_torch's backend and counts passed tests.

Book: chapter 19.

FLA logs the chosen backend once per process. With this plugin, FLA logs the backend once per test.
"""
import re
import sys

import pytest

# Without this line, each process would spend 10 s on importing FLA's models, unused here.
sys.modules.setdefault("transformers", None)
import ahead  # noqa: E402

ahead.install(first=True)                     # for calls that fall back to FLA's kernels
from fla.ops.backends import BackendRegistry  # noqa: E402

import kcp_torch.fla  # noqa: E402,F401

passed_by = {"kcp_torch": 0, "other kernels": 0}


@pytest.fixture(autouse=True)
def log_again():
    for registry in BackendRegistry._registries.values():
        registry._logged.clear()
    yield


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        output = "".join(text for _, text in report.sections)
        ours = re.search(r"-> kcp(?! rejected)", output)
        passed_by["kcp_torch" if ours else "other kernels"] += 1


def pytest_terminal_summary(terminalreporter):
    words = ", ".join(f"{n} by {name}" for name, n in passed_by.items())
    terminalreporter.write_line("passed: " + words)
