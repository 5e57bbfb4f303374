"""page.py -- runs the Python of a page of the book, on one rank or under torchrun.

Book: models.md.

Usage: page.py PAGE.md: runs each block ```python in order, in one namespace. An error names
the block's line in the page. Without a GPU a substitute for Triton's driver lets FLA be
imported.
"""
import os
import re
import sys
import traceback

import torch
import torch.distributed as dist


class Driver:
    def __getattr__(self, name):
        return lambda *args, **more: None


def main(path):
    if not torch.cuda.is_available():
        from triton.runtime import driver
        driver.set_active(Driver())
    with open(path, encoding="utf-8") as f:
        text = f.read()
    one = {} if "RANK" in os.environ else dict(store=dist.HashStore(), rank=0, world_size=1)
    dist.init_process_group("gloo", **one)
    names, blocks = {}, list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    for block in blocks:
        line = text[:block.start(1)].count("\n")
        try:
            exec(compile("\n" * line + block[1], path, "exec"), names)
        except Exception:
            traceback.print_exc()
            print(f"page.py: {path}: the block at line {line + 1} fails", flush=True)
            os._exit(1)                       # another rank may wait for this one
    import kcp_torch
    kcp_torch.release()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"page.py: {os.path.basename(path)}: {len(blocks)} blocks run on"
              f" {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
