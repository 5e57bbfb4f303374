"""first_config.py -- FLA's chunk functions without tuning: the first configuration of each
Triton kernel. Tuning compiles every configuration, which takes minutes.

Book: chapter 20.
"""
from triton.runtime import autotuner

tuned = autotuner.Autotuner.__init__


def first(self, fn, names, configs, *args, **more):
    tuned(self, fn, names, configs[:1], *args, **more)


autotuner.Autotuner.__init__ = first

from fla.ops.gated_delta_rule import chunk_gated_delta_rule  # noqa: E402, F401
from fla.ops.kda import chunk_kda  # noqa: E402, F401
