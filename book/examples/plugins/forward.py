"""forward.py -- computes a whole forward in NumPy, chunk by chunk, head by head:
python tests/kcp_check.py forward:run --stage 08 --numpy --storage bf16
python tests/kcp_check.py forward:run_ranks --stage 08 --numpy --storage bf16 --cp 2

Book: users.md, "Prove your kernel in an hour".
"""
import numpy as np


def ready(case):
    """Computes normalised q and k, gates and beta from the raw inputs of the layer."""
    q, k, g, beta = case.q_raw, case.k_raw, case.g_raw, case.beta_raw
    if case.l2norm:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    if case.gate:
        y = g if case.dt_bias is None else g + case.dt_bias
        A = np.exp(case.A_log)[:, None]
        g = (-A * np.logaddexp(0, y) if case.gate == 1
             else case.lower_bound / (1 + np.exp(-A * y)))
    if case.beta_form:
        beta = case.beta_form / (1 + np.exp(-beta))
    return q, k, g, beta


def inverse(L):
    return np.linalg.inv(np.eye(len(L)) + L)


def chunk(q, k, v, g, beta, scale, S):
    """Returns a chunk's output and the state after the chunk. g [C,K]: ln of the
    decay."""
    G = np.cumsum(g, 0)
    decay = np.exp(np.minimum(0, G[:, None] - G[None]))
    L = np.tril(beta * np.einsum("ip,ijp,jp->ij", k, decay, k), -1)
    u = inverse(L) @ (beta * (v - (k * np.exp(G)) @ S))
    Aqk = np.tril(np.einsum("ip,ijp,jp->ij", q, decay, k))
    o = scale * ((q * np.exp(G)) @ S + Aqk @ u)
    return o, np.exp(G[-1])[:, None] * S + (k * np.exp(G[-1] - G)).T @ u


def scan(case, begin, end, carry):
    """Computes tokens `begin` to `end` - 1 of the batch. Returns o and ht (final states
    of the sequences that end in this range). `carry` is the state received for a
    sequence that began on an earlier rank; the state for the next rank replaces it."""
    q, k, g, beta = ready(case)
    o, ht = np.zeros(case.v.shape), np.zeros((case.N, case.HV, case.K, case.V))
    h0 = np.zeros(ht.shape) if case.h0 is None else case.h0
    h0 = h0.swapaxes(2, 3) if case.layout and case.h0 is not None else h0
    for n in range(case.N):
        first, last = case.cu_seqlens[n:n + 2]
        if first == last and begin == 0:                      # no tokens: ht is h0
            ht[n] = h0[n]
        for h in range(case.HV if max(first, begin) < min(last, end) else 0):
            m = h // (case.HV // case.H)
            S = h0[n, h] if first >= begin else carry[h]
            for t in range(max(first, begin), min(last, end), 16):
                at = slice(t - begin, min(last, end, t + 16) - begin)
                o[at, h], S = chunk(
                    q[at, m], k[at, m], case.v[at, h], g[at, h] * np.ones(case.K),
                    beta[at, h][:, None], case.scale, S)
            if last <= end:
                ht[n, h] = S
            else:
                carry[h] = S
    return o, ht.swapaxes(2, 3) if case.layout else ht


def run(case):
    o, ht = scan(case, 0, case.T, None)
    return {"o": o, "ht": ht}


def run_ranks(case):
    """Computes this rank's tokens; receives and sends the state of a cut sequence."""
    import torch
    import torch.distributed as dist
    begin, end = case.cuts[case.rank:case.rank + 2]
    cu = case.cu_seqlens
    goes_on = [((cu[:-1] < t) & (t < cu[1:])).any() for t in (begin, end)]
    carry = torch.zeros(case.HV, case.K, case.V, dtype=torch.float64)
    if goes_on[0]:
        dist.recv(carry, case.rank - 1)
    o, ht = scan(case, begin, end, carry.numpy())
    if goes_on[1]:
        dist.send(carry, case.rank + 1)
    return {"o": o, "ht": ht}
