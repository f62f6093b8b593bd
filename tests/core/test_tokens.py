from __future__ import annotations

import subprocess
import sys
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import torchscan
from torchscan import ModuleCall, Output, Relation, Source, TokenDependencies
from torchscan.contract.token_checks import check_token_dependencies, main_tensor
from torchscan.contract.tokens import describe


def test_the_four_relations_are_what_the_table_says() -> None:
    # Three outputs, four inputs; `limit` cuts columns, `first_position` empties the rows above it.
    assert Relation("all").matrix(3, 4) == ((True,) * 4,) * 3
    assert Relation("all", limit=2).matrix(2, 4) == ((True, True, False, False),) * 2
    assert Relation("same_position").matrix(2, 3) == ((True, False, False), (False, True, False))
    assert Relation("same_position").matrix(3, 1) == ((True,), (False,), (False,))
    assert Relation("prefix").matrix(3, 3) == ((True, False, False), (True, True, False), (True, True, True))
    assert Relation("prefix", limit=2).matrix(3, 3) == ((True, False, False), (True, True, False), (True, True, False))
    assert Relation("prefix", first_position=1).matrix(2, 2) == ((False, False), (True, True))
    assert Relation("none").matrix(2, 2) == ((False, False), (False, False))


@pytest.mark.parametrize(
    ("relation", "lengths", "canonical"),
    [
        (Relation("all", limit=4), (3, 4), Relation("all")),  # a limit that cuts nothing
        (Relation("prefix", limit=3), (3, 5), Relation("prefix")),  # row 2 reaches input 2 and no further
        (Relation("prefix"), (1, 1), Relation("all")),  # one token sees itself
        (Relation("same_position"), (1, 1), Relation("all")),
        (Relation("prefix"), (4, 1), Relation("all")),  # every row sees the only input
        (Relation("prefix", first_position=1), (3, 2), Relation("all", first_position=1)),
        (Relation("all", first_position=3), (3, 2), Relation("none")),  # no row is left
        (Relation("same_position", first_position=2), (4, 2), Relation("none")),  # input 2 does not exist
        (Relation("all", first_position=0), (2, 2), Relation("all")),
        (Relation("all", limit=1), (1, 3), Relation("same_position")),  # said without a qualifier
        (Relation("prefix", 2, 1), (4, 3), Relation("all", 2, 1)),  # every row from 1 on sees inputs 0 and 1
    ],
)
def test_canonical_form(relation: Relation, lengths: tuple[int, int], canonical: Relation) -> None:
    assert relation.canonical(*lengths) == canonical


