"""Which classes are native, and whether their methods still are.

A formula describes what `torch.nn` runs. A subclass, a replaced method on an instance or on the class, or a pre-hook
on a stage can run something else.
"""

from __future__ import annotations

from typing import Any, Final

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from torchscan_native.transformer.boundaries import Outside

__all__ = ["OUTPUT_PROJECTIONS", "check_classes", "check_root", "check_stage"]

#: What each native class runs of its own, beside the stages it calls.
_METHODS: Final[dict[type[nn.Module], tuple[str, ...]]] = {
    nn.MultiheadAttention: ("forward", "merge_masks"),
    nn.TransformerEncoderLayer: ("forward", "_sa_block", "_ff_block"),
    nn.TransformerDecoderLayer: ("forward", "_sa_block", "_mha_block", "_ff_block"),
    nn.TransformerEncoder: ("forward",),
    nn.TransformerDecoder: ("forward",),
    nn.Transformer: ("forward",),
    nn.Linear: ("forward",),
    nn.LayerNorm: ("forward",),
    nn.Identity: ("forward",),
    nn.Dropout: ("forward",),
    nn.ReLU: ("forward",),
    nn.GELU: ("forward",),
}

#: The same, and the method through which every module is called.
_REPLACEABLE: Final = {cls: (*names, "_call_impl") for cls, names in _METHODS.items()}

#: Types whose `weight` and `bias` are their parameters and nothing else.
OUTPUT_PROJECTIONS: Final = frozenset({NonDynamicallyQuantizableLinear, nn.Linear})


def _is_original(cls: type, name: str, function: Any) -> bool:
    return (
        getattr(function, "__module__", None) == cls.__module__
        and getattr(function, "__qualname__", None) == f"{cls.__name__}.{name}"
        and not hasattr(function, "__wrapped__")
    )


# A class may have been patched before this module was imported; such a function is not taken for the original.
_ORIGINALS: Final = tuple(
    (cls, name, function if _is_original(cls, name, function) else None)
    for cls, names in _METHODS.items()
    for name in names
    for function in (cls.__dict__.get(name),)
)


def check_classes() -> None:
    """Check that no native class has been patched.

    Raises:
        Outside: one has.

    """
    for cls, name, function in _ORIGINALS:
        if cls.__dict__.get(name) is not function:
            raise Outside("replaced_forward", f"nn.{cls.__name__}.{name} is not PyTorch's own")


def check_root(module: nn.Module) -> dict[str, Any]:
    """Check that the called module runs its own methods.

    Its own hooks are no concern: what they changed is already in the call.

    Returns:
        Its instance dictionary.

    Raises:
        Outside: a method is replaced on the instance.

    """
    state = module.__dict__
    for name in _REPLACEABLE[type(module)]:
        if name in state:
            raise Outside("replaced_forward", f"{name} is replaced on the instance")
    return state


def check_stage(stage: Any, cls: type[nn.Module], name: str, reason: str = "foreign_stage") -> dict[str, Any]:
    """Check that a stage is exactly a `cls` that runs its own methods on the arguments it is given.

    Returns:
        Its instance dictionary.

    Raises:
        Outside: it is not; `reason` is used for another type.

    """
    if type(stage) is not cls:
        raise Outside(reason, f"it is a {type(stage).__name__} and not exactly nn.{cls.__name__}", name)
    state = stage.__dict__
    for method in _REPLACEABLE[cls]:
        if method in state:
            raise Outside("replaced_forward", f"{method} is replaced on the instance", name)
    if state["_forward_pre_hooks"]:
        raise Outside("stage_hooks", "it has a forward pre-hook", name)
    return state
