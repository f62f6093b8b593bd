from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import torchscan
from causal_models import GPT, IDS, Block, Wrap, X, square, triangle
from torchscan import check_causal

# -- verdicts --------------------------------------------------------------------------------------------------------


def test_a_clean_gpt_on_token_ids_is_causal() -> None:
    result = check_causal(GPT(1, 1, 1), (IDS,))
    assert result.causal
    assert bool(result)
    assert result.matrix == triangle(6)
    assert (result.method, result.draws, result.leak, result.leaks) == ("jacobian", 3, None, ())
    assert (result.argument, result.axis, result.output_axis) == ("ids", 1, 1)
    assert str(result).startswith("causal: no output position depends on a later input position [ids, 6 outputs x 6")


def test_replaced_token_ids_show_what_gradients_of_their_embeddings_show() -> None:
    for model in (GPT(1, 1), GPT(2), GPT(1, None)):
        by_gradient, by_token = (check_causal(model, (IDS,), method=method) for method in ("jacobian", "perturbation"))
        assert by_gradient.matrix == by_token.matrix
        assert (by_gradient.method, by_token.method) == ("jacobian", "perturbation")


def test_gradients_begin_at_the_ids_that_were_asked_about() -> None:
    class EncoderDecoder(nn.Module):
        """One embedding for both sides; the decoder is causal, the source is not."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 8)
            self.block = Block(8, 2)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.block(self.table(target)) + self.table(source).mean(1, keepdim=True)

    # The same ids on both sides, in two tensors.
    assert check_causal(EncoderDecoder(), (IDS, IDS.clone()), argument="target").causal
    assert check_causal(EncoderDecoder(), (IDS, IDS.clone()), argument="source").matrix == square(6)


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


def rounded_by_the_last_token(x: torch.Tensor, block: nn.Module) -> torch.Tensor:
    # Adding and taking away a large number leaves a rounding error of 1e3 * 6e-8, in double precision of 1e3 * 1e-16.
    large = 1e3 * (1 + x.detach()[:, -1:].abs())
    return (block(x) + large) - large


def test_rounding_is_told_from_dependence_in_double_precision() -> None:
    for method in ("auto", "perturbation"):
        result = check_causal(Wrap(rounded_by_the_last_token, Block(8, 2)), (X,), method=method)
        assert result.causal
        assert "as rounding: in double precision they stay the same" in result.notes[0]
    # A genuine dependence of that size stays one.
    tiny = Wrap(lambda x, block: block(x) + 1e-5 * x.detach().roll(-1, 1), Block(8, 2))
    for method in ("auto", "perturbation"):
        assert check_causal(tiny, (X,), method=method).leak == (0, 1)


def test_without_double_precision_gradients_tell_rounding() -> None:
    def single(x: torch.Tensor, block: nn.Module) -> torch.Tensor:
        if x.dtype is torch.float64:
            raise RuntimeError("this kernel has no double precision")
        return rounded_by_the_last_token(x, block)

    result = check_causal(Wrap(single, Block(8, 2)), (X,))
    assert (result.causal, result.method) == (True, "jacobian")
    assert "they have no gradient" in result.notes[0]
    alone = check_causal(Wrap(single, Block(8, 2)), (X,), method="perturbation")
    assert not alone.causal
    assert "nothing can tell" in alone.notes[0]


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
