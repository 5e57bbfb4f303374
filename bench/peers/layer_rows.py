"""layer_rows.py -- layers of transformers, FLA and Megatron-core, as layers.py runs them.

Book: users.md.

A class has `modes`, which the layer takes; `place` and `name`, the module and its function
that kcp_torch replaces; `plain`, this function in plain PyTorch; `model`, kda or gdn.
"""
import contextlib
import importlib

import torch
import torch.nn.functional as F


@contextlib.contextmanager
def replaced(place, name, value):
    old = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, old)


class Transformers:
    """A layer of transformers, e.g. Qwen3NextGatedDeltaNet. Its module calls a function
    that is FLA's, if FLA is installed, and otherwise plain PyTorch."""
    package, left = "transformers", True      # padding comes before the tokens
    modes = "batch", "packed", "padded", "cache"

    def __init__(self, folder, name, layer, function, packed="cu_seq_lens_q"):
        self.folder, self.config = folder, name + "Config"
        self.layer = name.replace("Text", "") + layer
        self.name, self.packed = function, packed
        self.model = "kda" if "kimi" in function else "gdn"
        self.step = function.replace("chunk", "recurrent")

    def build(self, s):
        self.place = importlib.import_module(
            f"transformers.models.{self.folder}.modeling_{self.folder}")
        config = getattr(importlib.import_module(
            f"transformers.models.{self.folder}.configuration_{self.folder}"),
            self.config)
        self.settings = config(
            hidden_size=s["width"], num_hidden_layers=2, linear_num_key_heads=s["H"],
            layer_types=["linear_attention", "full_attention"],
            linear_num_value_heads=s["HV"], linear_key_head_dim=s["K"],
            linear_value_head_dim=s["K"], linear_num_heads=s["HV"],
            linear_head_dim=s["K"])
        made = getattr(self.place, self.layer)(self.settings, 0)
        for p in ("A_log", "dt_bias"):        # some classes leave them uninitialised
            for module in made.modules():
                if hasattr(module, p):
                    torch.nn.init.uniform_(getattr(module, p), -1, 1)
        self.plain = getattr(self.place, self.name).__wrapped__
        self.plain_step = getattr(self.place, self.step).__wrapped__
        return made

    def cache(self):
        from transformers import DynamicCache
        return DynamicCache(config=self.settings)

    def call(self, layer, x, cu=None, mask=None, cache=None):
        more = {}
        if cu is not None:
            more[self.packed] = cu
        if cache is not None:
            more["cache_params"] = cache
        return layer(x, attention_mask=mask, **more)

    def convolution(self, cu):
        """The layer's convolution in plain PyTorch ignores packed sequences."""
        import kcp_torch

        def function(x, weight, bias=None, activation=None, **more):
            y, _ = kcp_torch.causal_conv1d(x.transpose(1, 2), weight, bias,
                                           activation=activation, cu_seqlens=cu)
            return y.transpose(1, 2)
        return replaced(self.place, "causal_conv1d_fn", function)


LONG = 1000                                   # tokens; more take a recurrence minutes


