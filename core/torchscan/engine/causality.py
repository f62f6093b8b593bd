"""Does an output position of a whole model depend on a later input token?

Asked of the real model, custom code included, by experiment: gradients where autograd passes, replaced tokens where it
does not. What a gradient and a replaced token can show: docs/explanation/token-relations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import attrs
import torch
from torch import nn

from torchscan.contract.call import bind
from torchscan.engine.experiment import Experiment, QuestionError, token_axis, token_pool
from torchscan.engine.replay import Replay

__all__ = ["CausalityResult", "check_causal"]

Matrix = tuple[tuple[bool, ...], ...]

#: The largest relative change in double precision that can be rounding.
_ROUNDING = 1e-10

#: The most positions along one side of the picture in a printed result.
_PICTURE = 48


@attrs.frozen
class CausalityResult:
    """What `check_causal` observed.

    Args:
        causal: no output position depends on a later input position, and every output position could be judged.
        matrix: `[i][j]` says whether output position i was seen to depend on input position j.
        method: `jacobian` (gradients) or `perturbation` (replaced input tokens) found the matrix.
        draws: the number of random draws of inputs; the first is the caller's own.
        leak: the first leaking (output, input) pair, in order of outputs, then inputs; `None` where there is none.
        argument: the argument whose tokens were looked at.
        axis: its token axis.
        output_axis: the token axis of the output.
        offset: output i may depend on inputs up to i + offset.
        training: the model ran in training mode.
        undefined: output positions that were NaN in every draw, so that nothing can be said of them.
        notes: what else a reader should know.

    """

    causal: bool
    matrix: Matrix
    method: Literal["jacobian", "perturbation"]
    draws: int
    leak: tuple[int, int] | None = None
    argument: str = ""
    axis: int = 1
    output_axis: int = 1
    offset: int = 0
    training: bool = False
    undefined: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.causal

    @property
    def leaks(self) -> tuple[tuple[int, int], ...]:
        """Every leaking (output, input) pair."""
        return tuple(_leaks(self.matrix, self.offset))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data, with the number of leaking pairs."""
        found = attrs.asdict(self)
        found["leak"] = None if self.leak is None else list(self.leak)
        found["matrix"] = [list(row) for row in self.matrix]
        found["undefined"], found["notes"] = list(self.undefined), list(self.notes)
        found["leaks"] = len(self.leaks)
        return found

    def __str__(self) -> str:
        if self.leak is not None:
            more = len(self.leaks) - 1
            verdict = f"NOT causal: output position {self.leak[0]} depends on input position {self.leak[1]}"
            verdict += f" (and {more} more such pair{'s' * (more > 1)})" if more else ""
        elif not self.causal:
            verdict = f"not shown to be causal: output positions {_listed(self.undefined)} are NaN"
        else:
            verdict = "causal: no output position depends on a later input position"
        draws = f"{self.draws} draw{'s' * (self.draws != 1)}"
        how = f"{self.argument}, {len(self.matrix)} outputs x {len(self.matrix[0])} inputs, {self.method}, {draws}"
        lines = [f"{verdict} [{how}{', training mode' * self.training}]"]
        lines += [f"note: {note}" for note in self.notes]
        if max(len(self.matrix), len(self.matrix[0])) <= _PICTURE:
            lines += ["  " + self._picture_row(i) for i in range(len(self.matrix))]
            if self.leak is not None:
                lines.append("  (outputs downwards, inputs to the right: # depends, ! depends on a later input)")
        return "\n".join(lines)

    def _picture_row(self, i: int) -> str:
        if i in self.undefined:
            return "?" * len(self.matrix[i])
        return "".join(
            "." if not cell else "!" if j > i + self.offset else "#" for j, cell in enumerate(self.matrix[i])
        )


def _leaks(matrix: Matrix, offset: int) -> Iterator[tuple[int, int]]:
    for i, row in enumerate(matrix):
        yield from ((i, j) for j in range(max(i + offset + 1, 0), len(row)) if row[j])


def _listed(positions: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, positions[:5]))
    return shown if len(positions) <= 5 else f"{shown} and {len(positions) - 5} more"


# -- the question ----------------------------------------------------------------------------------------------------


