"""hybrid.py -- trains a hybrid model of three KDA layers and one softmax attention
layer over ranks. The loss does not depend on the number of ranks.

Book: chapter 08.

  python hybrid.py --text README.md
  torchrun --nproc_per_node=4 hybrid.py --text README.md         one batch over 4 ranks

Layers of KDA, batches and options come from train.py. Per head and cut sequence, a KDA
layer sends at most a state and a matrix; the softmax layer gathers all keys and values.
With --layout zigzag both kinds of layers share the tokens that ring attention gives a
rank, so no token moves between layers.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import train


class Gather(torch.autograd.Function):
    """Gathers x [B, T of this rank, ...] to [B, T of all ranks, ...], in the order of the
    batch's tokens. Backward sums dy over ranks."""

    @staticmethod
    def forward(ctx, x, context):
        ctx.context = context
        places = [context.positions(r).to(x.device) for r in range(context.size)]
        most = max(len(at) for at in places)
        mine = F.pad(x.transpose(0, 1).flatten(1), (0, 0, 0, most - x.shape[1]))
        parts = [torch.empty_like(mine) for _ in places]
        dist.all_gather(parts, mine, group=context.group)
        whole = mine.new_empty(context.global_cu_seqlens[-1], mine.shape[1])
        for part, at in zip(parts, places):
            whole[at] = part[:len(at)]
        return whole.view(-1, x.shape[0], *x.shape[2:]).transpose(0, 1)

    @staticmethod
    def backward(ctx, dy):
        dy = dy.contiguous()
        dist.all_reduce(dy, group=ctx.context.group)
        return ctx.context.shard(dy), None


def attend(q, k, v, mask):
    """Softmax attention on [B, H, T, K]. The last two lines are for PyTorch 1.13."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


class Attention(nn.Module):
    """A layer: norm, then causal softmax attention within each packed sequence."""

    def __init__(self, width, H, K):
        super().__init__()
        self.H, self.K = H, K
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * H * K, bias=False)
        self.out = nn.Linear(H * K, width, bias=False)

    def forward(self, x, where):
        context = where["cp_context"]
        B, T, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(B, T, 3, self.H, self.K).unbind(2)
        k, v = Gather.apply(torch.stack((k, v), 2), context).unbind(2)
        ends = torch.tensor(context.global_cu_seqlens[1:], device=x.device)
        at = torch.arange(ends[-1], device=x.device)
        sequence = torch.bucketize(at, ends, right=True)
        mine = context.positions().to(x.device)
        mask = (sequence[mine][:, None] == sequence) & (mine[:, None] >= at)
        o = attend(*(t.transpose(1, 2) for t in (q, k, v)), mask)
        return x + self.out(o.transpose(1, 2).reshape(B, T, -1))


class Model(train.Model):
    def __init__(self, width=32, H=2, K=16):
        super().__init__(width, H, K, layers=3)
        self.layers.append(Attention(width, H, K))


if __name__ == "__main__":
    train.main(Model, __doc__)
