"""kcp_torch -- KDA and Gated DeltaNet over ranks for PyTorch, computed by libkcp.so.

Book: chapter 08.
"""
from . import ops
from .chunk import chunk_gated_delta_rule, chunk_kda, last_paths
from .conv import ShortConvolution, causal_conv1d
from .groups import CPContext, build_cp_context, release
from .library import lib as _lib

__version__ = _lib.kcp_version().decode()
__all__ = ["chunk_kda", "chunk_gated_delta_rule", "causal_conv1d",
           "ShortConvolution", "build_cp_context", "CPContext", "last_paths", "release"]
