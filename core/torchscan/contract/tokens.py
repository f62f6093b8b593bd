"""Token relations: which input positions may affect an output position.

Derivation and pictures: docs/explanation/token-relations.md.
"""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["Output", "Relation", "RelationKind", "Source", "TokenDependencies"]

RelationKind = Literal["all", "same_position", "prefix", "none"]


@attrs.frozen
class Relation:
    """The input positions that may affect output position `i`, zero-based.

    Args:
        kind: `all` (0 to limit-1), `same_position` (i), `prefix` (0 to min(i+1, limit)-1) or `none`.
        limit: the number of input positions that can matter; `None` is the input length.
        first_position: the first output position with a dependency; `None` is 0.

    """

    kind: RelationKind
    limit: int | None = None
    first_position: int | None = None


@attrs.frozen
class Source:
    """One distinct input tensor.

    Args:
        arguments: the argument names that are this same tensor object, in signature order.
        sequence_axis: its token axis.
        length: its number of tokens.
        relation: how output positions depend on it.

    """

    arguments: tuple[str, ...]
    sequence_axis: int
    length: int
    relation: Relation


@attrs.frozen
class Output:
    """The token axis of the main output tensor."""

    sequence_axis: int
    length: int


@attrs.frozen
class TokenDependencies:
    """Structural dependencies of a call's main output tensor on its input tokens.

    Args:
        status: `complete`, or `unavailable`, which has neither output nor sources.
        sources: per distinct tensor, in signature order.
        output: the token axis of the main output.
        assumptions: what the relation rests on.
        method: who derived it; filled in by the scan when empty.
        reason: why it is unavailable, machine-readable.
        message: the same for people; becomes the diagnostic and is not part of the report row.

    """

    status: Literal["complete", "unavailable"]
    sources: tuple[Source, ...] = ()
    output: Output | None = None
    assumptions: tuple[str, ...] = ()
    method: str = ""
    scope: str = "module_call"
    reason: str | None = None
    message: str | None = None

    @classmethod
    def unavailable(cls, reason: str, message: str | None = None) -> TokenDependencies:
        """Return an unavailable relation with its machine-readable reason."""
        return cls("unavailable", reason=reason, message=message)
