"""A call that is not the plain one never gets the plain one's formula; a call that is gets it on any device."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from native.layers_catalogue import CATALOGUE, PASSIVE
from native.layers_support import COUNTS, counts, estimates, handler_for, reasons
from torchscan import ModuleCall

ACTIVE = sorted(CATALOGUE.keys() - set(PASSIVE))
ARITHMETIC = sorted(set(ACTIVE) - {"Embedding", "EmbeddingBag"})


def moved(value, **to):
    return value.to(**to) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def complete(found):
    return {metric for metric in COUNTS if isinstance(found.get(metric), int)}


@pytest.mark.parametrize("name", CATALOGUE)
def test_float64_and_bfloat16_count_the_same(name):
    build, args = CATALOGUE[name]
    expected = counts(build(), *args)
    assert counts(build().double(), *(moved(a, dtype=torch.float64) for a in args)) == expected
    try:
        half = counts(build().bfloat16(), *(moved(a, dtype=torch.bfloat16) for a in args))
    except RuntimeError:  # PyTorch has no such kernel on the CPU
        half = expected
    assert half == expected


@pytest.mark.parametrize("name", CATALOGUE)
def test_meta_tensors_count_the_same(name):
    build, args = CATALOGUE[name]
    expected = counts(build(), *args)
    assert counts(build().to("meta"), *(a.to("meta") for a in args)) == expected


@pytest.mark.parametrize("name", CATALOGUE)
def test_fake_tensors_count_the_same(name):
    build, args = CATALOGUE[name]
    expected = counts(build(), *args)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        module = build().eval()
        fakes = tuple(mode.from_tensor(a) for a in args)
        call = ModuleCall(module, fakes, {}, module(*fakes))
    assert type(call.args[0]) is not torch.Tensor
    found = handler_for(type(module))(call)
    assert tuple(found[metric] for metric in COUNTS) == expected


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_plain_subclass_counts_and_one_with_its_own_forward_does_not(name):
    build, args = CATALOGUE[name]
    module = build().eval()
    expected = counts(module, *args)

    class Plain(type(module)):
        pass

    class Own(type(module)):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    module.__class__ = Plain
    assert counts(module, *args) == expected
    module.__class__ = Own
    assert estimates(module, *args) == {}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_replaced_forward_does_not_count(name):
    build, args = CATALOGUE[name]
    module = build().eval()
    original = module.forward
    module.forward = lambda *args: original(*args)
    assert estimates(module, *args) == {}


def test_a_forward_replaced_on_the_class_does_not_count(monkeypatch):
    original = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, input: original(self, input) * 2)
    assert estimates(nn.Linear(4, 2), torch.ones(3, 4)) == {}


@pytest.mark.parametrize(
    ("build", "method", "shape"),
    [
        (lambda: nn.Conv2d(1, 1, 3), "_conv_forward", (1, 1, 4, 4)),
        (lambda: nn.ConvTranspose2d(1, 1, 3), "_output_padding", (1, 1, 4, 4)),
        (lambda: nn.InstanceNorm1d(3), "_apply_instance_norm", (2, 3, 4)),
    ],
)
def test_the_methods_behind_forward_must_be_unchanged(build, method, shape):
    module = build()
    kind = type(module)

    class Own(kind):
        pass

    setattr(Own, method, lambda self, *args, **kwargs: getattr(kind, method)(self, *args, **kwargs))
    module.__class__ = Own
    assert estimates(module, torch.ones(shape)) == {}
    module = build()
    original = getattr(module, method)
    setattr(module, method, lambda *args, **kwargs: original(*args, **kwargs))
    assert estimates(module, torch.ones(shape)) == {}


def call_with(name, change):
    """Return what the handler says when every float argument of the call was changed."""
    build, args = CATALOGUE[name]
    module = build().eval()
    with torch.no_grad():
        output = module(*args)
    return handler_for(type(module))(ModuleCall(module, tuple(change(a) for a in args), {}, output))


@pytest.mark.parametrize("name", ACTIVE)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.int8, torch.bool])
def test_other_numbers_are_refused(name, dtype):
    found = call_with(name, lambda a: a.to(dtype) if a.is_floating_point() or dtype == torch.complex64 else a.bool())
    assert complete(found) == set()
    wanted = {"complex_tensor"} if dtype == torch.complex64 else {"integer_tensor", "not_an_index"}
    assert {found[metric].reason for metric in COUNTS} <= wanted


@pytest.mark.parametrize("name", ACTIVE)
@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, torch.Tensor.to_mkldnn], ids=["sparse", "mkldnn"])
def test_other_layouts_are_refused(name, change):
    found = call_with(name, lambda a: change(a) if a.is_floating_point() else a.to_sparse())
    assert {found[metric].reason for metric in COUNTS} == {"sparse_tensor"}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused(layout):
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)
    assert reasons(nn.Linear(4, 2), nested) == {"nested_tensor"}
    assert reasons(nn.ReLU(), nested) == {"nested_tensor"}


class Other(torch.Tensor):
    pass


@pytest.mark.parametrize("name", ACTIVE)
def test_tensor_subclasses_are_refused(name):
    found = call_with(name, lambda a: a.as_subclass(Other))
    assert {found[metric].reason for metric in COUNTS} == {"tensor_subclass"}
    assert "Other" in found["macs"].message


class OtherParameter(nn.Parameter):
    pass


@pytest.mark.parametrize("name", [n for n in ACTIVE if list(CATALOGUE[n][0]().parameters())])
def test_a_parameter_of_another_class_is_refused(name):
    build, args = CATALOGUE[name]
    module = build().eval()
    for key, parameter in list(module.named_parameters()):
        setattr(module, key, OtherParameter(parameter.detach()))
    with torch.no_grad():
        output = build().eval()(*args)
    found = handler_for(type(module))(ModuleCall(module, args, {}, output))
    assert {found[metric].reason for metric in COUNTS} == {"tensor_subclass"}


# PyTorch warns about its quantized tensors, once per process.
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantized_tensors_are_refused():
    x = torch.quantize_per_tensor(torch.ones(2, 4), 0.1, 0, torch.qint8)
    call = ModuleCall(nn.Linear(4, 2), (x,), {}, torch.ones(2, 2))
    assert handler_for(nn.Linear)(call)["macs"].reason == "quantized_tensor"


def test_mapped_axes_are_refused():
    layer = nn.Linear(4, 2)
    seen = []

    def run(x):
        output = layer(x)
        seen.append(handler_for(nn.Linear)(ModuleCall(layer, (x,), {}, output)))
        return output

    torch.vmap(run)(torch.ones(5, 3, 4))
    assert {seen[0][metric].reason for metric in COUNTS} == {"functorch_tensor"}


def test_what_is_no_tensor_is_refused():
    call = ModuleCall(nn.ReLU(), ([1.0],), {}, None)
    assert handler_for(nn.ReLU)(call)["macs"].reason == "not_a_tensor"


def test_views_and_expanded_inputs_are_dense():
    layer = nn.Linear(4, 2)
    expected = counts(layer, torch.ones(3, 4))
    assert counts(layer, torch.ones(4, 3).T) == expected
    assert counts(layer, torch.ones(1, 4).expand(3, 4)) == expected
    image = torch.ones(1, 2, 4, 4)
    layer = nn.Conv2d(2, 2, 3)
    assert counts(layer, image.to(memory_format=torch.channels_last)) == counts(layer, image)


def test_a_parameter_that_is_stored_nowhere_is_refused():
    layer = nn.Linear(4, 2).eval()
    call = ModuleCall(layer, (torch.ones(3, 4),), {}, layer(torch.ones(3, 4)))
    del layer.weight
    assert handler_for(nn.Linear)(call)["macs"].reason == "parameter_not_stored"


def test_a_refusal_is_one_diagnostic_per_count():
    found = estimates(nn.BatchNorm1d(3).train(), torch.ones(2, 3))
    assert not any(found[metric].expected for metric in COUNTS)
    assert all(found[metric].expected for metric in found.keys() - set(COUNTS))
    assert all(found[metric].message for metric in found)