def test_free_mixing_after_causal_memory_reaches_every_memory_position_below_both_lengths() -> None:
    # Two target positions, five memory tokens: the second layer mixes both prefixes {0} and {0, 1}.
    assert Relation("all").through(Relation("prefix"), 2, 2, 5) == Relation("all", limit=2)
    # With more targets than memory tokens the limit cuts nothing.
    assert Relation("all").through(Relation("prefix"), 5, 5, 2) == Relation("all")


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: Relation("some"), ValueError, "Relation.kind"),  # type: ignore[arg-type]
        (lambda: Relation(["all"]), ValueError, "Relation.kind"),  # type: ignore[arg-type]
        (lambda: Relation("all", limit=0), ValueError, "Relation.limit must be at least 1"),
        (lambda: Relation("all", limit=True), TypeError, "Relation.limit must be an int, got bool"),
        (lambda: Relation("all", limit=2.0), TypeError, "Relation.limit"),  # type: ignore[arg-type]
        (lambda: Relation("prefix", first_position=-1), ValueError, "first_position must be at least 0"),
        (lambda: Relation("none", limit=1), ValueError, "neither limit nor first_position"),
        (lambda: Relation("all").matrix(0, 1), ValueError, "length"),
        (lambda: Relation("all").matrix(1, 1.0), TypeError, "length"),  # type: ignore[arg-type]
        (lambda: Source("query", 1, 2, Relation("all")), TypeError, "Source.arguments"),  # type: ignore[arg-type]
        (lambda: Source((), 1, 2, Relation("all")), ValueError, "at least one"),
        (lambda: Source((1,), 1, 2, Relation("all")), TypeError, "strings"),  # type: ignore[arg-type]
        (lambda: Source(("x", "x"), 1, 2, Relation("all")), ValueError, "twice"),
        (lambda: Source(("x",), -1, 2, Relation("all")), ValueError, "Source.sequence_axis"),
        (lambda: Source(("x",), 1, 0, Relation("all")), ValueError, "Source.length"),
        (lambda: Source(("x",), 1, 2, "all"), TypeError, "relation"),  # type: ignore[arg-type]
        (lambda: Source(("x",), 1, 2, Relation("all", limit=3)), ValueError, "relation.limit is 3"),
        (lambda: Output(1, 0), ValueError, "Output.length"),
        (lambda: TokenDependencies("partial"), ValueError, "status"),  # type: ignore[arg-type]
        (lambda: TokenDependencies("complete", ()), ValueError, "needs its output"),
        (lambda: TokenDependencies("complete", (), Output(1, 2)), ValueError, "needs a source"),
        (lambda: TokenDependencies("complete", ("x",), Output(1, 2)), TypeError, "Source"),  # type: ignore[arg-type]
        (lambda: TokenDependencies("unavailable", (), Output(1, 2)), ValueError, "neither sources nor output"),
        (lambda: TokenDependencies("unavailable", assumptions="one"), TypeError, "assumptions"),  # type: ignore[arg-type]
        (lambda: attrs.evolve(complete(), reason="why"), ValueError, "no reason"),
        (lambda: attrs.evolve(complete(), sources=complete().sources * 2), ValueError, "two sources"),
        (
            lambda: complete(relation=Relation("all", first_position=3)),
            ValueError,
            "first_position is 3, but the output has 3",
        ),
    ],
)
def test_what_is_wrong_by_itself_is_refused_with_the_field(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        build()


def complete(
    names: tuple[str, ...] = ("x",), axis: int = 1, length: int = 3, relation: Relation | None = None
) -> TokenDependencies:
    relation = Relation("prefix") if relation is None else relation
    return TokenDependencies("complete", (Source(names, axis, length, relation),), Output(1, 3))


class Mixer(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, *, scale: float = 1.0, **extra: Any) -> Any:
        return {"hidden": x * scale, "rest": None}


def call_of(*args: Any, **kwargs: Any) -> ModuleCall:
    module = Mixer()
    return ModuleCall(module, args, kwargs, module(*args, **kwargs))


def test_a_relation_that_fits_its_call_is_accepted_in_canonical_form() -> None:
    x, y = torch.ones(2, 3, 4), torch.ones(2, 5, 4)
    given = TokenDependencies(
        "complete", [Source(["x"], 1, 3, Relation("prefix", 3)), Source(["y"], 1, 5, Relation("all", 5))], Output(1, 3)
    )
    found = check_token_dependencies(given, call_of(x, y=y))
    assert [source.relation for source in found.sources] == [Relation("prefix"), Relation("all")]
    assert found.sources[0].arguments == ("x",)  # a list becomes a tuple
    unavailable = TokenDependencies.unavailable("window", "The window of this attention is none of the relations.")
    assert check_token_dependencies(unavailable, call_of(x)) is unavailable


def test_arguments_caught_by_double_star_are_arguments() -> None:
    x, memory = torch.ones(2, 3, 4), torch.ones(2, 5, 4)
    given = complete(("memory",), 1, 5, Relation("all"))
    assert check_token_dependencies(given, call_of(x, memory=memory)) == given


def two(first: tuple[str, ...], second: tuple[str, ...], length: int = 3) -> TokenDependencies:
    sources = (Source(first, 1, 3, Relation("all")), Source(second, 1, length, Relation("all")))
    return TokenDependencies("complete", sources, Output(1, 3))


X, Y = torch.ones(2, 3, 4), torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("dependencies", "call", "error", "words"),
    [
        ({"status": "complete"}, call_of(X), TypeError, "must be a TokenDependencies, got dict"),
        (attrs.evolve(complete(), scope="model"), call_of(X), ValueError, "scope"),
        (TokenDependencies("unavailable"), call_of(X), ValueError, "needs a reason"),
        (complete(("z",)), call_of(X), ValueError, "'z' is no argument of this call; it has x, y, scale"),
        (complete(("y",)), call_of(X), TypeError, "'y' is no tensor with one shape, got NoneType"),
        (complete(("scale",)), call_of(X), TypeError, "'scale' is no tensor"),
        (complete(axis=3), call_of(X), ValueError, r"'x': sequence_axis is 3, but its shape is \(2, 3, 4\)"),
        (complete(length=4), call_of(X), ValueError, "'x': length is 4, but axis 1"),
        (complete(axis=2), call_of(X), ValueError, "'x': length is 3, but axis 2"),
        (complete(("x", "y")), call_of(X, Y), ValueError, "x and y are different tensors"),
        (complete(("y", "x")), call_of(X, X), ValueError, "out of signature order"),
        (two(("y",), ("x",)), call_of(X, Y), ValueError, "out of signature order"),
        (two(("x",), ("y",)), call_of(X, X), ValueError, "x and y are the same tensor"),
        (attrs.evolve(complete(), output=Output(2, 3)), call_of(X), ValueError, "output: length is 3, but axis 2"),
        (attrs.evolve(complete(), output=Output(1, 4)), call_of(X), ValueError, "output: length is 4"),
    ],
)
def test_what_does_not_fit_the_call_is_refused_with_the_field(
    dependencies: Any, call: ModuleCall, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        check_token_dependencies(dependencies, call)


def test_an_output_without_tensors_is_refused() -> None:
    module = nn.Identity()
    call = ModuleCall(module, (X,), {}, "text")
    with pytest.raises(TypeError, match="output is no tensor with one shape, got NoneType"):
        check_token_dependencies(complete(("input",)), call)


@attrs.frozen
class NotADataclass:
    x: int = 0


def test_the_main_tensor_is_the_first_one() -> None:
    import dataclasses

    @dataclasses.dataclass
    class Result:
        loss: float | None
        hidden: torch.Tensor

    assert main_tensor(X) is X
    assert main_tensor((None, [X, Y])) is X
    assert main_tensor({"cache": None, "hidden": Y}) is Y
    assert main_tensor(Result(None, Y)) is Y
    assert main_tensor(NotADataclass()) is None


def of(output_length: int = 3, **relations: Relation) -> TokenDependencies:
    sources = tuple(Source(tuple(name.split("_")), 1, 9, relation) for name, relation in relations.items())
    return TokenDependencies("complete", sources, Output(1, output_length))


@pytest.mark.parametrize(
    ("dependencies", "words"),
    [
        (None, ""),
        (TokenDependencies.unavailable("padding"), "?"),
        (of(query_key_value=Relation("all")), "all"),
        (of(src=Relation("prefix")), "causal"),
        (of(x=Relation("same_position")), "local"),
        (of(x=Relation("none")), "none"),
        (of(query=Relation("same_position"), key_value=Relation("all")), "local + source"),
        (of(query=Relation("same_position"), key=Relation("all"), value=Relation("all")), "local + source"),
        (of(query=Relation("none"), key=Relation("none"), value=Relation("all")), "source"),
        (of(tgt=Relation("prefix"), memory=Relation("all")), "causal + source"),
        (of(tgt=Relation("all"), memory=Relation("all", limit=3)), "all + source[:3]"),
        (of(tgt=Relation("prefix"), memory=Relation("prefix")), "causal + causal source"),
        # nn.Transformer takes src before tgt; the output has the positions of tgt.
        (of(src=Relation("all"), tgt=Relation("prefix")), "causal + source"),
    ],
)
def test_a_short_word_for_tables(dependencies: TokenDependencies | None, words: str) -> None:
    assert describe(dependencies) == words


def test_relations_need_no_torch() -> None:
    code = (
        "import sys; from torchscan.contract import tokens, token_checks;"
        "tokens.Relation('prefix').through(tokens.Relation('all'), 2, 2, 3);"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- through a scan --------------------------------------------------------------------------------------------------


def scanned(handler: Any, **options: Any) -> torchscan.Report:
    return torchscan.scan(Mixer(), args=(X,), custom_modules={Mixer: handler}, **options)


def test_a_caller_describes_its_own_module() -> None:
    report = scanned(lambda call: {"token_dependencies": complete(relation=Relation("prefix", limit=3))})
    found = report.layers[0].token_dependencies
    assert found is not None
    assert found.sources[0].relation == Relation("prefix")  # canonical: of three tokens, the limit cuts nothing
    assert found.method
    assert report.to_dict()["layers"][0]["token_dependencies"]["sources"] == [
        {"arguments": ["x"], "sequence_axis": 1, "length": 3, "relation": {"kind": "prefix"}}
    ]
    assert torchscan.Report.from_dict(report.to_dict()) == report


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (complete(("z",)), "'z' is no argument of this call"),
        (complete(length=4), "length is 4"),
        ("all", "must be a TokenDependencies, got str"),
    ],
)
def test_a_wrong_relation_costs_that_field_alone(value: Any, words: str) -> None:
    report = scanned(lambda call: {"token_dependencies": value, "macs": 5})
    row = report.layers[0]
    assert row.metrics["macs"].value == 5
    assert row.token_dependencies is None or row.token_dependencies.status == "unavailable"
    (diagnostic,) = [d for d in report.diagnostics if d.metric == "token_dependencies"]
    assert words in diagnostic.message


def test_an_unavailable_relation_is_one_diagnostic_with_its_reason() -> None:
    gone = TokenDependencies.unavailable("window", "A sliding window is none of the four relations.")
    report = scanned(lambda call: {"token_dependencies": gone})
    (diagnostic,) = [d for d in report.diagnostics if d.metric == "token_dependencies"]
    assert (diagnostic.code, diagnostic.reason) == ("unsupported_token_dependencies", "window")
    assert "A sliding window" in diagnostic.message
    with pytest.raises(torchscan.IncompleteAnalysisError):
        scanned(lambda call: {"token_dependencies": gone}, strict=True, metrics=("token_dependencies",))


def test_a_caller_that_overrides_a_number_keeps_the_native_relation() -> None:
    module = nn.MultiheadAttention(4, 2, batch_first=True)
    report = torchscan.scan(module, args=(X, X, X), custom_modules={nn.MultiheadAttention: lambda call: {"macs": 7}})
    row = report.layers[0]
    assert row.metrics["macs"].value == 7
    assert row.token_dependencies is not None
    assert row.token_dependencies.sources[0].relation == Relation("all")
