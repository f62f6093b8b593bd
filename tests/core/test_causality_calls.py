from __future__ import annotations

import dataclasses
import json
import random
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import torchscan
from causal_models import GPT, IDS, Block, Wrap, X, triangle
from torchscan import check_causal

# -- selecting -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    logits: torch.Tensor
    hidden: torch.Tensor


class Output(OrderedDict):  # type: ignore[type-arg]
    """A mapping with attributes, as model libraries like them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def outputs(kind: Any) -> Wrap:
    def forward(x: torch.Tensor, clean: nn.Module, leaking: nn.Module) -> Any:
        return kind(x.sum(), clean(x), leaking(x))

    torch.manual_seed(3)
    return Wrap(forward, Block(8, 2), Block(8, 2, None))


@pytest.mark.parametrize(
    ("kind", "leaking"),
    [
        (lambda loss, logits, hidden: (loss, (logits, hidden)), lambda output: output[1][1]),
        (lambda loss, logits, hidden: {"loss": loss, "logits": logits, "hidden": hidden}, "hidden"),
        (Result, "hidden"),
        (lambda loss, logits, hidden: Output(loss=loss, logits=logits, hidden=hidden), "hidden"),
        (lambda loss, logits, hidden: [loss, logits, hidden], 2),
    ],
)
def test_the_main_tensor_and_a_chosen_one(kind: Any, leaking: Any) -> None:
    # The loss has no token axis, so the logits are the main tensor.
    assert check_causal(outputs(kind), (X,)).causal
    assert check_causal(outputs(kind), (X,), output=leaking).leak == (0, 1)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block(8, 2, None)

    def forward(self, batch: dict[str, Any], *rest: torch.Tensor, scale: float = 1.0, **extra: Any) -> torch.Tensor:
        return self.block(batch["x"]) * scale + sum(rest) + extra.get("bias", 0.0)


@pytest.mark.parametrize(
    ("argument", "name", "leaks"),
    [
        (None, "batch[x]", True),
        ("batch[x]", "batch[x]", True),
        ("x", "batch[x]", True),
        ("rest[0]", "rest[0]", False),
        (1, "rest[0]", False),
        ("bias", "extra[bias]", False),
    ],
)
def test_arguments_are_found_by_name_key_or_position(argument: Any, name: str, leaks: bool) -> None:
    result = check_causal(Named(), ({"x": X.clone()}, X.clone()), {"bias": X.clone()}, argument=argument)
    assert result.argument == name
    assert result.causal is not leaks


def test_token_axes_differ_between_input_and_output() -> None:
    model = Wrap(lambda x, block: block(x.transpose(0, 1)).permute(0, 2, 1), Block(8, 2))
    result = check_causal(model, (torch.randn(6, 2, 8),), axis=0, output_axis=-1)
    assert result.causal
    assert result.matrix == triangle(6)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"argument": "y"}, ValueError, r"argument='y' is no tensor argument of this call; it has x \(2, 6, 8\)"),
        ({"argument": 1}, ValueError, "argument=1 is no position of the 1 positional arguments"),
        ({"argument": True}, TypeError, "argument must be a name or a position, got bool"),
        ({"axis": 3}, ValueError, r"axis=3 is no axis of a tensor of shape \(2, 6, 8\)"),
        ({"axis": "1"}, TypeError, "axis must be an int, got str"),
        ({"output_axis": 5}, ValueError, "no tensor with axis 5"),
        ({"output": "logits"}, ValueError, "output='logits' selects nothing from a Tensor"),
        ({"output": lambda output: None}, ValueError, "selects a NoneType"),
        ({"draws": 0}, ValueError, "draws must be at least 1"),
        ({"draws": 1.5}, TypeError, "ints"),
        ({"offset": None}, TypeError, "ints"),
        ({"method": "guess"}, ValueError, "method must be"),
    ],
)
def test_what_cannot_be_asked_is_said(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_causal(Wrap(lambda x: x * 2.0), (X,), **options)


def test_calls_that_cannot_be_asked() -> None:
    model = Wrap(lambda x: x)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got function"):
        check_causal(lambda x: x, (X,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="args must be a tuple"):
        check_causal(model, X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no tensor argument"):
        check_causal(model, ("text",))
    with pytest.raises(ValueError, match="holds no token"):
        check_causal(model, (torch.zeros(2, 0, 8),))
    with pytest.raises(ValueError, match="no Jacobian: the output has no finite gradient"):
        check_causal(Wrap(lambda ids: ids * 2), (IDS,), method="jacobian")
    with pytest.raises(ValueError, match="changes its shape"):
        check_causal(Wrap(lambda x: x[:, x[0, :, 0] > 0]), (X,), method="perturbation")


class OwnError(Exception):
    pass


def test_an_error_of_the_model_reaches_the_caller_and_leaves_it_as_it_was() -> None:
    def fail(x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        norm(x.transpose(1, 2))
        raise OwnError("from the model")

    model = Wrap(fail, nn.BatchNorm1d(8)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(OwnError, match="from the model"):
        check_causal(model, (X,), training=True)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# -- token ids -------------------------------------------------------------------------------------------------------


def test_ids_stay_within_the_vocabulary_and_away_from_padding() -> None:
    seen: set[int] = set()
    embedding = nn.Embedding(7, 8, padding_idx=0)

    def forward(ids: torch.Tensor, table: nn.Module, block: nn.Module) -> torch.Tensor:
        seen.update(ids.flatten().tolist())
        return block(table(ids))

    ids = torch.tensor([[5, 1, 0, 2]])
    result = check_causal(Wrap(forward, embedding, Block(8, 2)), (ids,), draws=8, method="perturbation")
    assert result.causal
    assert seen == {0, 1, 2, 3, 4, 5, 6}  # 0 from the caller's own padding
    # A padding id is never replaced, so nothing is seen to depend on it.
    assert [row[2] for row in result.matrix] == [False] * 4


def test_ids_without_an_embedding_need_a_vocabulary() -> None:
    one_hot = Wrap(lambda ids, block: block(nn.functional.one_hot(ids, 8).float()), Block(8, 2))
    with pytest.raises(ValueError, match="pass vocabulary=N"):
        check_causal(one_hot, (torch.zeros(1, 4, dtype=torch.long),))
    assert check_causal(one_hot, (torch.zeros(1, 4, dtype=torch.long),), vocabulary=8).matrix == triangle(4)
    # Two distinct ids can stand for each other.
    assert check_causal(one_hot, (torch.tensor([[0, 1, 1, 0]]),)).matrix == triangle(4)


# -- everything is put back ------------------------------------------------------------------------------------------


class Stateful(nn.Module):
    """Keeps a cache, a counter, a running statistic and a list, and writes one of its own parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block(8, 2)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("cache", torch.zeros(2, 6, 8))
        self.scale = nn.Parameter(torch.ones(8), requires_grad=False)
        self.count = torch.zeros(())
        self.calls = 0
        self.history: list[torch.Tensor] = []
        self.cache: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.count += 1
        self.history.append(x)
        self.scale.mul_(1.5)
        torch.rand(3)
        random.random()
        self.cache.copy_(x)
        y = self.block(self.cache) * self.scale * self.count * len(self.history)
        return self.norm(y.transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize("method", ["auto", "perturbation"])
def test_a_model_is_left_as_it_was(method: Any) -> None:
    model = Stateful().train()
    model.block.eval()
    model.norm.register_forward_hook(lambda module, args, output: None)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = {name: id(value) for name, value in model.state_dict(keep_vars=True).items()}
    flags = [child.training for child in model.modules()]
    attributes = list(model.__dict__)
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    assert check_causal(model, (X,), method=method).causal
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert {name: id(value) for name, value in model.state_dict(keep_vars=True).items()} == tensors
    assert [child.training for child in model.modules()] == flags
    assert list(model.__dict__) == attributes
    assert (model.calls, model.count.item(), model.history) == (0, 0.0, [])
    assert model.cache.grad_fn is None
    assert not model.cache.requires_grad
    assert len(model.norm._forward_hooks) == 1
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_every_run_finds_the_state_of_the_first() -> None:
    # Without it the counters of `Stateful` would make every output differ from the first one.
    result = check_causal(Stateful(), (X,), method="perturbation")
    assert result.notes == ()
    assert result.matrix == triangle(6)


def test_it_works_inside_no_grad_and_inference_mode() -> None:
    model = Block(8, 2)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            result = check_causal(model, (X.clone(),))
            assert (result.causal, result.method) == (True, "jacobian")
    assert torch.is_grad_enabled()


def test_a_model_that_is_being_scanned_is_refused() -> None:
    inner = Block(8, 2)
    outer = Wrap(lambda x, part: (check_causal(inner, (X,)), part(x))[1], inner)
    with pytest.raises(torchscan.ConcurrentScanError):
        check_causal(outer, (X,))


# -- the result ------------------------------------------------------------------------------------------------------


def test_the_text_shows_the_leak() -> None:
    text = str(check_causal(GPT(2), (IDS[:, :3],)))
    assert text.splitlines()[0] == (
        "NOT causal: output position 0 depends on input position 1 (and 1 more such pair) "
        "[ids, 3 outputs x 3 inputs, jacobian, 3 draws]"
    )
    assert text.splitlines()[1:4] == ["  #!.", "  ##!", "  ###"]


def test_the_result_is_plain_data() -> None:
    data = check_causal(GPT(2), (IDS[:, :3],), draws=1).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data == {
        "causal": False,
        "matrix": [[True, True, False], [True, True, True], [True, True, True]],
        "method": "jacobian",
        "draws": 1,
        "leak": [0, 1],
        "argument": "ids",
        "axis": 1,
        "output_axis": 1,
        "offset": 0,
        "training": False,
        "undefined": [],
        "notes": [],
        "leaks": 2,
    }
