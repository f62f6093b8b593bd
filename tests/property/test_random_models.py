"""Random models: complete means right, partial means a lower bound, an estimate makes them equal."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from property.random_models import WIDTH, Recipe, product_terms, recipes
from torchscan import scan


def check(steps, batch: int, tokens: int) -> None:
    module = Recipe(steps)
    x = torch.randn(batch, tokens, WIDTH)
    truth = product_terms(module, x)
    audited = scan(module, args=(x,)).totals.macs
    if audited.status == "complete":
        assert audited.value == truth
    else:
        assert (audited.known_value or 0) <= truth
    for options in ({}, {"execution": "fake"}):
        estimated = scan(module, args=(x,), functional="estimate", **options).totals.macs
        assert (estimated.status, estimated.value) == ("complete", truth)


QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=60, **QUIET)
@given(recipes(1), st.integers(1, 2), st.integers(1, 3))
def test_random_models(steps, batch, tokens):
    check(steps, batch, tokens)


@pytest.mark.slow
@settings(max_examples=3000, **QUIET)
@given(recipes(2), st.integers(1, 2), st.integers(1, 4))
def test_thousands_of_random_models(steps, batch, tokens):
    check(steps, batch, tokens)
