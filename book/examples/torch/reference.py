"""reference.py -- prints the docstrings of kcp_torch as Markdown.

Book: users.md, "From PyTorch".
Usage: reference.py           prints the section
       reference.py --try     runs the examples of the docstrings; needs PyTorch
"""
import ast
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
PUBLIC = {"chunk": ("chunk_kda", "chunk_gated_delta_rule", "last_paths"),
          "conv": ("causal_conv1d", "ShortConvolution"),
          "groups": ("build_cp_context", "CPContext", "release")}


def entry(source, name):
    """Returns the signature, the text and the example of a function or class."""
    node, = (n for n in ast.parse(source).body if getattr(n, "name", "") == name)
    text, _, example = ast.get_docstring(node).partition("\n\n>>> ")
    made = [n for n in node.body if getattr(n, "name", "") == "__init__"]
    function = made[0] if made else node
    lines = source.splitlines()[function.lineno - 1:function.body[0].lineno - 1]
    head = " ".join(" ".join(lines).split()).rstrip(":").replace(" -> None", "")
    head = re.sub(r"def \w+\( ?(self, )?", name + "(", head)
    for joined in ": ", " = ", " -> ":        # no line break in an argument
        head = head.replace(joined, joined.replace(" ", "\0"))
    head = textwrap.fill(head, 88, subsequent_indent="    ").replace("\0", " ")
    return f"### `{name}`\n\n```python\n{head}\n```\n\n{text}\n\n" \
           f"```python\n>>> {example}\n```\n"


def section():
    parts = []
    for module, names in PUBLIC.items():
        with open(f"{HERE}/kcp_torch/{module}.py", encoding="utf-8") as f:
            source = f.read()
        parts += [entry(source, name) for name in names]
    return "\n".join(parts)


def examples():
    import doctest
    import torch
    import torch.distributed as dist
    import kcp_torch
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tried = [doctest.testmod(getattr(kcp_torch, m), extraglobs={"torch": torch})
             for m in PUBLIC]
    sys.exit(any(t.failed for t in tried) or sum(t.attempted for t in tried) < 7)


if sys.argv[1:] == ["--try"]:
    examples()
print(section())
