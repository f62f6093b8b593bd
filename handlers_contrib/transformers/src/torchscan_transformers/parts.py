"""The parts of a model that a token relation may rest on: the library's own, unchanged, and known layers of torch.

A relation of a whole layer or model is a statement about everything inside it. One foreign part, one replaced
`forward` or one hook that rewrites an output could mix tokens, so none is tolerated.
"""

from __future__ import annotations

import functools
from typing import Any

import torchscan
from torchscan_transformers.guard import Unsupported, runs
from torchscan_transformers.sources import Sources

#: Layers of torch that keep each token to itself, or hold others.
_LOCAL = frozenset(
    (
        "torch.nn.modules.linear:Linear",
        "torch.nn.modules.linear:Identity",
        "torch.nn.modules.sparse:Embedding",
        "torch.nn.modules.dropout:Dropout",
        "torch.nn.modules.normalization:LayerNorm",
        "torch.nn.modules.container:ModuleList",
        *(
            f"torch.nn.modules.activation:{name}"
            for name in ("GELU", "Hardswish", "LeakyReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Tanh")
        ),
    )
)
_RECORDERS = "transformers.utils.output_capturing"


@functools.cache
def _trusted() -> dict[str, Sources]:
    """Return every class of the library whose `forward` was read, with its sources."""
    from torchscan_transformers.plugin import entries

    return {entry.target: entry.sources for entry in entries()}


def require_known(call: torchscan.ModuleCall) -> None:
    """Accept a module all of whose descendants are known and unchanged; look once for each module and scan.

    Raises:
        Unsupported: one is not; the message names it.

    """
    seen: dict[int, Unsupported | None] = call.memo.setdefault("torchscan_transformers.parts", {})
    key = id(call.module)
    if key not in seen:
        seen[key] = _first_unknown(call.module)
    if (found := seen[key]) is not None:
        raise Unsupported(found.reason, found.message)


def _first_unknown(module: Any) -> Unsupported | None:
    for path, part in module.named_modules():
        kind = type(part)
        name = f"{kind.__module__}:{kind.__qualname__}"
        if name in _LOCAL:
            known = "forward" not in vars(part)
        else:
            sources = _trusted().get(name)
            known = sources is not None and runs(part, name) and sources.first_unverified() is None
        where = path or "the module"
        if not known:
            return Unsupported("unknown_part", f"{where} is a {kind.__name__} that may mix tokens in its own way")
        for hook in (*part._forward_pre_hooks.values(), *part._forward_hooks.values()):
            if getattr(hook, "__module__", None) != _RECORDERS:
                return Unsupported("hooks", f"{where} has a forward hook that may change its output")
    return None
