"""Every class of `torch.nn` has a formula or a reason for having none, and the catalogue calls all that have one."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from native.layers_catalogue import CATALOGUE
from native.layers_support import COUNTS, SPATIAL, estimates, handler_for
from torchscan_native.layers import formulas, quantized, registrations
from torchscan_native.layers.unhandled import UNHANDLED

TRANSFORMER = {
    "MultiheadAttention",
    "Transformer",
    "TransformerEncoder",
    "TransformerDecoder",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
}
CLASSES = {
    name: value
    for name in {*nn.modules.__all__, *vars(nn)}
    if isinstance(value := getattr(nn, name), type) and issubclass(value, nn.Module)
}


def test_the_walk_sees_torch_nn():
    assert {"Linear", "Conv3d", "LazyLinear", "ParameterDict", "DataParallel", "CTCLoss"} <= CLASSES.keys()
    assert len(CLASSES) > 150


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_class_is_handled_or_has_a_reason(name):
    handled = handler_for(CLASSES[name]) is not None
    listed = name in UNHANDLED
    if name in TRANSFORMER:
        assert not handled
    else:
        assert handled or listed, f"{name} has neither a formula nor a reason in layers/unhandled.py"


def test_no_reason_is_given_for_a_class_that_is_handled():
    lazy = {name for name in UNHANDLED if name.startswith("Lazy")}
    handled = {name for name in UNHANDLED if name in CLASSES and handler_for(CLASSES[name]) is not None}
    # a lazy class derives from the one it becomes; its own forward never runs to the end
    assert handled <= lazy


def test_every_reason_names_a_class_and_says_something():
    assert set(UNHANDLED) <= CLASSES.keys() | {"LinearCrossEntropyLoss", "Container"}
    assert all(len(reason.split()) > 3 for reason in UNHANDLED.values())


def test_one_registration_per_class():
    targets = [registration.target for registration in registrations()]
    assert len(targets) == len(set(targets))


def test_the_catalogue_calls_every_handled_class():
    handled = {
        r.target.__name__ for r in registrations() if isinstance(r.target, type) and hasattr(nn, r.target.__name__)
    }
    assert handled == CATALOGUE.keys()


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_handled_call_has_all_six_metrics(name):
    build, args = CATALOGUE[name]
    found = estimates(build().eval(), *args)
    assert found.keys() == {*COUNTS, *SPATIAL}
    assert all(type(found[metric]) is int and found[metric] >= 0 for metric in COUNTS)
    for metric in SPATIAL:
        assert isinstance(found[metric], int) or found[metric].expected


@pytest.mark.filterwarnings("ignore")  # these packages are deprecated as a whole
@pytest.mark.parametrize("name", tuple(quantized.names()))
def test_quantized_names_are_names_of_classes(name):
    module, _, cls = name.rpartition(".")
    torch_module = pytest.importorskip(module)
    kind = getattr(torch_module, cls)
    assert f"{kind.__module__}.{kind.__qualname__}" == name
    assert handler_for(kind) is not None


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_model_is_unavailable_and_not_zero():
    from torch.ao.quantization import quantize_dynamic

    if "none" in torch.backends.quantized.supported_engines and len(torch.backends.quantized.supported_engines) == 1:
        pytest.skip("this PyTorch has no quantized backend")
    model = quantize_dynamic(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {nn.Linear}, dtype=torch.qint8)
    assert type(model[0]) is not nn.Linear
    found = estimates(model[0], torch.ones(3, 4))
    assert {found[metric].reason for metric in COUNTS} == {"quantized_module"}


def test_formula_files_import_neither_torch_nor_pluggy():
    folder = Path(inspect.getfile(formulas)).parent
    for path in folder.glob("*.py"):
        imports = {
            (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not {name for name in imports if name.split(".")[0] in {"torch", "pluggy", "torchscan"}}, path.name
