"""regimes.py -- lists cases: one per kind of input on which public kernels were wrong.

Book: chapter 19, "The field, judged".
"""
LAYER = {"kda": "kda gate=bounded H=2 HV=2", "gdn": "gdn gate=softplus H=2 HV=4"}
SIZES = "layout=vk K=128 V=128 C=64 l2norm h0 dht"
REGIMES = {
    "live": "live beta=sigmoid lengths=320",
    "strong": "strong beta=sigmoid lengths=320",
    "saturated": "saturated beta=sigmoid lengths=320",
    "gates by turns": "alternate beta=sigmoid lengths=320",
    "keys alike, 0.9": "live beta=sigmoid lengths=320 alike=0.9",
    "keys alike, 0.99": "live beta=sigmoid lengths=320 alike=0.99",
    "equal keys": "live beta=sigmoid lengths=320 alike=1",
    "alike, 0.9, beta to 2": "live beta=sigmoid2 lengths=320 alike=0.9",
    "null rows": "live beta=sigmoid lengths=320 null",
    "beta 0 and 1": "live lengths=320 exact",
    "beta to 2": "live beta=sigmoid2 lengths=320",
    "packed short": "live beta=sigmoid lengths=1,5,17,63,64,65,2,30,16,15",
    "T = 333": "live beta=sigmoid lengths=333",
    "values of 1e4": "live beta=sigmoid lengths=320 big",
}


def words(model, regimes=REGIMES):
    """Returns the cases of a model for kcp-check's --case, in the order of `regimes`."""
    return "; ".join(f"{REGIMES[r]} {LAYER[model]} {SIZES}" for r in regimes)
