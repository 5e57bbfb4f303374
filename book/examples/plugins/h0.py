"""h0.py -- h0.c in Python: python tests/kcp_check.py h0:run --stage 12 --numpy

Book: CONTRIBUTING.md, "Kernels written elsewhere".
"""
import numpy as np


def run(case):
    if case.NS == 0:
        return {}
    if not case.backward:
        return {"h_kept": case.h_in[:1]}
    back = np.zeros((case.NS, case.HV, case.K, case.V))
    if case.h_start is not None:
        back[:] = case.h_start
    back[:1] = case.h_kept_in
    return {"h_back": back}
