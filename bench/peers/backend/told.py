"""told.py -- a plugin of pytest: the backend is there, and each test says whose kernels
it ran on.

Book: chapter 19.  Checked by: fla_tests.py.  Next: sitecustomize.py.

FLA logs a choice of backend once a process; here once a test.
"""
import pytest
from fla.ops.backends import BackendRegistry

import kcp_torch.fla  # noqa: F401


@pytest.fixture(autouse=True)
def say_it_again():
    for registry in BackendRegistry._registries.values():
        registry._logged.clear()
    yield