def _candidates(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return every tensor of the call that can hold tokens, by argument name; an inner one as `name[key]`."""

    def walk(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(value, torch.Tensor):
            if value.dtype is not torch.bool and value.dim() > 0:
                yield name, value
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from walk(f"{name}[{key}]", item)
        elif isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                yield from walk(f"{name}[{index}]", item)

    return dict(pair for name, value in bind(module.forward, args, kwargs).items() for pair in walk(name, value))


def _argument(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], wanted: str | int | None
) -> tuple[str, torch.Tensor]:
    found = _candidates(module, args, kwargs)
    listed = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in found.items()) or "none"
    if not found:
        raise QuestionError("the call has no tensor argument with tokens; pass args=(x,) or kwargs={...}")
    if wanted is None:
        return next(iter(found.items()))
    if type(wanted) is int:
        if not 0 <= wanted < len(args):
            raise QuestionError(f"argument={wanted} is no position of the {len(args)} positional arguments")
        for name, tensor in found.items():
            if tensor is args[wanted]:
                return name, tensor
        raise QuestionError(f"argument={wanted} is no tensor with tokens; the call has {listed}")
    if not isinstance(wanted, str):
        raise TypeError(f"argument must be a name or a position, got {type(wanted).__name__}")
    if wanted in found:
        return wanted, found[wanted]
    # A key inside a mapping, or caught by **kwargs, goes by its own name as well.
    inner = [(name, tensor) for name, tensor in found.items() if name.endswith(f"[{wanted}]")]
    if len(inner) == 1:
        return inner[0]
    raise QuestionError(f"argument={wanted!r} is no tensor argument of this call; it has {listed}")


def check_causal(
    module: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    argument: str | int | None = None,
    axis: int = 1,
    output: str | int | Callable[[Any], Any] | None = None,
    output_axis: int | None = None,
    offset: int = 0,
    draws: int = 3,
    method: Literal["auto", "jacobian", "perturbation"] = "auto",
    training: bool = False,
    vocabulary: int | None = None,
    seed: int = 0,
) -> CausalityResult:
    """Find out whether an output position of the whole model depends on a later input token.

    Args:
        module: the model, custom code and all. It is left as it was: flags, parameters, buffers, attributes, hooks and
            the random state.
        args: positional arguments of one call; the first draw looks at this very input.
        kwargs: keyword arguments of that call.
        argument: the argument that holds the tokens, by name or position; by default the first tensor of the call.
            Wherever the same tensor object is passed, it changes.
        axis: its token axis; 1 for (batch, tokens, ...), 0 for (tokens, batch, ...).
        output: which part of the output to look at: a key, an attribute, an index, or a function of the output; by
            default the first tensor that has the axis.
        output_axis: its token axis; by default that of the argument.
        offset: output i may depend on inputs up to i + offset; -1 for a model that must not see the own token, or
            whose output has one extra position in front.
        draws: how many random inputs to look at, the caller's own included. What any of them shows counts.
        method: `jacobian` differentiates, at the argument itself or, for token ids, at what their `nn.Embedding`
            returns; `perturbation` replaces one token after the other, which serves code that autograd cannot pass.
            `auto` differentiates where it can, and where it then finds no leak, replaces everything behind each
            position as well, which gradients may not see.
        training: run in training mode, to see a leak through batch statistics. Random numbers are the same in
            every run, so dropout does not disturb the comparison.
        vocabulary: how many token ids there are; by default that of the `nn.Embedding` that receives them.
        seed: of the random draws.

    Returns:
        The observed dependencies and the verdict.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: there is no such argument, axis or output; gradients were asked for and do not pass; or the
            output's shape depends on the values of the tokens.

    Example:
        ```python
        result = torchscan.check_causal(model, (ids,))
        assert result, str(result)
        ```

    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(args, tuple | list):
        raise TypeError(f"args must be a tuple of positional arguments, got {type(args).__name__}; write args=(x,)")
    if method not in ("auto", "jacobian", "perturbation"):
        raise QuestionError(f"method must be 'auto', 'jacobian' or 'perturbation', got {method!r}")
    if type(offset) is not int or type(draws) is not int:
        raise TypeError("offset and draws must be ints")
    if draws < 1:
        raise QuestionError(f"draws must be at least 1, got {draws}")
    args, kwargs = tuple(args), dict(kwargs or {})
    name, tensor = _argument(module, args, kwargs, argument)
    axis = token_axis("axis", axis, tensor)
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(module, args, kwargs, training=training)
    experiment = Experiment(
        replay, module, tensor, axis, output, axis if output_axis is None else output_axis, offset, generator
    )
    with replay.session():
        return _observe(experiment, module, name, draws, method, training, vocabulary)


def _observe(
    experiment: Experiment,
    module: nn.Module,
    name: str,
    draws: int,
    method: str,
    training: bool,
    vocabulary: int | None,
) -> CausalityResult:
    tensor = experiment.original.detach()
    differentiable = tensor.is_floating_point() or tensor.is_complex()
    if differentiable:
        first = experiment.rows(tensor)
    else:
        outputs: list[torch.Tensor] = []
        experiment.pool = token_pool(module, tensor, vocabulary, lambda: outputs.append(experiment.rows(tensor)))
        first = outputs[0]
    _listen(experiment, first)
    bases = [tensor, *(experiment.draw() for _ in range(draws - 1))]
    found = None
    used: Literal["jacobian", "perturbation"] = "jacobian"
    if method != "perturbation":
        found = _union(experiment.jacobian, bases)
        if found is None and method == "jacobian":
            reason = experiment.notes[-1] if experiment.notes else "the output has no finite gradient at this argument"
            raise QuestionError(f"no Jacobian: {reason}; use method='perturbation'")
        closed = found is not None and method == "auto" and not _leaking(found, experiment.offset)
        if closed and experiment.future_matters(bases[-1]):
            replaced = _replaced(experiment, bases, first, found)
            if _leaking(replaced, experiment.offset):
                assert found is not None
                experiment.notes.append("gradients show no leak, yet later tokens change earlier outputs")
                found, used = found | replaced, "perturbation"
    if found is None:
        found, used = _replaced(experiment, bases, first, None), "perturbation"
    undefined = _undefined(experiment, first, bases[1:])
    if not bool(found.any()):
        experiment.notes.append("nothing depends on this argument at all: is a weight zero, or the argument unused?")
    matrix = tuple(tuple(row) for row in found.tolist())
    leak = next(_leaks(matrix, experiment.offset), None)
    return CausalityResult(
        leak is None and not undefined,
        matrix,
        used,
        draws,
        leak,
        name,
        experiment.axis,
        experiment.output_axis,
        experiment.offset,
        training,
        undefined,
        tuple(dict.fromkeys(experiment.notes)),
    )


def _union(look: Callable[[torch.Tensor], torch.Tensor | None], bases: list[torch.Tensor]) -> torch.Tensor | None:
    """Return what any base shows, `None` as soon as one shows nothing."""
    found: torch.Tensor | None = None
    for base in bases:
        seen = look(base)
        if seen is None:
            return None
        found = seen if found is None else torch.maximum(found, seen)
    return found


def _replaced(
    experiment: Experiment, bases: list[torch.Tensor], first: torch.Tensor, gradients: torch.Tensor | None
) -> torch.Tensor:
    """Return which output positions change with which single input position, by more than rounding.

    A kernel may round one token's numbers otherwise when another token changes: a mixture of experts multiplies other
    batches then. A change of that size is looked at again in double precision, where rounding is far smaller; where
    the model cannot run in it, a change that no gradient explains either is taken for rounding.
    """
    sizes = _union(experiment.perturbed, bases)
    assert sizes is not None
    found = sizes > 0
    precision = torch.finfo(first.dtype).eps if first.is_floating_point() or first.is_complex() else 0.0
    doubtful = found & (sizes <= max(1e-3, 16 * precision))
    if not _leaking(doubtful, experiment.offset):
        return found
    precise = _union(experiment.in_double, bases)
    if precise is not None:
        rounding, witness = doubtful & (precise <= _ROUNDING), "in double precision they stay the same"
    elif gradients is not None:
        rounding, witness = doubtful & ~gradients, "they have no gradient, and there is no double precision to ask"
    else:
        experiment.notes.append("some changes are as small as rounding, and nothing can tell whether they are")
        return found
    if bool(rounding.any()):
        size = float(sizes[rounding].max())
        experiment.notes.append(f"relative changes up to {size:.0e} are not counted, as rounding: {witness}")
    return found & ~rounding


def _leaking(found: torch.Tensor, offset: int) -> bool:
    return bool(found.triu(offset + 1).any())


def _listen(experiment: Experiment, first: torch.Tensor) -> None:
    """Find out how much the output differs when nothing does."""
    again = experiment.rows(experiment.original.detach())
    if not bool(experiment.changes(first, again).any()):
        return
    if first.is_floating_point() or first.is_complex():
        experiment.noise = 10 * float((first - again).abs().nan_to_num(0.0).max())
    experiment.notes.append(
        "the model is not deterministic: two equal calls differ"
        + (f"; changes up to {experiment.noise:.1e} count as noise" if experiment.noise else "")
    )


def _undefined(experiment: Experiment, first: torch.Tensor, others: list[torch.Tensor]) -> tuple[int, ...]:
    """Return the output positions that are NaN throughout, in the first output and in those of all other bases."""
    empty = (first != first).all(1)
    for base in others:
        if not bool(empty.any()):
            break
        rows = experiment.rows(base)
        empty &= (rows != rows).all(1)
    return tuple(empty.nonzero().flatten().tolist())
