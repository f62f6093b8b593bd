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
from torchscan import check_causal
from torchscan.engine.causality import causality_command


def triangle(length: int) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(j <= i for j in range(length)) for i in range(length))


def square(length: int) -> tuple[tuple[bool, ...], ...]:
    return ((True,) * length,) * length


class Block(nn.Module):
    """A GPT block of custom code. It masks keys from `i + ahead` on; `None` forgets the mask."""

    def __init__(self, width: int, heads: int, ahead: int | None = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.ahead = heads, ahead
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self.ahead is not None:
            later = torch.ones(tokens, tokens, dtype=torch.bool).triu(self.ahead)
            scores = scores.masked_fill(later, -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.dropout(self.out(mixed))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, *aheads: int | None, vocabulary: int = 11, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width, 2, ahead, dropout) for ahead in aheads)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))


class Wrap(nn.Module):
    """A model from a function."""

    def __init__(self, function: Any, *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(modules)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.parts)


# -- verdicts --------------------------------------------------------------------------------------------------------


def test_a_clean_gpt_on_token_ids_is_causal() -> None:
    result = check_causal(GPT(1, 1, 1), (IDS,))
    assert result.causal
    assert bool(result)
    assert result.matrix == triangle(6)
    assert (result.method, result.draws, result.leak, result.leaks) == ("perturbation", 3, None, ())
    assert (result.argument, result.axis, result.output_axis) == ("ids", 1, 1)
    assert str(result).startswith("causal: no output position depends on a later input position [ids, 6 outputs x 6")


def test_a_clean_gpt_on_embeddings_is_causal() -> None:
    result = check_causal(nn.Sequential(Block(8, 2), Block(8, 2)), (X,))
    assert result.causal
    assert result.matrix == triangle(6)
    assert result.method == "jacobian"
    assert result.notes == ()


@pytest.mark.parametrize("forgetful", [0, 7, 11])
def test_a_missing_mask_in_one_of_twelve_layers_is_found(forgetful: int) -> None:
    aheads: list[int | None] = [1] * 12
    aheads[forgetful] = None
    result = check_causal(GPT(*aheads), (IDS,), draws=1)
    assert not result.causal
    # The unmasked layer shows every token to every position.
    assert result.matrix == square(6)
    assert result.leak == (0, 1)
    assert len(result.leaks) == 15  # 5 + 4 + 3 + 2 + 1 later positions
    floats = check_causal(nn.Sequential(*GPT(*aheads).blocks), (X,), draws=1)
    assert (floats.leak, floats.method) == ((0, 1), "jacobian")


def test_a_mask_that_is_off_by_one_is_found() -> None:
    result = check_causal(GPT(2), (IDS,))
    # triu(2) lets position i see i + 1; position 5 has no later one.
    assert result.matrix == tuple(tuple(j <= i + 1 for j in range(6)) for i in range(6))
    assert result.leak == (0, 1)
    assert result.leaks == ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5))
    assert check_causal(GPT(2), (IDS,), offset=1).causal


def test_a_model_that_may_not_see_its_own_token() -> None:
    strict = Wrap(lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)], 1))
    assert check_causal(strict, (X,), offset=-1).causal
    result = check_causal(Block(8, 2), (X,), offset=-1)
    assert result.leak == (0, 0)
    assert len(result.leaks) == 6


def test_an_extra_position_in_front_shifts_the_diagonal() -> None:
    # Output 0 is a start token, output i + 1 sums the inputs up to i: seven outputs of six inputs.
    model = Wrap(lambda x: torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(1)], 1))
    result = check_causal(model, (X,), offset=-1)
    assert result.causal
    assert result.matrix == ((False,) * 6, *triangle(6))
    leaking = Wrap(lambda x: torch.cat([x.sum(1, keepdim=True), x.cumsum(1)], 1))
    assert check_causal(leaking, (X,), offset=-1).leak == (0, 0)


def batch_norm(**options: Any) -> Wrap:
    """Normalize (batch, tokens, features) over batch and tokens."""
    return Wrap(lambda x, norm: norm(x.transpose(1, 2)).transpose(1, 2), nn.BatchNorm1d(8, **options))


