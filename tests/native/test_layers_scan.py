"""The layers through a whole scan: the engine reports what the handlers say, and the audit raises no alarm."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from native.layers_catalogue import CATALOGUE
from native.layers_support import COUNTS, counts
from torchscan import crawl_module


def totals(report):
    return tuple(report["totals"][metric]["value"] for metric in COUNTS)


@pytest.mark.parametrize("execution", ["real", "fake"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_layer_is_complete(name, execution):
    build, args = CATALOGUE[name]
    report = crawl_module(build(), args=args, execution=execution)
    assert totals(report) == counts(build(), *args)
    assert report["layers"][0]["metrics"]["macs"]["method"] == "torchscan_formula_v1"
    assert [d for d in report["diagnostics"] if d["metric"] in COUNTS] == []


def test_training_flags_do_not_matter():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.RReLU()).train()
    report = crawl_module(model, args=(torch.ones(2, 3, 4),))
    # saved statistics 102 / 24 / 109, nothing, and 24*4 / 0 / 48
    assert totals(report) == (198, 24, 157)
    assert model.training


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_computed_parameters():
    x = torch.ones(1, 2, 5)
    # the convolution 96 / 48 / 37 and the norm of 12 elements in 3 rows 48 / 0 / 51, as a child or as a hook
    assert totals(crawl_module(parametrizations.weight_norm(nn.Conv1d(2, 3, 2)), args=(x,))) == (144, 48, 88)
    assert totals(crawl_module(nn.utils.weight_norm(nn.Conv1d(2, 3, 2)), args=(x,))) == (144, 48, 88)
    # Linear(4, 2) on 3 rows and u, v of a 2x4 weight: 25 / 10 / 36
    layer = parametrizations.spectral_norm(nn.Linear(4, 2))
    assert totals(crawl_module(layer, args=(torch.ones(3, 4),))) == (73, 34, 64)
    # and a mask of 8 elements: 8 / 0 / 24
    layer = prune.l1_unstructured(nn.Linear(4, 2), "weight", amount=2)
    assert totals(crawl_module(layer, args=(torch.ones(3, 4),))) == (56, 24, 52)


def test_an_orthogonal_parameter_leaves_a_lower_bound():
    report = crawl_module(parametrizations.orthogonal(nn.Linear(3, 3)), args=(torch.ones(3, 3),))
    # Linear(3, 3) on 3 rows: 9*5 + 9; 27
    assert report["totals"]["module_flops"]["known_value"] == 54
    assert report["totals"]["macs"]["status"] == "partial"
    assert report["totals"]["macs"]["known_value"] == 27
    assert {d["reason"] for d in report["diagnostics"] if d["metric"] == "macs"} == {"matrix_factorisation"}


class Scaled(nn.Linear):
    def forward(self, input):
        return super().forward(input) * 2


@pytest.mark.parametrize(
    ("build", "x"),
    [
        (lambda: Scaled(4, 2), torch.ones(3, 4)),
        (lambda: nn.Linear(4, 2, dtype=torch.complex64), torch.ones(3, 4, dtype=torch.complex64)),
        (lambda: nn.ReLU(), torch.ones(3, 4, dtype=torch.long)),
        (lambda: nn.ReLU(), torch.eye(3).to_sparse()),
        (lambda: nn.CrossMapLRN2d(2), torch.ones(1, 2, 3, 3)),
    ],
)
def test_other_calls_are_incomplete_and_say_why(build, x):
    report = crawl_module(build(), args=(x,))
    for metric in COUNTS:
        assert report["totals"][metric]["status"] != "complete"
        assert [d for d in report["diagnostics"] if d["metric"] == metric and d["message"]]


@pytest.mark.parametrize(
    ("build", "args"),
    [
        (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2]), (torch.ones(3, 4), torch.tensor([0, 3, 5]))),
        (lambda: nn.TripletMarginLoss(), (torch.ones(2, 3), torch.zeros(2, 3), torch.rand(2, 3))),
        (lambda: nn.TripletMarginWithDistanceLoss(), (torch.ones(2, 3), torch.zeros(2, 3), torch.rand(2, 3))),
        (lambda: nn.CosineEmbeddingLoss(), (torch.ones(2, 3), torch.ones(2, 3), torch.ones(2))),
        (
            lambda: nn.CTCLoss(),
            (torch.ones(4, 3).log_softmax(1), torch.tensor([1, 2]), torch.tensor(4), torch.tensor(2)),
        ),
        (lambda: nn.PoissonNLLLoss(), (torch.ones(3), torch.ones(3))),
        (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), (torch.ones(2, 3), torch.tensor([0, 1]))),
        (lambda: nn.CosineSimilarity(), (torch.ones(2, 3), torch.ones(1, 3))),
    ],
)
def test_classes_and_variants_without_a_formula_are_incomplete(build, args):
    report = crawl_module(build(), args=args)
    assert report["totals"]["module_flops"]["status"] != "complete"
    assert report["totals"]["dmas"]["status"] != "complete"
