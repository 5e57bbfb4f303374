"""train.py -- trains a language model of two KDA layers on bytes of text, with data and
context parallelism at once. The loss does not depend on the number of ranks or
replicas.

Book: chapters 08, 13, 14.

  python train.py --text README.md
  torchrun --nproc_per_node=3 train.py --text README.md              one batch, 3 ranks
  torchrun --nproc_per_node=4 train.py --text README.md --cp 2       2 replicas of 2

A batch is several packed sequences. R ranks form R/cp replicas of cp ranks. Replica d
takes sequences d, d + R/cp, ...; each of its ranks computes the gradients of a part of
the tokens. DistributedDataParallel averages gradients, so `main` scales losses by R.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import kcp_torch


class Layer(nn.Module):
    """A KDA block (norm, short convolutions, KDA, output gate), then an MLP block."""

    def __init__(self, width, H, K):
        super().__init__()
        self.H, self.K = H, K
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * H * K, bias=False)
        self.conv = nn.Parameter(0.3 * torch.randn(3 * H * K, 4))
        self.g = nn.Linear(width, H * K, bias=False)
        self.beta = nn.Linear(width, H, bias=False)
        self.A_log = nn.Parameter(torch.rand(H).log())
        self.dt_bias = nn.Parameter(-2 + torch.randn(H * K))
        self.gate = nn.Linear(width, H * K)
        self.out = nn.Linear(H * K, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, where):
        B, T, _ = x.shape
        y = self.norm(x)
        z, _ = kcp_torch.causal_conv1d(self.qkv(y), self.conv, activation="silu",
                                       **where)
        q, k, v = z.view(B, T, 3, self.H, self.K).unbind(2)
        o, _ = kcp_torch.chunk_kda(
            q, k, v, self.g(y).view_as(v), self.beta(y), A_log=self.A_log,
            dt_bias=self.dt_bias, use_qk_l2norm_in_kernel=True,
            use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, **where)
        x = x + self.out(o.reshape(B, T, -1) * torch.sigmoid(self.gate(y)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width=32, H=2, K=16, layers=2):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.layers = nn.ModuleList(Layer(width, H, K) for _ in range(layers))
        self.head = nn.Linear(width, 256)

    def forward(self, bytes_, where):
        x = self.embed(bytes_)
        for layer in self.layers:
            x = layer(x, where)
        return self.head(x)


def batch_of(text, step, lengths):
    """Returns two tensors per sequence: its bytes, and the byte after each byte."""
    total = sum(lengths)
    at = step * total % max(1, len(text) - total - 1)
    pieces = []
    for n in lengths:
        pieces.append((text[at:at + n], text[at + 1:at + n + 1]))
        at += n
    return pieces


def bytes_of(p, files):
    try:
        return torch.tensor(list(b"".join(open(x, "rb").read() for x in files)))
    except OSError as e:
        p.error(f"{e.filename}: found {e.strerror}, expected a file to read")


class Parser(argparse.ArgumentParser):
    def error(self, message):                 # without the usage lines
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')}\n")


def main(kind, description):
    """Trains a model of class `kind`, whose inputs are bytes and the dict `where`."""
    p = Parser(description=description.splitlines()[0])
    p.add_argument("--text", nargs="+", required=True, help="files to learn")
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--cp", type=int, default=0, help="ranks per sequence; 0: all ranks")
    p.add_argument("--lengths", type=int, nargs="+", default=[61, 130, 17, 48],
                   help="number of bytes of each sequence of a batch")
    p.add_argument("--layout", choices=("contiguous", "zigzag"), default="contiguous",
                   help="which tokens a rank has (build_cp_context)")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    o = p.parse_args()
    R, r = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    cp, cuda = o.cp or R, o.device == "cuda"
    if cp < 1 or R % cp:
        p.error(f"--cp: found {cp}, expected a divisor of {R}, the ranks")
    if len(o.lengths) % (R // cp) or min(o.lengths) < 1:
        p.error(f"--lengths: found {o.lengths}, expected lengths of 1 or more, and a"
                f" multiple of {R // cp} (replicas) of them")
    if o.steps < 0:
        p.error(f"--steps: found {o.steps}, expected 0 or more")
    if cuda and not torch.cuda.is_available():
        p.error("--device: found no GPU, expected one that PyTorch sees")
    text, tokens = bytes_of(p, o.text), sum(o.lengths)
    if len(text) < tokens + 2:
        p.error(f"--text: found {len(text)} bytes, expected {tokens + 2} or more")
    device = torch.device(o.device, int(os.environ.get("LOCAL_RANK", 0)) if cuda else 0)
    if cuda:
        torch.cuda.set_device(device)
    alone = {} if R > 1 else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("nccl" if cuda else "gloo", **alone)
    for first in range(0, R, cp):             # every rank creates every group
        made = dist.new_group(list(range(first, first + cp)))
        if first <= r < first + cp:
            group = made
    torch.manual_seed(1)
    # Parameters are double on a CPU, so that the order of sums hardly changes losses.
    model = kind().to(device, torch.float32 if cuda else torch.float64)
    ddp = DistributedDataParallel(model)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(o.steps):
        start = time.perf_counter()
        mine = batch_of(text, step, o.lengths)[r // cp::R // cp]   # of this replica
        cu = [0]
        for a, _ in mine:
            cu.append(cu[-1] + len(a))
        context = kcp_torch.build_cp_context(cu, group, conv1d_kernel_size=4,
                                             layout=o.layout)
        x, y = (context.shard(torch.cat([piece[i] for piece in mine])[None]).to(device)
                for i in (0, 1))
        logits = ddp(x, dict(cp_context=context))
        loss = F.cross_entropy(logits[0], y[0], reduction="sum") / tokens
        adam.zero_grad()
        (loss * R).backward()                 # DistributedDataParallel divides by R
        adam.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        if r == 0:
            print(f"step {step} loss {whole.item():.12f}"
                  f" tokens/s {tokens / (time.perf_counter() - start):.0f}", flush=True)
    kcp_torch.release()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Model, __doc__)
