"""The table: what it names exists, says why where it says nothing, and knows what real code dispatches."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import flop_registry

import torchscan
from native.operator_log import TABLE, dispatched
from native.operator_zoo import FUNCTIONAL, TRAINING, UNDESCRIBED
from torch_versions import before, since
from torchscan_native.operators import formulas

PAGE = Path(__file__).parents[2] / "docs" / "derivations" / "functional-operators.md"
ALL = list(formulas())


def packet(name: str) -> torch._ops.OpOverloadPacket:
    namespace, _, operator = name.partition(".")
    return getattr(getattr(torch.ops, namespace), operator)


def overloads(name: str) -> list[torch._ops.OpOverload]:
    found = packet(name)
    return [getattr(found, overload) for overload in found.overloads()]


def is_view(overload: torch._ops.OpOverload) -> bool:
    returns = overload._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def test_every_operator_has_one_formula():
    names = [formula.operator for formula in ALL]
    assert len(names) == len(set(names))


def exists(name: str) -> bool:
    try:
        return bool(overloads(name))
    except AttributeError:
        return False


def test_every_operator_exists():
    absent = [formula.operator for formula in ALL if not exists(formula.operator)]
    if since("2.13"):
        assert not absent
    else:  # an operator that a later release brought
        assert len(absent) < len(ALL) / 10


def test_no_view_is_listed_as_work():
    listed = [
        name
        for name, formula in TABLE.items()
        if formula.kind != "ignored"
        and name.startswith("aten.")
        and exists(name)
        and all(map(is_view, overloads(name)))
    ]
    assert not listed


@pytest.mark.parametrize("formula", ALL, ids=lambda formula: formula.operator)
def test_what_has_no_formula_says_why(formula):
    if formula.kind == "ignored":
        assert formula.reason
        assert formula.flops is None
        assert formula.estimate is None
    else:
        assert formula.flops or formula.estimate or formula.reason or formula.known_gap


#: An overload that PyTorch would decompose, listed because its operator has a formula of its own.
UNDECOMPOSED = {
    *("where", "max", "min", "var", "var_mean", "std", "std_mean", "_convolution", "native_batch_norm"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d"),
    *("_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d"),
    *("upsample_trilinear3d", "upsample_bicubic2d", "repeat_interleave", "silu_backward"),
    *("empty", "set_", "rand", "randn"),
}


@pytest.mark.skipif(before("2.13"), reason="PyTorch 2.6 also offers reference implementations as decompositions")
def test_no_formula_hides_a_composite_operator():
    """A composite operator is counted as what it decomposes into; a formula here would keep it whole."""
    hidden = set()
    for name in TABLE:
        for overload in overloads(name) if name.startswith("aten.") and exists(name) else ():
            try:
                if overload._can_decompose():
                    hidden.add(name.removeprefix("aten."))
            except RuntimeError:  # an overload of TorchScript alone
                continue
    assert hidden <= UNDECOMPOSED


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional_code_is_known(name, mode):
    with mode():
        seen = dispatched(FUNCTIONAL[name])
    unknown = {
        op.call.name
        for op in seen
        if op.formula is None and not is_view(op.operator) and not op.operator._can_decompose()
        if any("Tensor" in str(r.type) for r in op.operator._schema.returns)
    }
    assert not unknown


@pytest.mark.parametrize("operator", UNDESCRIBED)
def test_what_the_conventions_do_not_describe_is_not_guessed(operator):
    seen = {op.call.name for op in dispatched(UNDESCRIBED[operator])}
    assert operator in seen
    assert operator not in TABLE
    view = torchscan.measure_flops(UNDESCRIBED[operator])
    assert view["total"]["status"] != "complete"
    assert operator in {d["operator"] for d in view["diagnostics"]}


@pytest.mark.parametrize("name", TRAINING)
def test_a_training_step_is_counted_whole(name):
    view = torchscan.measure_flops(TRAINING[name])
    assert view["diagnostics"] == []
    assert view["total"]["status"] == "complete"
    assert view["total"]["value"] == sum(view["by_operator"].values()) > 0


def test_pytorchs_own_formulas_are_in_the_table():
    """The table says what kind of work they are, and estimates what PyTorch only counts."""
    known = {f"aten.{key._qualified_op_name.split('::')[1]}" for key in flop_registry if hasattr(key, "overloads")}
    # the gradient of a convolution has no estimate, since the conventions describe evaluation
    missing = {name for name in known - TABLE.keys() if "backward" not in name}
    assert missing == set()


def test_formula_files_know_neither_torch_nor_pluggy():
    for file in Path(formulas.__code__.co_filename).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & {"torch", "pluggy"}, file.name


@pytest.mark.parametrize("kind", ["contraction", "arithmetic", "movement", "ignored"])
def test_the_page_lists_every_operator(kind):
    text = PAGE.read_text("utf-8")
    named = {word for span in re.findall(r"`([^`]+)`", text) for word in span.split()}
    missing = [
        formula.operator
        for formula in ALL
        if formula.kind == kind
        and not {formula.operator, (short := formula.operator.removeprefix("aten.")), short.rstrip("_")} & named
        and not (short.startswith("_foreach_") and short.removeprefix("_foreach_").rstrip("_") in named)
    ]
    assert not missing
