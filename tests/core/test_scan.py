"""One scan: what is counted, and what is refused."""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchscan
from torchscan import IncompleteAnalysisError, Scanner, crawl_module, scan


def head() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_the_example_of_the_documentation_runs_unchanged():
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    query = torch.ones(1, 2, 4)
    memory = torch.ones(1, 3, 4)
    report = crawl_module(attention, args=(query, memory, memory), kwargs={"need_weights": False})
    assert report["totals"]["macs"]["value"] == 208
    assert report["totals"]["dmas"]["value"] == 352
    assert report["layers"][0]["token_dependencies"]["status"] == "complete"


def test_a_chain_of_layers_adds_up():
    report = scan(head(), (4,))
    # one row: 8*4 + 3*8 products
    assert report.totals.macs.value == 56
    # 8 * (7 + 1) + 8 + 3 * (15 + 1)
    assert report.totals.module_flops.value == 120
    # 4*8+8 + 8*3+3
    assert report.totals.parameters.value == 67
    assert [layer.path for layer in report.layers] == ["", "0", "1", "2"]
    assert report.inputs.source == "generated"
    assert report.inputs.args[0].shape == (1, 4)


def test_crawl_module_is_the_wire_form_of_scan():
    module = head()
    x = torch.ones(2, 4)
    wire = crawl_module(module, args=(x,))
    assert wire == scan(module, args=(x,)).to_dict()
    assert json.loads(json.dumps(wire)) == wire
    assert torchscan.Report.from_dict(wire).to_dict() == wire


