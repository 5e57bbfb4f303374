"""conftest.py -- runs this folder's tests on one rank, or under torchrun on several.

Book: chapters 08, 13, 14.

    python -m pytest tests/pytorch [--cuda]                                  one rank
    torchrun --nproc_per_node=3 -m pytest -x tests/pytorch [--cuda]          three ranks

Under torchrun, all ranks run the tests that take the fixture `world`, in the same order, and
then rank 0 runs the others. After an error, the other ranks would wait: give -x.
"""
import os

import pytest
import torch
import torch.distributed as dist

import kcp_torch
import oracle


def pytest_addoption(parser):
    parser.addoption("--cuda", action="store_true", help="compute on a GPU")


def own_gpu():
    """Selects a GPU per rank. Ranks that share a GPU get different NCCL host ids."""
    local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if int(os.environ["LOCAL_WORLD_SIZE"]) > gpus:
        os.environ.update(NCCL_HOSTID="rank" + os.environ["RANK"], NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(local % gpus)


def pytest_configure(config):
    if oracle.CUDA and not torch.cuda.is_available():
        pytest.exit("no GPU here: nothing was run", 0)
    config.addinivalue_line("filterwarnings", "ignore::UserWarning")
    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:
        if oracle.CUDA:
            own_gpu()
        dist.init_process_group("nccl" if oracle.CUDA else "gloo")


def pytest_unconfigure():
    if dist.is_initialized():
        kcp_torch.release()
        dist.destroy_process_group()


def pytest_collection_modifyitems(items):
    rank = int(os.environ.get("RANK", 0))
    kinds = [[x for x in items if ("world" in x.fixturenames) == several]
             for several in (True, False)]
    items[:] = (kinds[0] if dist.is_initialized() else []) + (kinds[1] if rank == 0 else [])


def pytest_terminal_summary(terminalreporter):
    error, where = oracle.worst
    terminalreporter.write_line(f"torch {torch.__version__}, {oracle.DEV}: largest error"
                                f" {error:.1e} ({where})")


@pytest.fixture
def world():
    return dist.distributed_c10d._get_default_group()
