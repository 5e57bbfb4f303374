"""deep_gates.py -- counts heads whose gates are too strong for a one-kernel pass of KDA.

Book: chapter 18.

    python3 bench/peers/deep_gates.py [STEPS]

A step of 32 tokens is deep if a channel decays by more than 2^100 between the step's anchor
(token 15) and an end. Prints which percentage of (sequence, head) pairs of 8192 tokens has
a deep step, of (pair, step) and of (head, channel): with gates as others initialise them,
and in a small character model of FLA's KDA layer, before and after STEPS (200) of training.
"""
import glob
import math
import sys

import torch
import torch.nn.functional as F

T, K = 8192, 128


def show(name, g):
    """g: natural log decays [T, heads, K]."""
    x = (g / math.log(2)).reshape(-1, 32, *g.shape[1:])
    sums = torch.stack((x[:, 1:16].sum(1), x[:, 16:].sum(1), x[:, :16].sum(1)))
    deep = sums.amin(0) < -100                               # [steps, heads, K]
    shares = deep.any(2).any(0), deep.any(2), deep.any(0)
    print(f"{name:<44}", *(f"{100 * s.float().mean():8.2f}" for s in shares), flush=True)


def initial(name, A_low, dt_bias, std, sizes, hidden=2048):
    x = F.normalize(torch.randn(T, hidden), dim=1) * math.sqrt(hidden)
    for m in sizes:
        n = x.shape[1]
        x = x @ torch.randn(n, m) * (std or 1 / math.sqrt(3 * n))
    A = torch.empty(sizes[-1] // K, 1).uniform_(A_low, 16)
    show(name, -A * F.softplus(x.view(T, -1, K) + dt_bias))


def small_dt(*shape):
    dt = torch.exp(torch.rand(*shape) * math.log(100) + math.log(1e-3))
    return dt + torch.log(-torch.expm1(-dt))


class Layer(torch.nn.Module):
    def __init__(self, D, H, k):
        super().__init__()
        linear = lambda n, m: torch.nn.Linear(n, m, False)
        self.qkvz = torch.nn.ModuleList(linear(D, H * k) for _ in range(4))
        self.f = torch.nn.Sequential(linear(D, k), linear(k, H * k))
        self.b, self.out, self.shape = linear(D, H), linear(H * k, D), (H, k)
        self.A_log = torch.nn.Parameter(torch.empty(H, 1).uniform_(1, 16).log())
        self.dt_bias = torch.nn.Parameter(small_dt(H, k))

    def forward(self, x):
        x = F.rms_norm(x, x.shape[2:])
        heads = lambda y: y.view(*x.shape[:2], *self.shape)
        self.g = -self.A_log.exp() * F.softplus(heads(self.f(x)) + self.dt_bias)
        q, k, v, z = (heads(p(x)) for p in self.qkvz)
        q, k, v = F.normalize(F.silu(q), dim=-1), F.normalize(F.silu(k), dim=-1), F.silu(v)
        a, beta = self.g.exp()[..., None], self.b(x).sigmoid()[..., None]
        S, o = x.new_zeros(x.shape[0], *self.shape, self.shape[1]), []
        for t in range(x.shape[1]):
            S = a[:, t] * S
            u = beta[:, t] * (v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], S))
            S = S + k[:, t][..., None] * u[:, :, None]
            o.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
        o = F.rms_norm(torch.stack(o, 1), self.shape[1:]) * z.sigmoid()
        return self.out(o.flatten(2))


def train(text, steps, lr, D=128, H=4, k=32, B=8, L=128):
    E = torch.nn.Embedding(256, D)
    net = torch.nn.ModuleList(Layer(D, H, k) for _ in range(2))
    learned = torch.optim.AdamW([*E.parameters(), *net.parameters()], lr=lr)

    def count(step, h):
        for i, layer in enumerate(net):
            h = h + layer(h)
            show(f"lr {lr:g}, {step} steps, layer {i + 1}", layer.g.reshape(-1, H, k))
    for step in range(steps + 1):
        if step in (0, steps):
            with torch.no_grad():
                count(step, E(text[:T].view(-1, L)))
        rows = torch.stack([text[i:i + L + 1] for i in torch.randint(len(text) - L, (B,))])
        h = E(rows[:, :-1])
        for layer in net:
            h = h + layer(h)
        y = F.rms_norm(h, (D,)) @ E.weight.T / math.sqrt(D)
        loss = F.cross_entropy(y.flatten(0, 1), rows[:, 1:].flatten())
        learned.zero_grad()
        loss.backward()
        learned.step()


torch.manual_seed(1)
print(f"{'percent deep':<44}{'pairs':>9}{'steps':>9}{'channels':>9}")
for std in 0.02, None:
    initial(f"FLA's KDA, weights {std or 'of nn.Linear'}", 1, small_dt(16, K), std, (K, 16 * K))
initial("transformers' and Megatron's GDN, dt_bias 1", 1, 1, 0.02, (16 * K,))
book = b"".join(open(f, "rb").read() for f in sorted(glob.glob("book/*.md")))
for rate in 3e-4, 1e-3, 4e-3:
    train(torch.frombuffer(bytearray(book), dtype=torch.uint8).long(),
          int(sys.argv[1]) if sys.argv[1:] else 200, rate)
