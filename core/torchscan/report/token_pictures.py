"""Pictures of token relations: a small matrix of input positions by output positions.

Calls with the same relations share one picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from torchscan.contract.tokens import Relation, Source, TokenDependencies
from torchscan.report.schema import LayerRecord

__all__ = ["CELLS", "Picture", "TokenCard", "in_words", "picture", "token_cards"]

#: The most cells that a picture has along one side.
CELLS: Final = 24


@attrs.frozen
class Picture:
    """One source of a relation, as cells.

    Args:
        arguments: the argument names of the source.
        relation: the relation in words.
        rows: one text per row of cells, output positions downwards and input positions to the right: `#` where every
            pair of positions behind the cell is related, `+` where some are, `.` where none is.
        output_length: T, the output positions.
        input_length: S, the input positions.
        cell: output and input positions behind one cell; the last cell of a row or column can hold fewer.

    """

    arguments: tuple[str, ...]
    relation: str
    rows: tuple[str, ...]
    output_length: int
    input_length: int
    cell: tuple[int, int]

    def outline(self, mark: str) -> str:
        """Return the cells marked `mark` as an SVG path in units of one cell, a rectangle per run."""
        parts = []
        for y, row in enumerate(self.rows):
            x = 0
            while x < len(row):
                end = x
                while end < len(row) and row[end] == mark:
                    end += 1
                if end > x:
                    parts.append(f"M{x} {y}h{end - x}v1H{x}z")
                x = end + 1
        return "".join(parts)


@attrs.frozen
class TokenCard:
    """The calls that share their token relations.

    Args:
        pictures: one per source; none where the relation is unavailable.
        types: the types of these calls.
        paths: their paths, in order, each once.
        calls: how many calls they are.
        assumptions: what the relation rests on.
        reason: why it is unavailable.

    """

    pictures: tuple[Picture, ...]
    types: tuple[str, ...]
    paths: tuple[str, ...]
    calls: int
    assumptions: tuple[str, ...]
    reason: str | None


def picture(source: Source, output_length: int) -> Picture:
    """Return the picture of one source.

    Args:
        source: the source, with its length and relation.
        output_length: T, the output positions.

    """
    height = -(-output_length // CELLS)
    width = -(-source.length // CELLS)
    rows = tuple(
        "".join(
            _mark(
                source.relation,
                range(top, min(top + height, output_length)),
                range(left, min(left + width, source.length)),
            )
            for left in range(0, source.length, width)
        )
        for top in range(0, output_length, height)
    )
    return Picture(source.arguments, _words(source.relation), rows, output_length, source.length, (height, width))


def _mark(relation: Relation, outputs: range, inputs: range) -> str:
    """Say how many pairs of a block are related, from its corners: every row of a relation is one interval."""
    first = relation.first_position or 0
    limit = inputs.stop if relation.limit is None else relation.limit
    active = range(max(outputs.start, first), outputs.stop)
    if relation.kind == "none" or not active or inputs.start >= limit:
        return "."
    whole = active.start == outputs.start and inputs.stop <= limit
    if relation.kind == "all":
        return "#" if whole else "+"
    if relation.kind == "prefix":
        if inputs.start > active.stop - 1:
            return "."
        return "#" if whole and inputs.stop - 1 <= active.start else "+"
    met = range(max(active.start, inputs.start), min(active.stop, inputs.stop, limit))
    if not met:
        return "."
    return "#" if len(outputs) == len(inputs) == 1 else "+"


def _words(relation: Relation) -> str:
    meaning = {
        "all": "every output depends on every input",
        "same_position": "every output depends on the input at its own position",
        "prefix": "every output depends on the inputs up to its own position",
        "none": "no output depends on it",
    }[relation.kind]
    if relation.limit is not None:
        meaning += f", of the first {relation.limit} inputs only"
    if relation.first_position:
        meaning += f"; outputs before position {relation.first_position} depend on none"
    return meaning


def in_words(tokens: TokenDependencies) -> str:
    """Return the relations of one call as a sentence."""
    if tokens.status != "complete":
        return f"unavailable: {tokens.reason}" if tokens.reason else "unavailable"
    return ". ".join(f"{', '.join(source.arguments)}: {_words(source.relation)}" for source in tokens.sources)


def token_cards(layers: Iterable[LayerRecord]) -> list[TokenCard]:
    """Return one card per distinct relation, in the order of first appearance; unavailable ones come last."""
    groups: dict[object, list[LayerRecord]] = {}
    for layer in layers:
        tokens = layer.token_dependencies
        if tokens is None:
            continue
        length = tokens.output.length if tokens.output else None
        key = (tokens.status, tokens.reason, tokens.sources, length, tokens.assumptions)
        groups.setdefault(key, []).append(layer)
    cards = [_card(group) for group in groups.values()]
    return sorted(cards, key=lambda card: not card.pictures)


def _card(group: list[LayerRecord]) -> TokenCard:
    tokens = group[0].token_dependencies
    assert tokens is not None, "a group holds calls with token dependencies"
    pictures = tuple(picture(source, tokens.output.length) for source in tokens.sources) if tokens.output else ()
    return TokenCard(
        pictures,
        tuple(dict.fromkeys(layer.type for layer in group)),
        tuple(dict.fromkeys(layer.path or "(root)" for layer in group)),
        len(group),
        tokens.assumptions,
        tokens.reason,
    )
