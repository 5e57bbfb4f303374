"""forward.py -- a whole forward in NumPy, chunk by chunk and head by head:
python tests/kcp_check.py forward:run --stage 08 --numpy --storage bf16

Book: users.md, "Prove your kernel in an hour".  Checked by: tests/cli/plugins.sh.
Next: h0.c.
"""
import numpy as np


def ready(case):
    """Normalised q and k, gates and beta as the layer computes them from raw inputs."""
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
    """The output of a chunk and the state after it; g [C,K] holds natural logarithms."""
    G = np.cumsum(g, 0)
    decay = np.exp(np.minimum(0, G[:, None] - G[None]))
    L = np.tril(beta * np.einsum("ip,ijp,jp->ij", k, decay, k), -1)
    u = inverse(L) @ (beta * (v - (k * np.exp(G)) @ S))
    Aqk = np.tril(np.einsum("ip,ijp,jp->ij", q, decay, k))
    o = scale * ((q * np.exp(G)) @ S + Aqk @ u)
    return o, np.exp(G[-1])[:, None] * S + (k * np.exp(G[-1] - G)).T @ u


def run(case):
    q, k, g, beta = ready(case)
    o, ht = np.zeros(case.v.shape), np.zeros((case.N, case.HV, case.K, case.V))
    if case.h0 is not None:
        ht[:] = case.h0.swapaxes(2, 3) if case.layout else case.h0
    for n in range(case.N):
        first, end = case.cu_seqlens[n:n + 2]
        for h in range(case.HV):
            m = h // (case.HV // case.H)
            for t in range(first, end, 16):
                at = slice(t, min(end, t + 16))
                o[at, h], ht[n, h] = chunk(
                    q[at, m], k[at, m], case.v[at, h], g[at, h] * np.ones(case.K),
                    beta[at, h][:, None], case.scale, ht[n, h])
    return {"o": o, "ht": ht.swapaxes(2, 3) if case.layout else ht}
