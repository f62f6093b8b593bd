"""`TokenDependencies`: the token relations of one call, as a handler gives them and a report row keeps them.

What they mean: docs/explanation/token-relations.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import attrs

from torchscan.contract.relations import Relation, RelationKind
from torchscan.contract.validators import instance, integer

__all__ = ["Output", "Relation", "RelationKind", "Source", "TokenDependencies", "describe"]


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"Source.arguments must be a tuple of argument names, got {value!r}")
    names = tuple(value)
    if not names:
        raise ValueError("Source.arguments must name at least one argument")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"Source.arguments must be strings, got {type(name).__name__}")
    if len(set(names)) != len(names):
        raise ValueError(f"Source.arguments names an argument twice: {', '.join(names)}")
    return names


def _within(relation: Relation, name: str, output_length: int | None, input_length: int) -> None:
    """Refuse a limit beyond the input, or a first position beyond the output."""
    if relation.limit is not None and relation.limit > input_length:
        raise ValueError(f"{name}: relation.limit is {relation.limit}, but the input has {input_length} positions")
    if output_length is not None and (relation.first_position or 0) >= output_length:
        raise ValueError(
            f"{name}: relation.first_position is {relation.first_position}, "
            f"but the output has {output_length} positions; use the kind 'none'"
        )


@attrs.frozen
class Source:
    """One distinct input tensor.

    Args:
        arguments: the argument names that are this same tensor object, in signature order.
        sequence_axis: its token axis, counted from the front.
        length: its number of tokens.
        relation: how output positions depend on it; its limit lies within the length.

    Raises:
        TypeError, ValueError: a field is not of that form; the message names it.

    """

    arguments: tuple[str, ...] = attrs.field(converter=_names)
    sequence_axis: int = attrs.field(validator=integer(0))
    length: int = attrs.field(validator=integer(1))
    relation: Relation = attrs.field(validator=instance(Relation))

    def __attrs_post_init__(self) -> None:
        _within(self.relation, f"source {'/'.join(self.arguments)}", None, self.length)


@attrs.frozen
class Output:
    """The token axis of the main output tensor.

    Args:
        sequence_axis: the axis, counted from the front.
        length: its number of tokens.

    """

    sequence_axis: int = attrs.field(validator=integer(0))
    length: int = attrs.field(validator=integer(1))


def _sources(value: object) -> tuple[Source, ...]:
    if not isinstance(value, Iterable):
        raise TypeError(f"TokenDependencies.sources must be a tuple of Source, got {type(value).__name__}")
    sources = tuple(value)
    for source in sources:
        if not isinstance(source, Source):
            raise TypeError(f"TokenDependencies.sources must be Source objects, got {type(source).__name__}")
    names = [name for source in sources for name in source.arguments]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"TokenDependencies.sources: {twice!r} belongs to two sources")
    return sources


def _sentences(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"TokenDependencies.assumptions must be a tuple of sentences, got {value!r}")
    sentences = tuple(value)
    for sentence in sentences:
        if not isinstance(sentence, str):
            raise TypeError(f"TokenDependencies.assumptions must be strings, got {type(sentence).__name__}")
    return sentences


@attrs.frozen
class TokenDependencies:
    """Structural dependencies of a call's main output tensor on its input tokens.

    Args:
        status: `complete`, or `unavailable`, which has neither output nor sources.
        sources: per distinct tensor, in signature order; at least one where the status is `complete`.
        output: the token axis of the main output.
        assumptions: what the relation rests on, one sentence each.
        method: who derived it; filled in by the scan when empty.
        scope: `module_call`: it describes that call alone.
        reason: why it is unavailable, machine-readable.
        message: the same for people; becomes the diagnostic and is not part of the report row.

    Raises:
        TypeError, ValueError: a field is not of that form; the message names it.

    """

    status: Literal["complete", "unavailable"] = attrs.field()
    sources: tuple[Source, ...] = attrs.field(default=(), converter=_sources)
    output: Output | None = attrs.field(default=None, validator=instance(Output, optional=True))
    assumptions: tuple[str, ...] = attrs.field(default=(), converter=_sentences)
    method: str = attrs.field(default="", validator=instance(str))
    scope: str = attrs.field(default="module_call", validator=instance(str))
    reason: str | None = attrs.field(default=None, validator=instance(str, optional=True))
    message: str | None = attrs.field(default=None, validator=instance(str, optional=True))

    @status.validator
    def _check_status(self, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in ("complete", "unavailable"):
            raise ValueError(f"TokenDependencies.status must be 'complete' or 'unavailable', got {value!r}")

    def __attrs_post_init__(self) -> None:
        if self.status == "unavailable":
            if self.sources or self.output is not None:
                raise ValueError("an unavailable TokenDependencies has neither sources nor output")
            return
        if self.output is None:
            raise ValueError("a complete TokenDependencies needs its output")
        if not self.sources:
            raise ValueError("a complete TokenDependencies needs a source; no dependency is the relation 'none'")
        if self.reason is not None:
            raise ValueError(f"a complete TokenDependencies has no reason, got {self.reason!r}")
        for source in self.sources:
            _within(source.relation, f"source {'/'.join(source.arguments)}", self.output.length, source.length)

    @classmethod
    def unavailable(cls, reason: str, message: str | None = None) -> TokenDependencies:
        """Return an unavailable relation.

        Args:
            reason: why, as a short machine-readable name.
            message: why, as a sentence, with the remedy where there is one.

        """
        return cls("unavailable", reason=reason, message=message)

    def canonical(self) -> TokenDependencies:
        """Return the same dependencies with every relation in its canonical form."""
        if self.output is None:
            return self
        length = self.output.length
        relations = [source.relation.canonical(length, source.length) for source in self.sources]
        if all(source.relation == relation for source, relation in zip(self.sources, relations, strict=True)):
            return self
        pairs = zip(self.sources, relations, strict=True)
        return attrs.evolve(self, sources=tuple(attrs.evolve(source, relation=found) for source, found in pairs))


_WORDS = {"all": "all", "same_position": "local", "prefix": "causal", "none": "none"}
_SOURCE_WORDS = {"all": "source", "same_position": "local source", "prefix": "causal source"}
#: What PyTorch calls the tensor whose positions are those of the output.
_TARGETS = frozenset(("query", "tgt"))


def describe(dependencies: TokenDependencies | None) -> str:
    """Return the dependencies in a word or two, for a table cell.

    Args:
        dependencies: those of one call, or `None` where there are none.

    Returns:
        `all`, `causal`, `local` or `none` for the tensor whose positions the output has, then what the other tensors
        add, such as `local + source` (cross-attention) or `causal + source` (a decoder). `[:4]` says that only the
        first four positions matter. `?` where it is unavailable, and nothing where there are no dependencies at all.

    """
    if dependencies is None:
        return ""
    if dependencies.status != "complete":
        return "?"
    sources = dependencies.sources
    target = next((source for source in sources if not _TARGETS.isdisjoint(source.arguments)), sources[0])
    words: list[str] = []
    for source in (target, *(other for other in sources if other is not target)):
        relation = source.relation
        if relation.kind == "none":
            continue
        word = (_WORDS if source is target else _SOURCE_WORDS)[relation.kind]
        word += "" if relation.limit is None else f"[:{relation.limit}]"
        if word not in words:
            words.append(word)
    return " + ".join(words) or "none"
