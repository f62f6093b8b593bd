"""What a handler must leave as it found it, as values that can be compared."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _module
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

__all__ = ["describe_global_state", "describe_random_state", "difference", "snapshot_module", "snapshot_value"]


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return the first name under which two snapshots differ, or `None`."""
    for name in [*before, *(name for name in after if name not in before)]:
        if (name in before) != (name in after) or not _equal(before[name], after[name]):
            return name
    return None


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.shape == right.shape and _same_values(left, right)
    if isinstance(left, tuple | list):
        return type(left) is type(right) and len(left) == len(right) and all(map(_equal, left, right))
    return type(left) is type(right) and bool(left == right)


def _same_values(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.is_meta or right.is_meta:
        return left.is_meta and right.is_meta
    if left.is_quantized:
        left, right = left.int_repr(), right.int_repr()
    if torch.equal(left, right):
        return True
    # A NaN is no change.
    return bool(torch.equal(left.isnan(), right.isnan()) and torch.equal(left.nan_to_num(), right.nan_to_num()))


def snapshot_module(module: nn.Module) -> dict[str, Any]:
    """Return the state of a module tree: flags, hooks, attributes, parameters and buffers."""
    found: dict[str, Any] = {}
    for path, child in module.named_modules():
        prefix = f"{path or 'the module'}: "
        found[f"{prefix}training"] = child.training
        found[f"{prefix}type"] = type(child).__qualname__
        for name, value in vars(child).items():
            if name in ("_parameters", "_buffers"):
                for key, tensor in value.items():
                    found[f"{prefix}{key}"] = _tensor(tensor)
            elif name == "_modules":
                found[f"{prefix}children"] = [(key, id(grandchild)) for key, grandchild in value.items()]
            elif name.endswith("_hooks") and isinstance(value, Mapping):
                found[f"{prefix}{name}"] = [id(hook) for hook in value.values()]
            elif not name.startswith("__"):
                found[f"{prefix}attribute {name}"] = snapshot_value(value)
    return found


def snapshot_value(value: Any, depth: int = 4) -> Any:
    """Return a value as something comparable: the contents of containers, and tensors by identity and contents."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if depth and type(value) in (list, tuple, set, frozenset):
        items = list(value) if isinstance(value, list | tuple) else sorted(map(id, value))
        return [type(value).__name__, *(snapshot_value(item, depth - 1) for item in items)]
    if depth and isinstance(value, Mapping):
        return [type(value).__name__, *((repr(key), snapshot_value(item, depth - 1)) for key, item in value.items())]
    if value is None or isinstance(value, bool | int | float | str | bytes | torch.dtype | torch.device):
        return (type(value).__name__, repr(value))
    if depth and not isinstance(value, type | nn.Module) and hasattr(value, "__dict__") and not callable(value):
        return [id(value), *((name, snapshot_value(item, depth - 1)) for name, item in vars(value).items())]
    return id(value)


def _tensor(tensor: torch.Tensor | None) -> Any:
    if tensor is None:
        return None
    facts: list[Any] = [id(tensor), tensor.requires_grad, id(tensor.grad) if tensor.is_leaf else None]
    if not tensor.is_inference():
        facts.append(tensor._version)
    if is_lazy(tensor) or tensor.layout is not torch.strided:
        return facts
    facts.append(tensor.detach().clone())
    return facts


def describe_random_state() -> dict[str, Any]:
    """Return the state of every random generator a handler could draw from."""
    found: dict[str, Any] = {"torch's generator": torch.get_rng_state(), "random's generator": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        found["NumPy's generator"] = repr(numpy.random.get_state())
    return found


def _autocast() -> list[bool]:
    try:
        return [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
    except TypeError:  # releases that have one function per device
        return [torch.is_autocast_cpu_enabled(), torch.is_autocast_enabled()]


def describe_global_state() -> dict[str, Any]:
    """Return the global settings a handler could change."""
    backends: Any = torch.backends
    found: dict[str, Any] = {
        "gradient mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()) if hasattr(torch, "get_default_device") else "",
        "number of threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matrix product precision": torch.get_float32_matmul_precision(),
        "autocast": _autocast(),
        "cuDNN benchmark": backends.cudnn.benchmark,
        "flash attention": backends.cuda.flash_sdp_enabled(),
        "memory-efficient attention": backends.cuda.mem_efficient_sdp_enabled(),
        "math attention": backends.cuda.math_sdp_enabled(),
        "dispatch modes": [id(mode) for mode in _get_current_dispatch_mode_stack()],
        "process-wide module hooks": [
            list(hooks)
            for hooks in (
                _module._global_forward_hooks,
                _module._global_forward_pre_hooks,
                _module._global_backward_hooks,
            )
        ],
        "environment variables": dict(os.environ),
        "working directory": os.getcwd(),
        "import path": list(sys.path),
        "warning filters": [repr(rule) for rule in warnings.filters],
        "recursion limit": sys.getrecursionlimit(),
    }
    if hasattr(backends, "mha") and hasattr(backends.mha, "get_fastpath_enabled"):
        found["Transformer fast path"] = backends.mha.get_fastpath_enabled()
    return found
