"""The experiments behind `check_causal`: differentiate one call, or replace tokens and compare its outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import torch
from torch import nn

from torchscan.contract.errors import TorchScanError
from torchscan.engine.replay import Replay

__all__ = ["Experiment", "QuestionError", "token_axis", "token_pool"]


class QuestionError(TorchScanError, ValueError):
    """What is asked does not fit the call: it is no error of the model."""


def token_axis(name: str, axis: object, tensor: torch.Tensor) -> int:
    """Return `axis` counted from the front.

    Raises:
        TypeError, ValueError: it is no axis of `tensor`, or holds no token; the message calls it `name`.

    """
    if type(axis) is not int:
        raise TypeError(f"{name} must be an int, got {type(axis).__name__}")
    if not -tensor.dim() <= axis < tensor.dim():
        raise QuestionError(f"{name}={axis} is no axis of a tensor of shape {tuple(tensor.shape)}")
    axis %= tensor.dim()
    if tensor.shape[axis] == 0:
        raise QuestionError(f"{name}={axis} of a tensor of shape {tuple(tensor.shape)} holds no token")
    return axis


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))


def _select(output: Any, selector: str | int | Callable[[Any], Any] | None, axis: int) -> torch.Tensor:
    """Return the tensor of `output` to look at: the selected one, or the first that has the axis."""
    if selector is None:
        for tensor in _tensors(output):
            if -tensor.dim() <= axis < tensor.dim():
                return tensor
        raise QuestionError(
            f"the output has no tensor with axis {axis}; name one with output=, or another output_axis="
        )
    if callable(selector):
        found = selector(output)
    else:
        try:
            named = isinstance(selector, str) and not isinstance(output, Mapping) and hasattr(output, selector)
            found = getattr(output, str(selector)) if named else output[selector]
        except (KeyError, IndexError, TypeError, AttributeError):
            raise QuestionError(f"output={selector!r} selects nothing from a {type(output).__name__}") from None
    if not isinstance(found, torch.Tensor):
        raise QuestionError(f"output={selector!r} selects a {type(found).__name__} and no tensor")
    return found


@attrs.define
class Experiment:
    """One call of one model, with other tokens every time."""

    replay: Replay
    module: nn.Module
    original: torch.Tensor
    axis: int
    selector: str | int | Callable[[Any], Any] | None
    output_axis: int
    offset: int
    generator: torch.Generator
    pool: torch.Tensor | None = None  # the token ids to draw from
    noise: float = 0.0
    notes: list[str] = attrs.field(factory=list)

    @property
    def tokens(self) -> int:
        """The number of input positions."""
        return self.original.shape[self.axis]

    @contextlib.contextmanager
    def output(self, value: torch.Tensor, *, gradients: bool = False) -> Iterator[torch.Tensor]:
        """Yield the output for these tokens, its token axis first and everything else flat behind it."""
        with self.replay.run(self.original, value, gradients=gradients) as output:
            tensor = _select(output, self.selector, self.output_axis)
            axis = token_axis("output_axis", self.output_axis, tensor)
            yield tensor.movedim(axis, 0).reshape(tensor.shape[axis], -1)

    def rows(self, value: torch.Tensor) -> torch.Tensor:
        """Return the output for these tokens, detached."""
        with self.output(value.clone()) as output:
            return output.detach().clone()

    def draw(self) -> torch.Tensor:
        """Return other values for every token: ids of the vocabulary, or normal numbers of the same mean and spread."""
        original = self.original.detach()
        if self.pool is not None:
            return self._other_ids(original)
        wide = original.to(torch.complex128 if original.is_complex() else torch.float64)
        noise = torch.randn(original.shape, generator=self.generator, dtype=wide.dtype).to(original.device)
        spread = float(wide.abs().std()) if original.numel() > 1 else 0.0
        scale = spread if 0.0 < spread < float("inf") else 1.0
        mean = wide.mean()
        return (torch.where(torch.isfinite(mean.abs()), mean, 0.0) + scale * noise).to(original.dtype)

    def _other_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return an id of the pool for every id, never the same one; ids outside the pool (padding) stay."""
        assert self.pool is not None
        pool = self.pool
        index = torch.randint(len(pool), ids.shape, generator=self.generator).to(ids.device)
        drawn = torch.where(pool[index] == ids, pool[(index + 1) % len(pool)], pool[index]).to(ids.dtype)
        return torch.where(torch.isin(ids, pool), drawn, ids)

    def replaced(self, base: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Return `base` with other tokens from `start` up to, not including, `stop`."""
        value = base.clone()
        other = self._other_ids(base) if self.pool is not None else self.draw()
        where = [slice(None)] * base.dim()
        where[self.axis] = slice(start, stop)
        value[tuple(where)] = other[tuple(where)]
        return value

    def changes(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """Return per output position the largest change, relative to the largest output; NaN that stays NaN is none."""
        if before.shape != after.shape:
            raise QuestionError(
                f"the output changes its shape with the values of the tokens ({tuple(before.shape)}, then "
                f"{tuple(after.shape)}), so its positions cannot be compared"
            )
        differ = (before != after) & ~((before != before) & (after != after))
        size = torch.full(before.shape, torch.inf, dtype=torch.float64, device=before.device)
        if before.is_floating_point() or before.is_complex():
            finite = torch.isfinite(before) & torch.isfinite(after)
            size = torch.where(finite, (after - before).abs().double(), size)
            differ &= ~(finite & (size <= self.noise))
            largest = torch.where(finite, before, 0.0).abs().max().double()
            size = size / torch.where(largest > 0, largest, 1.0)
        return torch.where(differ, size, 0.0).amax(1).cpu()

    def jacobian(self, base: torch.Tensor) -> torch.Tensor | None:
        """Return which outputs have a gradient at which inputs, `None` where autograd does not pass.

        Token ids have no gradient; what their embeddings return has.
        """
        value = base.detach().clone()
        leaves: list[torch.Tensor] = []
        if self.pool is None:
            leaves.append(value.requires_grad_())
            value = value.clone()  # no leaf, so a model may write it in place
        try:
            with self._embeddings(value, leaves), self.output(value, gradients=True) as output:
                if not (leaves and output.requires_grad and bool(torch.isfinite(output).all())):
                    return None
                weights = torch.randn(output.shape, generator=self.generator, dtype=torch.float64)
                weights = weights.to(output.device, output.dtype)
                found = torch.zeros(len(output), self.tokens, dtype=torch.bool)
                for i, (row, weight) in enumerate(zip(output, weights, strict=True)):
                    gradients = torch.autograd.grad(row, leaves, weight, retain_graph=True, allow_unused=True)
                    for gradient in gradients:
                        if gradient is None or not bool(torch.isfinite(gradient).all()):
                            return None
                        found[i] |= (gradient != 0).movedim(self.axis, 0).flatten(1).any(1).cpu()
                return found
        except (RuntimeError, NotImplementedError) as error:
            # The same call without gradients has run before, so this is autograd's complaint and not the model's.
            self.notes.append(f"autograd does not pass: {str(error).splitlines()[0]}")
            return None

    @contextlib.contextmanager
    def _embeddings(self, ids: torch.Tensor, leaves: list[torch.Tensor]) -> Iterator[None]:
        """Let gradients begin at what an embedding returns for these very ids; the new leaves are added to `leaves`."""

        def begin(child: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor) -> Any:
            given = args[0] if args else kwargs.get("input")
            # By address: other ids of equal values (an encoder's) are another argument.
            if isinstance(given, torch.Tensor) and given.shape == ids.shape and given.data_ptr() == ids.data_ptr():
                leaves.append(output.detach().clone().requires_grad_())
                return leaves[-1].clone()
            return None

        handles = [
            child.register_forward_hook(begin, with_kwargs=True)
            for child in self.module.modules()
            if self.pool is not None and isinstance(child, nn.Embedding)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def perturbed(self, base: torch.Tensor) -> torch.Tensor:
        """Return how much each output position changes with each single input position, as `changes` does."""
        before = self.rows(base)
        columns = [self.changes(before, self.rows(self.replaced(base, j, j + 1))) for j in range(self.tokens)]
        return torch.stack(columns, 1)

    def future_matters(self, base: torch.Tensor) -> bool:
        """Return whether other tokens behind some position change an output before it."""
        before = self.rows(base)
        for cut in range(1, self.tokens):
            changed = self.changes(before, self.rows(self.replaced(base, cut, self.tokens)))
            if bool(changed[: max(cut - self.offset, 0)].any()):
                return True
        return False

    def in_double(self, base: torch.Tensor) -> torch.Tensor | None:
        """Return `perturbed` for a copy of the model in double precision, `None` where there is no such copy."""
        if (twin := self.replay.in_double(self.original)) is None:
            return None
        replay, original = twin
        precise = attrs.evolve(self, replay=replay, module=replay.module, original=original, noise=0.0)
        try:
            with replay.session():
                return precise.perturbed(base.double() if base.is_floating_point() else base)
        except Exception:  # a model may insist on its own precision in any way
            return None


def token_pool(module: nn.Module, ids: torch.Tensor, vocabulary: int | None, run: Callable[[], object]) -> torch.Tensor:
    """Return the token ids that may stand for each other, as found in the embedding that the ids reach.

    Args:
        module: the model.
        ids: the token ids of its call.
        vocabulary: how many there are; `None` asks the embedding.
        run: makes that call.

    Raises:
        ValueError: there are fewer than two.

    """
    padding: set[int] = set()
    size = vocabulary
    sizes: list[int] = []

    def look(child: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        value = args[0] if args else kwargs.get("input")
        if (
            isinstance(value, torch.Tensor)
            and value.numel() == ids.numel()
            and bool((value.flatten() == ids.flatten()).all())
        ):
            sizes.append(int(child.num_embeddings))  # type: ignore[arg-type]
            if child.padding_idx is not None:
                padding.add(int(child.padding_idx))  # type: ignore[arg-type]

    handles = [
        child.register_forward_pre_hook(look, with_kwargs=True)
        for child in module.modules()
        if isinstance(child, nn.Embedding)
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    if size is None and sizes:
        size = min(sizes)
    pool = torch.unique(ids) if size is None else torch.arange(size, device=ids.device)
    pool = pool[~torch.isin(pool, torch.tensor(sorted(padding), device=ids.device, dtype=pool.dtype))]
    if len(pool) < 2:
        raise QuestionError(
            "no other token ids to try: no nn.Embedding receives these ids and they hold fewer than two values; "
            "pass vocabulary=N"
        )
    return pool