class Wrapper(nn.Module):
    """Holds a native module, calls it twice, and has a child whose name extends another's."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.MultiheadAttention(4, 2, batch_first=True)
        self.block_out = nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block(x, x, x, need_weights=False)[0]
        x = self.block(x, x, x, need_weights=False)[0]
        return self.block_out(x)


@pytest.mark.parametrize("outer", [lambda module: module, nn.Sequential])
def test_wrapped_repeated_and_similarly_named_calls_count_once_each(outer):
    report = scan(outer(Wrapper()), args=(torch.ones(1, 3, 4),))
    # twice the self-attention over three tokens (264), then 3 * 4 * 4
    assert report.totals.macs.value == 2 * 264 + 48
    # 80 parameters of the attention once, 16 of the linear
    assert report.totals.parameters.value == 96
    calls = [(layer.path.rpartition(".")[2], layer.call_index) for layer in report.layers if "block" in layer.path]
    assert calls == [("block", 0), ("block", 1), ("block_out", 0)]


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        x = self.fc(x)
        return self(x, depth - 1) if depth else x


def test_a_module_that_calls_itself():
    report = scan(Recursive(), args=(torch.ones(1, 3),))
    # three nested calls, one 3x3 product each
    assert report.totals.macs.value == 27
    assert [layer.call_index for layer in report.layers if layer.path == ""] == [0, 1, 2]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.emb.weight
        flat = torch.zeros(10)
        self.register_buffer("left", flat[:6])
        self.register_buffer("right", flat[4:])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.emb(ids))


def test_shared_storage_counts_once():
    report = scan(Tied(), args=(torch.zeros(2, 3, dtype=torch.long),))
    assert report.totals.parameters.value == 28
    # two overlapping views of ten elements
    assert report.totals.buffer_elements.value == 10
    assert report.totals.macs.value == 6 * 28
    assert sum(layer.parameters.trainable for layer in report.layers) == 28


class Holder(nn.Module):
    """Parameters and buffers of these types, in this order."""

    def __init__(self, parameters=(), buffers=()):
        super().__init__()
        for index, dtype in enumerate(parameters):
            self.register_parameter(f"p{index}", nn.Parameter(torch.zeros(1, dtype=dtype), requires_grad=False))
        for index, dtype in enumerate(buffers):
            self.register_buffer(f"b{index}", torch.zeros(1, dtype=dtype))

    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("parameters", "buffers", "expected"),
    [
        ([torch.float64, torch.float32], [torch.float16], "torch.float64"),
        ([torch.int8, torch.float32], [], "torch.int8"),
        ([], [torch.float64], "torch.float64"),
        ([], [torch.int64, torch.float32], "torch.int64"),
        ([], [], "torch.float32"),
    ],
)
def test_generated_inputs_are_of_the_type_of_the_first_parameter_then_the_first_buffer(parameters, buffers, expected):
    report = scan(Holder(parameters, buffers), (3,), mode="structure")
    assert report.inputs.args[0].dtype == expected


def test_arguments_are_passed_through_untouched():
    class Identity(nn.Module):
        def forward(self, x, *, mask=None):
            seen.extend((x, mask))
            return x

    seen: list[Any] = []
    x = torch.ones(2, requires_grad=True)
    mask = object()
    scan(Identity(), args=(x,), kwargs={"mask": mask}, mode="structure")
    assert seen[0] is x
    assert seen[1] is mask
    assert x.grad is None


class Catching(nn.Module):
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("inside")

    def __init__(self) -> None:
        super().__init__()
        self.bad = self.Failing()
        self.good = nn.Linear(2, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(ValueError):
            x = self.bad(x)
        return self.good(x)


def test_a_caught_failure_is_reported_and_its_sibling_counts():
    report = scan(Catching(), args=(torch.ones(1, 2),))
    failed = next(layer for layer in report.layers if layer.path == "bad")
    assert failed.output.kind == "failed"
    assert failed.metrics["macs"].status == "unavailable"
    assert [d.path for d in report.diagnostics if d.code == "module_forward_error"] == ["bad"]
    assert report.totals.macs.status == "partial"
    assert report.totals.macs.known_value == 4


def test_structure_mode_runs_no_formula():
    def never(call):
        raise AssertionError("a handler ran")

    report = scan(head(), (4,), mode="structure", custom_modules={nn.Linear: never})
    assert report.totals.parameters.value == 67
    for name in ("macs", "dmas", "module_flops", "operator_flops"):
        total = getattr(report.totals, name)
        assert (total.status, total.method) == ("unavailable", "not_requested")
    assert report.diagnostics == ()


def test_strict_raises_with_the_report():
    class Own(nn.Module):
        def forward(self, x):
            return x @ x.T

    with pytest.raises(IncompleteAnalysisError, match="macs is unavailable") as caught:
        scan(Own(), args=(torch.ones(2, 2),), strict=True)
    assert caught.value.report.totals.macs.status == "unavailable"
    assert scan(head(), (4,), strict=True).totals.macs.value == 56
    # a metric that was not asked for is no failure
    scan(Own(), args=(torch.ones(2, 2),), strict=True, metrics={"receptive_field"}, mode="structure")


def test_the_unavailable_spatial_scalars_of_a_token_module_are_expected():
    x = torch.ones(1, 3, 4)
    report = scan(
        nn.MultiheadAttention(4, 2, batch_first=True),
        args=(x, x, x),
        strict=True,
        metrics={"macs", "receptive_field", "token_dependencies"},
    )
    assert report.layers[0].metrics["receptive_field"].method == "not_applicable"


def test_without_the_native_plugin_everything_is_unavailable_with_a_reason():
    report = Scanner(disabled=["native"]).scan(head(), (4,))
    for name in ("macs", "dmas", "module_flops"):
        assert getattr(report.totals, name).status == "unavailable"
    assert {d.code for d in report.diagnostics if d.metric == "macs"} == {"unsupported_module_metric"}
    assert report.totals.parameters.value == 67


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"args": torch.ones(1)}, TypeError, "args must be a tuple"),
        ({"kwargs": [1]}, TypeError, "kwargs must be a mapping"),
        ({"input_shape": (4,), "args": (1,)}, ValueError, "cannot be combined"),
        ({"input_shape": (4, -1)}, ValueError, "non-negative"),
        ({"input_shape": ("a",)}, TypeError, "input_shape"),
        ({"args": (1,), "dtype": torch.float32}, ValueError, "generated inputs only"),
        ({"input_shape": (4,), "dtype": "float32"}, TypeError, "dtype must be a torch.dtype"),
        ({"input_shape": (4,), "dtype": [torch.float32, "int64"]}, TypeError, "dtype must be a torch.dtype"),
        ({"mode": "fast"}, ValueError, "mode must be one of"),
        ({"functional": "guess"}, ValueError, "functional must be one of"),
        ({"execution": "dream"}, ValueError, "execution must be one of"),
        ({"metrics": "macs"}, TypeError, "collection of names"),
        ({"metrics": {"flops"}}, ValueError, "flops"),
        ({"custom_mapping": {"aten.mm": len}}, TypeError, "aten.mm"),
        ({"custom_mapping": {torch.ops.aten.mm: 3}}, TypeError, "aten.mm"),
    ],
)
def test_bad_arguments_are_named_before_anything_runs(arguments, error, message):
    class Never(nn.Module):
        def forward(self, *args):
            raise AssertionError("the model ran")

    with pytest.raises(error, match=message):
        scan(Never(), **arguments)


def test_sizes_that_were_computed_are_sizes():
    # 1 row of the generated batch: 4 * 3
    assert scan(nn.Linear(4, 3), tuple(np.array([4]))).totals.macs.value == 12


def test_a_model_that_is_no_module_is_named():
    with pytest.raises(TypeError, match="got function"):
        scan(lambda x: x, (4,))  # type: ignore[arg-type]


Pair = namedtuple("Pair", "left right")


@dataclass
class Fields:
    tensor: torch.Tensor
    extra: Any = None


class ModelOutput(OrderedDict):
    pass


def test_value_metadata_keeps_structure_and_no_contents():
    class Many(nn.Module):
        def forward(self, x, **options):
            return {
                "pair": Pair(x, 2),
                "fields": Fields(x, [1, None]),
                "model": ModelOutput(a=x),
                "generator": (i for i in range(3)),
                "a secret/path.txt": "secret",
                3: x,
            }

    report = scan(Many(), args=(torch.ones(2),), kwargs={"flag": True, "text": "secret"}, mode="structure")
    wire = report.to_json()
    assert "secret" not in wire
    items = {item.key: item.value for item in report.layers[0].output.items}
    assert items["pair"].kind == "tuple"
    assert items["fields"].kind == "dataclass"
    assert items["model"].kind == "mapping"
    assert items["generator"].kind == "object"
    assert items[3].shape == (2,)
    assert report.inputs.kwargs["flag"].type == "bool"


@pytest.mark.filterwarnings("ignore:.*nested tensors.*:UserWarning")
def test_nested_tensors_have_no_invented_shape():
    class Nest(nn.Module):
        def forward(self, x):
            return torch._nested_tensor_from_mask(x, torch.tensor([[True, False], [True, True]]))

    report = scan(Nest(), args=(torch.ones(2, 2, 3),), mode="structure")
    assert report.layers[0].output.kind == "nested_tensor"


def test_custom_mapping_holds_for_one_call():
    x = torch.ones(2, 4)
    options = {"custom_mapping": {torch.ops.aten.addmm: lambda *shapes, out_shape=None, **kwargs: 1_000}}
    assert scan(nn.Linear(4, 3), args=(x,), **options).operator_flops.by_operator["aten.addmm"] == 1_000
    # 2 * 2 * 4 * 3
    assert scan(nn.Linear(4, 3), args=(x,)).operator_flops.by_operator["aten.addmm"] == 48


def test_measure_flops_counts_forward_and_backward():
    module = nn.Linear(4, 2, bias=False)
    x = torch.ones(3, 4, requires_grad=True)
    result = torchscan.measure_flops(lambda: module(x).sum().backward(), modules=module)
    # three products of 3 * 4 * 2 terms: the output and the gradients of weight and input, 2 FLOPs a term
    assert result["by_operator"]["aten.mm"] == 3 * 48
    assert result["by_module"] == {"Linear": 48}
    assert module.weight.grad is not None


def test_metrics_on_demand_run_only_what_they_need():
    report = scan(head(), (4,), metrics={"macs"})
    assert report.totals.macs.value == 56
    assert report.totals.dmas.method == "not_requested"
    assert report.totals.operator_flops.method == "not_requested"
    assert set(report.layers[1].metrics) == {"calls", "macs"}


# PyTorch's own compiler and TorchScript warn about themselves.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.torch.jit:FutureWarning")
def test_compiled_and_scripted_models_run():
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    x = torch.ones(2, 4)
    compiled = scan(torch.compile(module), args=(x,))
    assert compiled.totals.macs.value == 24
    scripted = scan(torch.jit.trace(module, x), args=(x,))
    assert scripted.totals.macs.status != "complete"
    assert scan(torch.jit.trace(module, x), args=(x,), functional="estimate").totals.macs.value == 24


def test_an_empty_container_is_no_work():
    report = scan(nn.Sequential(nn.Sequential(), nn.Linear(2, 2)), (2,))
    assert report.totals.macs.value == 4
    assert report.diagnostics == ()


def test_a_module_put_in_anothers_place_goes_on_counting_its_calls():
    class Swaps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(2, 2, bias=False)

        def forward(self, x):
            x = self.part(x)
            self.part = nn.Linear(2, 3, bias=False)
            return self.part(x)

    module = Swaps()
    before = module.part
    report = scan(module, args=(torch.ones(1, 2),))
    assert report.totals.macs.value == 4 + 6
    assert [(layer.path, layer.call_index) for layer in report.layers] == [("", 0), ("part", 0), ("part", 1)]
    assert module.part is before