def test_batch_norm_over_tokens_leaks_exactly_when_it_uses_the_statistics_of_the_batch() -> None:
    saved = batch_norm()
    result = check_causal(saved, (X,))
    assert result.causal
    assert result.matrix == tuple(tuple(i == j for j in range(6)) for i in range(6))
    assert check_causal(batch_norm(track_running_stats=False), (X,)).leak == (0, 1)
    training = check_causal(saved, (X,), training=True)
    assert training.leak == (0, 1)
    assert training.matrix == square(6)
    assert training.training
    assert "training mode" in str(training)


def test_native_stacks_agree_with_their_derived_relation() -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 16)
    model = nn.TransformerDecoder(layer, 2)
    tgt, memory = torch.randn(4, 2, 8), torch.randn(6, 2, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    kwargs = {"tgt_mask": mask}
    relation = torchscan.scan(model, args=(tgt, memory), kwargs=kwargs).layers[0].token_dependencies
    assert relation is not None
    own, source = relation.sources
    assert check_causal(model, (tgt, memory), kwargs, axis=0).matrix == own.relation.matrix(4, 4)
    found = check_causal(model, (tgt, memory), kwargs, argument="memory", axis=0)
    assert found.matrix == source.relation.matrix(4, 6)
    assert not found.causal


def test_the_same_tensor_under_two_names_changes_in_both_places() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    shared = check_causal(attention, (X, X, X))
    assert shared.matrix == square(6)
    apart = check_causal(attention, (X, X.clone(), X.clone()), argument="query")
    assert apart.matrix == tuple(tuple(i == j for j in range(6)) for i in range(6))


# -- where autograd does not pass ------------------------------------------------------------------------------------


def test_a_model_that_turns_gradients_off_is_perturbed() -> None:
    @torch.no_grad()
    def quiet(x: torch.Tensor, block: nn.Module) -> torch.Tensor:
        return block(x)

    result = check_causal(Wrap(quiet, Block(8, 2)), (X,))
    assert (result.causal, result.method) == (True, "perturbation")
    assert result.matrix == triangle(6)
    leaking = check_causal(Wrap(quiet, Block(8, 2, None)), (X,))
    assert (leaking.leak, leaking.method) == ((0, 1), "perturbation")
    with pytest.raises(ValueError, match="no Jacobian"):
        check_causal(Wrap(quiet, Block(8, 2)), (X,), method="jacobian")


def test_inference_mode_inside_the_model_is_perturbed() -> None:
    @torch.inference_mode()
    def quiet(x: torch.Tensor, block: nn.Module) -> torch.Tensor:
        return block(x)

    result = check_causal(Wrap(quiet, Block(8, 2, None)), (X,))
    assert (result.leak, result.method) == ((0, 1), "perturbation")


@pytest.mark.parametrize(
    "leak",
    [
        lambda x: x.detach().roll(-1, 1),  # the gradient stops here
        lambda x: (x.roll(-1, 1) > 0).to(x.dtype),  # a hard choice has none
        lambda x: torch.full_like(x, float(x.detach()[:, -1].sum())),  # a number that left the graph
    ],
)
def test_a_leak_without_gradient_beside_a_path_with_one_is_found(leak: Any) -> None:
    model = Wrap(lambda x, block: block(x) + leak(x), Block(8, 2))
    assert check_causal(model, (X,), method="jacobian").causal  # all that gradients can see
    result = check_causal(model, (X,))
    assert result.leak is not None
    assert result.leak[0] == 0
    assert result.method == "perturbation"
    assert "gradients show no leak" in result.notes[0]


def test_integer_outputs_are_perturbed() -> None:
    model = Wrap(lambda x, block: block(x).argmax(-1), Block(8, 2))
    result = check_causal(model, (X,), draws=20)
    assert (result.causal, result.method) == (True, "perturbation")
    # Whether a replaced token changes the largest logit is chance; nothing changes an earlier one.
    assert any(any(row) for row in result.matrix)


def test_models_that_write_in_place() -> None:
    def in_place(x: torch.Tensor, block: nn.Module) -> torch.Tensor:
        x.mul_(2.0)
        return block(x).add_(1.0)

    before = X.clone()
    result = check_causal(Wrap(in_place, Block(8, 2)), (X,))
    assert (result.causal, result.method) == (True, "jacobian")
    assert torch.equal(X, before)
    # A write that breaks the graph: autograd complains, and perturbing takes over.
    broken = Wrap(lambda x, block: block(x).relu_().add_(1.0), Block(8, 2))
    result = check_causal(broken, (X,))
    assert (result.causal, result.method) == (True, "perturbation")
    assert "autograd does not pass" in result.notes[0]


# -- NaN, noise, nothing ---------------------------------------------------------------------------------------------


def test_positions_that_are_nan_are_named_and_not_passed() -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(6, 6, dtype=torch.bool).tril()
        mask[:2] = False  # the first two queries may attend to nothing
        return (x @ x.transpose(1, 2)).masked_fill(~mask, -torch.inf).softmax(-1) @ x

    result = check_causal(Wrap(padded), (X,))
    assert result.undefined == (0, 1)
    assert not result.causal
    assert result.leak is None
    assert "output positions 0, 1 are NaN" in str(result)
    # The other rows are judged: 0 * NaN in a backward pass has not smeared over them.
    assert result.matrix[2:] == triangle(6)[2:]
    assert not any(any(row) for row in result.matrix[:2])


def test_a_leak_beside_nan_is_still_found() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x.flip(1).cumsum(1).flip(1)  # position i sums the inputs from i on
        return torch.cat([y[:, :1] * torch.nan, y[:, 1:]], 1)

    result = check_causal(Wrap(model), (X,))
    assert (result.leak, result.undefined) == ((1, 2), (0,))


def test_noise_is_told_from_dependence() -> None:
    counter = iter(range(10**6))
    noisy = Wrap(lambda x, block: block(x) + 1e-6 * next(counter) % 7e-6, Block(8, 2))
    result = check_causal(noisy, (X,), method="perturbation")
    assert result.causal
    assert "not deterministic" in result.notes[0]
    leaking = Wrap(lambda x, block: block(x) + 1e-6 * (next(counter) % 7), Block(8, 2, None))
    assert check_causal(leaking, (X,), method="perturbation").leak == (0, 1)


def test_dropout_draws_the_same_mask_in_every_run() -> None:
    result = check_causal(GPT(1, 1, dropout=0.3), (IDS,), training=True)
    assert result.causal
    assert result.notes == ()


def test_an_argument_that_nothing_depends_on_is_pointed_out() -> None:
    result = check_causal(Wrap(lambda x: x * 0.0), (X,))
    assert result.causal
    assert "nothing depends on this argument" in result.notes[0]
    assert "nothing depends" in str(result)


def test_one_token_has_no_later_one() -> None:
    assert check_causal(GPT(None), (IDS[:, :1],)).causal


def test_dead_paths_need_more_than_one_draw() -> None:
    # The leak passes only where the first feature of the last token is positive; the caller's is not.
    def gated(x: torch.Tensor) -> torch.Tensor:
        return x + x[:, -1:, :1].relu()

    x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(5))
    x[0, -1, 0] = -1.0
    assert check_causal(Wrap(gated), (x,), draws=1, method="jacobian").causal
    assert check_causal(Wrap(gated), (x,), draws=12, method="jacobian").leak == (0, 2)


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
    with pytest.raises(ValueError, match="have no gradient"):
        check_causal(GPT(1), (IDS,), method="jacobian")
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
    result = check_causal(Wrap(forward, embedding, Block(8, 2)), (ids,), draws=8)
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
        "[ids, 3 outputs x 3 inputs, perturbation, 3 draws]"
    )
    assert text.splitlines()[1:4] == ["  #!.", "  ##!", "  ###"]


def test_the_result_is_plain_data() -> None:
    data = check_causal(GPT(2), (IDS[:, :3],), draws=1).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data == {
        "causal": False,
        "matrix": [[True, True, False], [True, True, True], [True, True, True]],
        "method": "perturbation",
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


def test_the_command() -> None:
    code, text = causality_command(GPT(1), (IDS,), argument="0")
    assert (code, text.split(":")[0]) == (0, "causal")
    code, text = causality_command(GPT(None), (IDS,), as_json=True, argument="ids", draws=1)
    assert code == 1
    assert json.loads(text)["leak"] == [0, 1]
    with pytest.raises(ValueError, match="no tensor argument"):
        causality_command(GPT(1), (IDS,), argument="x")
