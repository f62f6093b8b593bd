"""Token relations: offered where they are certain, and then equal to what differentiating shows."""

from __future__ import annotations

import pytest
import torch
from einops.layers.torch import EinMix, Rearrange, Reduce
from einops_harness import estimate
from torch.autograd.functional import jacobian


def observed(layer, shape, source_axis, target_axis):
    """Return which input tokens move which output tokens, over a few random inputs."""
    layer = layer.double()
    seen = None
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        matrix = jacobian(layer, torch.randn(shape, dtype=torch.float64, generator=generator))
        output_rank = matrix.dim() - len(shape)
        matrix = matrix.movedim((target_axis, output_rank + source_axis), (0, 1))
        here = matrix.flatten(2).abs().sum(-1) > 0
        seen = here if seen is None else seen | here
    return tuple(tuple(row) for row in seen.tolist())


@pytest.mark.parametrize(
    ("layer", "shape", "kind", "axes"),
    [
        (Rearrange("b t (h d) -> b h t d", h=2), (2, 3, 4), "same_position", (1, 2)),
        (Rearrange("b h t d -> b t (h d)"), (2, 2, 3, 2), "same_position", (2, 1)),
        (Rearrange("... seq c -> seq (...) c"), (2, 2, 3, 2), "same_position", (2, 0)),
        (Rearrange("b n c -> n b c"), (2, 3, 2), "same_position", (1, 0)),
        (Reduce("b t c -> b t", "mean"), (2, 3, 4), "same_position", (1, 1)),
        (EinMix("b t c -> b t d", weight_shape="c d", c=4, d=2), (2, 3, 4), "same_position", (1, 1)),
        (EinMix("b t c -> t b c", weight_shape="t c", t=3, c=4), (2, 3, 4), "same_position", (1, 0)),
        (EinMix("b t c -> b t0 c", weight_shape="t t0", bias_shape="t0", t=3, t0=2), (2, 3, 4), "all", (1, 1)),
        (EinMix("b t_in c -> b c t_out", weight_shape="t_in t_out", t_in=3, t_out=4), (1, 3, 2), "all", (1, 2)),
    ],
)
def test_the_relation_is_what_differentiating_shows(layer, shape, kind, axes):
    relation = estimate(layer, torch.ones(shape))["token_dependencies"]
    (source,) = relation.sources
    assert (source.arguments, source.relation.kind) == (("input",), kind)
    assert (source.sequence_axis, relation.output.sequence_axis) == axes
    assert source.length == shape[axes[0]]
    assert source.relation.matrix(relation.output.length, source.length) == observed(layer, shape, *axes)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Rearrange("b c h w -> b (h w) c"), (1, 2, 3, 4)),  # no token axis in the input
        (Rearrange("n c h w -> n (h w) c"), (1, 2, 3, 4)),  # n is the batch of an image
        (Rearrange("b t c -> (b t) c"), (2, 3, 4)),  # merged away
        (Rearrange("b (t p) c -> b t (p c)", p=2), (2, 4, 3)),  # each output token reads two
        (Rearrange("b t s c -> b s t c"), (1, 2, 3, 4)),  # which of the two?
        (Reduce("b t c -> b c", "mean"), (2, 3, 4)),  # no token axis in the output
        (EinMix("b t c -> b t t0 c", weight_shape="t0", t0=2), (2, 3, 4)),  # two token axes in the output
        (EinMix("b t c -> b s c", weight_shape="t s", t=3, s=2), (2, 3, 4)),  # two different names
    ],
)
def test_nothing_is_offered_where_it_is_not_certain(layer, shape):
    assert "token_dependencies" not in estimate(layer, torch.ones(shape))


def test_one_token_is_one_token():
    relation = estimate(Rearrange("b t c -> t b c"), torch.ones(2, 1, 4))["token_dependencies"]
    assert relation == relation.canonical()
    assert relation.sources[0].relation.kind == "all"
