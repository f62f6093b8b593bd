"""Is this call one that the formulas describe, and if not, why?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import attrs

import torchscan
from torchscan_transformers.formulas import Counts
from torchscan_transformers.sources import Sources, resolve

COUNTS = ("module_flops", "macs", "dmas")
#: A token module has no spatial geometry.
SPATIAL: dict[str, Any] = {
    "receptive_field": torchscan.NOT_APPLICABLE,
    "effective_stride": torchscan.NOT_APPLICABLE,
    "effective_padding": torchscan.NOT_APPLICABLE,
}


class Unsupported(Exception):
    """A call outside the formulas.

    Attributes:
        reason: why, machine-readable.
        message: why, and the remedy.

    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


#: What a call costs, or estimates with a state in place of some of the counts; none at all leaves the call to others.
Estimate = Callable[..., Counts | dict[str, Any]]
Relate = Callable[..., torchscan.TokenDependencies]


@attrs.frozen
class Guarded:
    """A handler for one class of the library: the guard, then the formulas.

    Attributes:
        target: the class, `module:Name`.
        sources: the functions of the library that the formulas describe.
        counts: FLOPs, MACs and DMAs of a call that passed the guard; may raise `Unsupported`.
        tokens: its token relation, where it has one; may raise `Unsupported`.
        read: what both want to know of a call; they get it as a second argument. May raise `Unsupported`.

    """

    target: str
    sources: Sources = attrs.field(converter=Sources)
    counts: Estimate
    tokens: Relate | None = None
    read: Callable[[torchscan.ModuleCall], Any] | None = None

    def __call__(self, call: torchscan.ModuleCall) -> dict[str, Any]:
        """Return the estimates of one call, `{}` where another `forward` ran, or why there are none."""
        if not runs(call.module, self.target):
            return {}
        tokens = self.tokens if "token_dependencies" in call.requested else None
        try:
            self._check(call.module)
            facts = () if self.read is None else (self.read(call),)
        except Unsupported as error:
            return _answer(error, error if tokens is not None else None)
        found: Counts | dict[str, Any] | Unsupported
        relation: torchscan.TokenDependencies | Unsupported | None = None
        try:
            found = self.counts(call, *facts)
        except Unsupported as error:
            found = error
        if tokens is not None:
            try:
                relation = tokens(call, *facts)
            except Unsupported as error:
                relation = error
        return _answer(found, relation)

    def handler(self) -> Callable[[torchscan.ModuleCall], dict[str, Any]]:
        """Return this as a function that goes by the name of its formula, which is what reports say as the method."""

        def answer(call: torchscan.ModuleCall) -> dict[str, Any]:
            return self(call)

        answer.__module__, answer.__qualname__ = self.counts.__module__, self.counts.__qualname__
        return answer

    def _check(self, module: Any) -> None:
        if (changed := self.sources.first_unverified()) is not None:
            version = getattr(sys.modules.get("transformers"), "__version__", "?")
            raise Unsupported(
                "unverified_source",
                f"{changed} of transformers {version} is none that this torchscan-transformers was tested with; "
                "install a newer torchscan-transformers, or an older transformers",
            )
        if module.training:
            raise Unsupported("training_mode", "the formulas describe evaluation mode; call model.eval() first")


def _answer(
    found: Counts | dict[str, Any] | Unsupported, relation: torchscan.TokenDependencies | Unsupported | None
) -> dict[str, Any]:
    """Return estimates, reasons in place of what is missing."""
    if isinstance(found, Counts):
        found = found._asdict()
    elif isinstance(found, Unsupported):
        found = dict.fromkeys(COUNTS, torchscan.Unavailable(found.reason, message=found.message))
    answer = {**SPATIAL, **found}
    if isinstance(relation, Unsupported):
        relation = torchscan.TokenDependencies.unavailable(relation.reason, relation.message)
    if relation is not None:
        answer["token_dependencies"] = relation
    return answer


def runs(module: Any, target: str) -> bool:
    """Say whether the `forward` that runs for a module is the one of the class `target`.

    The library wraps the `forward` of every subclass of its checkpointing layer again; a wrapper by the same code
    around the known `forward` is the known one too.
    """
    if "forward" in vars(module):
        return False
    known = getattr(resolve(target), "forward", None)
    if known is None:
        return False
    forward = type(module).forward
    while forward is not known:
        if getattr(forward, "__code__", None) is not getattr(known, "__code__", None):
            return False
        forward = getattr(forward, "__wrapped__", None)
    return True


def token_features(tensor: Any) -> tuple[int, int, int]:
    """Return (B, T, E) of a tensor of token features.

    Raises:
        Unsupported: it is no dense real floating-point tensor of that shape.

    """
    dense(tensor)
    if tensor.dim() != 3:
        raise Unsupported("unsupported_shape", "the formulas describe features of shape (batch, tokens, features)")
    batch, length, width = tensor.shape
    return batch, length, width


def dense(tensor: Any) -> Any:
    """Return a tensor that a formula can describe: dense, strided, real, floating point.

    Raises:
        Unsupported: it is something else.

    """
    if str(getattr(tensor, "layout", None)) != "torch.strided" or tensor.is_nested:
        raise Unsupported("unsupported_layout", "only dense strided tensors have a formula")
    if not tensor.is_floating_point():
        raise Unsupported("unsupported_dtype", "only real floating-point tensors have a formula")
    return tensor
