"""arrays.py -- makes and compares .npy files for tests of the command line.

    arrays.py layer DIR T N H HV K V kda|gdn raw|free SEED   the layer's inputs
    arrays.py fill FILE f8|f4|i8|i4 3,4 X             one number everywhere
    arrays.py poke FILE ELEMENT X                     one element changed
    arrays.py same A B TOLERANCE [NAME...]            exit 0, or 1 and the differences
    arrays.py off A B BOUND                           largest RMS(A - B) / RMS(B)
    arrays.py fortran A B                             writes B as A in Fortran order
    arrays.py rows A FIRST END B NAME...              writes these rows of A's arrays to B

A and B are files (only for `same`) or folders. `same` requires equal names, types and
shapes, and RMS(A - B) <= TOLERANCE RMS(B), or equal bits if TOLERANCE is 0. If there are
NAMEs, the arrays NAME of A have a row per rank. Their rows must differ, and the sum of the
rows is compared. All other arrays then must have equal bits.
"""
import os
import sys

import numpy as np


def load(folder):
    """Returns the arrays of a folder, or of one file, by name."""
    if os.path.isfile(folder):
        return {"": np.load(folder)}
    return {f[:-4]: np.load(os.path.join(folder, f)) for f in sorted(os.listdir(folder))}


def save(folder, arrays):
    os.makedirs(folder, exist_ok=True)
    for name, x in arrays.items():
        np.save(os.path.join(folder, name + ".npy"), x)


def layer(folder, T, N, H, HV, K, V, model, gates, seed):
    T, N, H, HV, K, V = map(int, (T, N, H, HV, K, V))
    r = np.random.default_rng(int(seed)).standard_normal
    wide, cu = (HV, K) if model == "kda" else (HV,), np.arange(N + 1) * T // max(N, 1)
    if N > 2:                                 # sequence 1 is empty
        cu[2] = cu[1]
    x = dict(cu_seqlens=cu, q=r((T, H, K)), k=r((T, H, K)), v=r((T, HV, V)),
             beta=r((T, HV)) - 1, g=r((T, *wide)), h0=r((N, HV, K, V)),
             dht=r((N, HV, K, V)), do=r((T, HV, V)))
    if gates == "raw":
        x["g"] = -0.05 * abs(x["g"])
    else:
        x.update(A_log=0.3 * r(HV) - 2, dt_bias=0.5 * r(wide) - 2)
    save(folder, x)


def fill(file, kind, shape, x):
    np.save(file, np.full([int(n) for n in shape.split(",")], float(x), kind))


def poke(file, element, x):
    a = np.load(file)
    a.flat[int(element)] = float(x)
    np.save(file, a)


def norms(a, b):
    return np.linalg.norm((a - b).ravel()), np.linalg.norm(b.ravel())


def same(a, b, tolerance, *summed):
    a, b, tolerance, bad = load(a), load(b), float(tolerance), []
    if a.keys() != b.keys() or not a or not set(summed) <= a.keys():
        bad = [f"found {' '.join(a)}, expected {' '.join(b)}"]
    for name in a.keys() & b.keys():
        x, y = a[name], b[name]
        if name in summed:
            if (x[0] == x[1]).all():
                bad.append(f"{name}: rows 0 and 1 are equal")
            x = x.sum(0)
        if x.dtype != y.dtype or x.shape != y.shape:
            bad.append(f"{name}: found {x.dtype} {x.shape}, expected {y.dtype} {y.shape}")
        elif not tolerance or y.dtype.kind == "i" or (summed and name not in summed):
            bad += [f"{name}: other bits"] * (x.tobytes() != y.tobytes())
        else:
            error, size = norms(x, y)
            if not error <= tolerance * size:
                bad.append(f"{name}: error {error:g} of {size:g}")
    return "; ".join(bad) or None


def off(a, b, bound):
    a, b, bound = load(a), load(b), float(bound)
    shapes, wanted = ({n: x.shape for n, x in of.items()} for of in (a, b))
    if shapes != wanted:
        return f"found {shapes}, expected {wanted}"
    of = {n: norms(a[n], y) for n, y in b.items() if y.dtype.kind == "f"}
    of = {n: error / (size or 1) for n, (error, size) in of.items()}
    bad = [f"{n} {x:.2e}" for n, x in of.items() if not x <= bound]
    worst = max(of, key=of.get)
    print(f"worst {worst:9s} {of[worst]:.2e} of {bound:g}")
    return "above it: " + " ".join(bad) if bad else None


def fortran(a, b):
    save(b, {name: np.asfortranarray(x) for name, x in load(a).items()})


def rows(a, first, end, b, *names):
    a = load(a)
    save(b, {name: a[name][int(first):int(end)] for name in names})


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