def chunks_of_transformers(kda, HV):
    from transformers.models.kimi_linear import modeling_kimi_linear as kimi
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen
    run = kimi.chunk_kimi_delta_attention if kda else qwen.torch_chunk_gated_delta_rule

    def call(q, k, v, g, beta, **states):
        q, k = (x.repeat_interleave(HV // x.shape[2], 2) for x in (q, k))
        return run.__wrapped__(q, k, v, g, beta, **states)
    return call


class Fla:
    """A layer of FLA. On a CPU its Triton modules are replaced by plain PyTorch."""
    package, left = "fla.layers", False
    modes = "batch", "packed", "padded", "cache"

    def __init__(self, file, layer, function, wide=1, **more):
        self.file, self.layer, self.name, self.more = file, layer, function, more
        self.wide = wide
        self.model = "kda" if "kda" in function else "gdn"
        self.step = function.replace("chunk", "fused_recurrent")

    def build(self, s):
        self.place = importlib.import_module(f"fla.layers.{self.file}")
        made = getattr(self.place, self.layer)(**{**dict(
            hidden_size=s["width"], head_dim=self.wide * s["K"], num_heads=s["H"],
            num_v_heads=s["HV"], layer_idx=0, expand_v=1), **self.more})
        self.plain = self.plain_step = self.rule
        return made

    def on_cpu(self, made):
        for part in made.q_conv1d, made.k_conv1d, made.v_conv1d:
            part.forward = self.conv_of(part)
        norm, gate = made.o_norm, made.o_norm.activation
        norm.forward = lambda x, g: F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps) * (
            g.sigmoid() if gate == "sigmoid" else F.silu(g))
        made._use_fused_qkv_conv = lambda *args, **more: False

    @staticmethod
    def conv_of(part):
        def forward(x, cache=None, output_final_state=False, cu_seqlens=None, **more):
            cu = [0, x.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
            out, w = [], part.weight
            for a, b in zip(cu, cu[1:]):
                z = x[:, a:b].transpose(1, 2)
                before = z.new_zeros(*z.shape[:2], w.shape[-1] - 1) if cache is None \
                    else cache
                z = torch.cat((before, z), 2)
                out.append(F.silu(F.conv1d(z, w, groups=len(w))).transpose(1, 2))
            return torch.cat(out, 1), z[..., 1 - w.shape[-1]:]
        return forward

    @staticmethod
    def rule(q, k, v, g, beta, A_log, dt_bias, initial_state=None, cu_seqlens=None,
             output_final_state=False, allow_neg_eigval=False, lower_bound=None, **more):
        """FLA's plain recurrence, after norm, gate and beta in plain PyTorch. If the text
        is long, the chunks of transformers in plain PyTorch replace the recurrence."""
        from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
        from fla.ops.kda.gate import naive_kda_gate, naive_kda_lowerbound_gate
        from fla.ops.kda.naive import naive_recurrent_kda
        like, kda = v.dtype, g.dim() == 4
        q, k = (x.float() * torch.rsqrt(x.float().square().sum(-1, True) + 1e-6)
                for x in (q, k))
        beta = beta.float().sigmoid() * (2 if allow_neg_eigval else 1)
        if kda and lower_bound is not None:
            g = naive_kda_lowerbound_gate(g, A_log, dt_bias, lower_bound)
        elif kda:
            g = naive_kda_gate(g, A_log, dt_bias)
        else:
            g = -A_log.float().exp() * F.softplus(g.float() + dt_bias)
            q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], 2) for x in (q, k))
        run = naive_recurrent_kda if kda else naive_recurrent_gated_delta_rule
        if q.shape[1] > LONG:
            run = chunks_of_transformers(kda, v.shape[2])
        cu = [0, q.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
        state = None if initial_state is None else initial_state.transpose(2, 3)
        out = [run(**{n: x[:, a:b] for n, x in dict(
            q=q, k=k, v=v.float(), g=g, beta=beta).items()}, initial_state=state,
            output_final_state=True) for a, b in zip(cu, cu[1:])]
        return (torch.cat([o for o, _ in out], 1).to(like),
                out[-1][1].transpose(2, 3) if output_final_state else None)

    def cache(self):
        from fla.models.utils import Cache
        return Cache()

    def call(self, layer, x, cu=None, mask=None, cache=None):
        return layer(x, attention_mask=mask, cu_seqlens=cu, past_key_values=cache,
                     use_cache=cache is not None)[0]

    def convolution(self, cu):
        return contextlib.nullcontext()


class Megatron:
    """Megatron-core's GatedDeltaNet, with one rank. Its plain PyTorch is the function of
    its deterministic mode. This version raises NotImplementedError for packed sequences
    and for inference, and ignores the attention mask."""
    package, modes = "megatron.core.ssm.gated_delta_net", ("batch",)
    name, model = "chunk_gated_delta_rule", "gdn"

    def build(self, s):
        from megatron.core import parallel_state, tensor_parallel
        from megatron.core.process_groups_config import ProcessGroupCollection
        from megatron.core.transformer import TransformerConfig
        from megatron.core.transformer.torch_norm import WrappedTorchNorm
        self.place = importlib.import_module(self.package)
        gpu = torch.cuda.is_available()
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                "nccl" if gpu else "gloo", store=torch.distributed.HashStore(), rank=0,
                world_size=1)
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel()
            if gpu:
                tensor_parallel.model_parallel_cuda_manual_seed(1)
        config = TransformerConfig(
            num_layers=1, hidden_size=s["width"], num_attention_heads=s["HV"],
            linear_num_key_heads=s["H"], linear_num_value_heads=s["HV"],
            linear_key_head_dim=s["K"], linear_value_head_dim=s["K"],
            linear_conv_kernel_dim=4, activation_func=F.silu, normalization="RMSNorm",
            experimental_attention_variant="gated_delta_net", linear_attention_freq=4,
            use_cpu_initialization=not gpu, perform_initialization=gpu)
        parts = self.place.GatedDeltaNetSubmodules(
            in_proj=tensor_parallel.ColumnParallelLinear, out_norm=WrappedTorchNorm,
            out_proj=tensor_parallel.RowParallelLinear)
        on = contextlib.nullcontext() if gpu else \
            replaced(torch.cuda, "current_device", lambda: "cpu")
        with on:
            made = self.place.GatedDeltaNet(
                config, parts, layer_number=1,
                pg_collection=ProcessGroupCollection.use_mpu_process_groups())
        torch.manual_seed(5)                  # Megatron's first start sets another seed
        for p in made.parameters():
            torch.nn.init.uniform_(p, -0.3, 0.3)
        self.plain = self.place.torch_chunk_gated_delta_rule
        return made

    def on_cpu(self, made):
        self.place.l2norm = lambda x: x * torch.rsqrt(x.square().sum(-1, True) + 1e-6)

    def call(self, layer, x, **more):
        return layer(x.transpose(0, 1).contiguous(), None)[0].transpose(0, 1)


GDN, KDA = "torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention"
ROWS = {
    "transformers Qwen3-Next": Transformers("qwen3_next", "Qwen3Next", "GatedDeltaNet",
                                            GDN),
    "transformers Qwen3.5": Transformers("qwen3_5", "Qwen3_5Text", "GatedDeltaNet", GDN),
    "transformers OLMo-Hybrid": Transformers("olmo_hybrid", "OlmoHybrid",
                                             "GatedDeltaNet", GDN),
    "transformers Kimi-Linear": Transformers("kimi_linear", "KimiLinear",
                                             "DeltaAttention", KDA, "cu_seqlens"),
    "FLA KimiDeltaAttention": Fla("kda", "KimiDeltaAttention", "chunk_kda"),
    "FLA the same, safe_gate": Fla("kda", "KimiDeltaAttention", "chunk_kda",
                                   safe_gate=True, lower_bound=-5.0),
    "FLA GatedDeltaNet": Fla("gated_deltanet", "GatedDeltaNet",
                             "chunk_gated_delta_rule"),
    "FLA GatedDeltaNet, V 2 K": Fla("gated_deltanet", "GatedDeltaNet",
                                    "chunk_gated_delta_rule", expand_v=2),
    "FLA GatedDeltaNet, K 256": Fla("gated_deltanet", "GatedDeltaNet",
                                    "chunk_gated_delta_rule", wide=2, expand_v=2,
                                    num_heads=6, num_v_heads=6),   # FLA's default
    "Megatron GatedDeltaNet": Megatron(),
}
