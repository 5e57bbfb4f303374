"""keys.py -- trains the model of train.py, runs it on text outside the training set,
and saves keys, values, gates and beta of its KDA layers for the tables of chapter 20.

Book: chapter 20.  Checked by: book/trained.c, which reads the saved file.  Next: none.

  python keys.py --text book/*.md --unseen README.md --out book/data/keys.npy

Gates are initialised as in published layers: exp(A_log) is uniform in [1, 16], the time
step of each channel is between 1e-3 and 0.1. The file is [layers * heads, tokens, 3 K +
1] in half precision: normalised key, value, natural log of the decay, beta.
"""
import math

import torch
import torch.nn.functional as F

import kcp_torch
import train


def begin_gates(model):
    for layer in model.layers:
        H, K = layer.H, layer.K
        layer.A_log.data = (1 + 15 * torch.rand(H)).log().double()
        dt = torch.exp(torch.rand(H * K) * math.log(100.0) + math.log(1e-3))
        layer.dt_bias.data = torch.log(torch.expm1(dt)).double()
        layer.g.weight.data *= 0.1


class Tap:
    """Wraps chunk_kda and stores the arguments of each call."""

    def __init__(self):
        self.call, self.rows = kcp_torch.chunk_kda, None

    def __call__(self, q, k, v, g, beta, A_log, dt_bias, **rest):
        if self.rows is not None:
            H, K = k.shape[2:]
            key = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt()
            decay = -A_log.exp()[:, None] * F.softplus(g + dt_bias.view(H, K))
            row = torch.cat([key, v, decay, torch.sigmoid(beta)[..., None]], -1)
            self.rows += row[0].unbind(1)
        return self.call(q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, **rest)


def main():
    p = train.Parser(description=__doc__.splitlines()[0])
    p.add_argument("--text", nargs="+", required=True, help="files to learn")
    p.add_argument("--unseen", nargs="+", required=True, help="files to look at after")
    p.add_argument("--out", required=True, help="the .npy file to write")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--tokens", type=int, default=512, help="of the file")
    o = p.parse_args()
    torch.manual_seed(1)
    text, unseen = train.bytes_of(p, o.text), train.bytes_of(p, o.unseen)
    if o.tokens < 1 or o.steps < 0:
        p.error(f"--tokens, --steps: found {o.tokens}, {o.steps}, expected numbers")
    if len(text) < 1026:
        p.error(f"--text: found {len(text)} bytes, expected 1026")
    if len(unseen) <= o.tokens:
        p.error(f"--unseen: found {len(unseen)} bytes, expected {o.tokens + 1}")
    unseen = unseen[:o.tokens + 1]
    try:
        open(o.out, "ab").close()             # fails here, before training
    except OSError as e:
        p.error(f"--out: {o.out}: found {e.strerror}, expected a file I can write")
    model = train.Model(width=64, H=2, K=64).double()
    begin_gates(model)
    tap = kcp_torch.chunk_kda = Tap()
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
    where = dict(cu_seqlens_cpu=[0, 512])
    for step in range(o.steps):
        at = int(torch.randint(len(text) - 513, (1,)))
        logits = model(text[at:at + 512][None], where)
        loss = F.cross_entropy(logits[0], text[at + 1:at + 513])
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 20 == 0 or step + 1 == o.steps:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    tap.rows = []
    with torch.no_grad():
        logits = model(unseen[None, :o.tokens], dict(cu_seqlens_cpu=[0, o.tokens]))
    loss = F.cross_entropy(logits[0], unseen[1:])
    rows = torch.stack(tap.rows)
    import numpy
    numpy.save(o.out, rows.half().numpy())
    print(f"{o.out}: {list(rows.shape)}, {o.steps} steps of 512 bytes; unseen text"
          f" {loss.item():.3f} nats a byte")


if __name__ == "__main__":
    main()
