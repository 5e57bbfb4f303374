"""torch_forks.py -- imports PyTorch once, and is then each program that it is asked for.

Book: chapters 08, 13, 14.  Used by: torch.sh.  Next: torch_check.py.

An import of PyTorch takes longer than most that is asked of it here. So one process
imports it, nothing of kcp_torch, and forks: every program, and every rank of one, is a
process of its own, with its own environment, words and exit.

On stdin stands a number, and then so many lines: how many ranks, a port (0: no ranks),
a file for stdout, one for stderr, NAME=value as often as wanted, the program, its words.
Its status goes to stdout. The first rank that fails ends the others, as torchrun does.
"""
import os
import signal
import sys

import torch                                # noqa: F401, for the programs
import torch.distributed                    # noqa: F401
import torch.nn.parallel                    # noqa: F401

running = {}


def end(*_):
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    os._exit(143)


def become(rank, n, port, out, err, words):
    """In the child: streams and environment; the program's name is what comes back."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for fd, to in ((nothing, 0), (os.open(out, how, 0o600), 1),
                   (os.open(err, how, 0o600), 2)):
        os.dup2(fd, to)
    while "=" in words[0]:
        name, value = words.pop(0).split("=", 1)
        os.environ[name] = value
    if port != "0":
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n),
                          LOCAL_WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=port)
    sys.argv[:] = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    return words[0]


def ended():
    """The status of the first rank that failed, or 0."""
    first = 0
    while running:
        pid, status = os.wait()
        running.pop(pid, None)
        status = os.waitstatus_to_exitcode(status)
        if status and not first:
            first = status if status > 0 else 128 - status
            for other in running:
                os.kill(other, signal.SIGTERM)
    return first


def serve():
    """Forks as it is asked, until nobody asks: None. In a child: its program."""
    asked = open(0, closefd=False)
    for count in asked:
        n, port, out, err, *words = [asked.readline()[:-1] for _ in range(int(count))]
        for path in (out, err):
            open(path, "w").close()
        for rank in range(int(n)):
            pid = os.fork()
            if not pid:
                running.clear()
                return become(rank, int(n), port, out, err, words)
            running[pid] = rank
        os.write(1, f"{ended()}\n".encode())
    return None


signal.signal(signal.SIGTERM, end)
program = serve()
if program:
    __file__ = program
    with open(program, "rb") as text:
        exec(compile(text.read(), program, "exec"))
