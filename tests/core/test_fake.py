"""`execution="fake"`: the same module metrics without computing anything."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from torchscan import FakeExecutionError, scan


def module_metrics(report):
    return {
        (layer.path, layer.call_index): (layer.metrics, layer.token_dependencies)
        for layer in report.layers
        if layer.depth < 2
    }, {name: getattr(report.totals, name) for name in ("macs", "dmas", "module_flops", "parameters")}


def causal(length):
    return nn.Transformer.generate_square_subsequent_mask(length)


class Gpt(nn.Module):
    """Embeddings, a mask made in the body, tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.positions = nn.Embedding(16, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)

    def forward(self, ids):
        length = ids.shape[1]
        x = self.tokens(ids) + self.positions(torch.arange(length, device=ids.device))
        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        return self.head(self.block(x, src_mask=mask, is_causal=True))


class Fills(nn.Module):
    """Assigns numbers to parts of a tensor, as a mask of windows is made."""

    def forward(self, x):
        regions = x.new_zeros(4, 4)
        regions[:2, 1:] = 3.0
        regions[2:] = x.new_ones(())
        regions[0, 0] = 1.0
        return x, regions


CASES = {
    "transformer": lambda: (
        nn.Transformer(8, 2, 2, 2, 16, batch_first=True),
        (torch.ones(2, 3, 8), torch.ones(2, 4, 8)),
        {"tgt_mask": causal(4), "tgt_is_causal": True},
    ),
    "attention": lambda: (
        nn.MultiheadAttention(8, 2, batch_first=True),
        (torch.ones(2, 3, 8),) * 3,
        {"attn_mask": torch.ones(3, 3, dtype=torch.bool).triu(1), "need_weights": False},
    ),
    "gpt": lambda: (Gpt(), (torch.zeros(2, 5, dtype=torch.long),), {}),
    "convolutions": lambda: (
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        (torch.ones(1, 1, 8, 8),),
        {},
    ),
    "recurrent": lambda: (nn.LSTM(3, 4, num_layers=2, bidirectional=True), (torch.ones(5, 2, 3),), {}),
    "up and down": lambda: (
        nn.Sequential(nn.Conv1d(2, 4, 3), nn.ConvTranspose1d(4, 2, 3), nn.Upsample(scale_factor=2)),
        (torch.ones(1, 2, 9),),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_module_metrics_as_a_real_run(name):
    module, args, kwargs = CASES[name]()
    real = scan(module, args=args, kwargs=kwargs)
    fake = scan(module, args=args, kwargs=kwargs, execution="fake")
    assert real.totals.macs.status == "complete"
    real_rows, real_totals = module_metrics(real)
    fake_rows, fake_totals = module_metrics(fake)
    assert real_totals == fake_totals
    for key, row in real_rows.items():
        assert fake_rows[key] == row, key
    assert fake.context.execution == "fake"
    assert {layer.path for layer in real.layers} <= {layer.path for layer in fake.layers}


def test_numbers_that_are_assigned_are_no_data_movement():
    # On the meta device PyTorch copies where it fills on the CPU. The one copy is that of a number into a number: a
    # read and a write.
    for execution in ("real", "fake"):
        model = nn.Sequential(nn.Linear(4, 4), Fills())
        report = scan(model, args=(torch.ones(2, 4),), functional="estimate", execution=execution)
        assert report.totals.dmas.value == (8 + 20 + 8) + 2


class Experts(nn.Module):
    """One product per group, in every form that PyTorch has."""

    def forward(self, x, stacked, ends):
        return (
            torch._grouped_mm(x, stacked, offs=ends),  # groups of rows
            torch._grouped_mm(stacked.mT.contiguous(), x.T.contiguous(), offs=ends),  # groups of columns
            torch._grouped_mm(x.T.contiguous(), x, ends),  # groups of terms
            torch._grouped_mm(stacked, stacked.mT.contiguous()),  # a batch
        )


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="came with PyTorch 2.8")
def test_products_of_groups():
    inputs = (torch.ones(8, 4), torch.ones(2, 4, 8), torch.tensor([4, 8], dtype=torch.int32))
    expected = [tuple(output.shape) for output in Experts()(*inputs)]
    assert expected == [(8, 8), (8, 8), (2, 4, 4), (2, 4, 4)]
    real, fake = (scan(Experts(), args=inputs, functional="estimate", execution=how) for how in ("real", "fake"))
    assert [item.shape for item in fake.layers[0].output.items] == expected
    assert module_metrics(fake) == module_metrics(real)


def test_masks_keep_their_values():
    module, args, kwargs = CASES["attention"]()
    (row, *_) = scan(module, args=args, kwargs=kwargs, execution="fake").layers
    assert row.token_dependencies.status == "complete"
    assert {source.relation.kind for source in row.token_dependencies.sources} == {"prefix"}


class Heavy(TorchDispatchMode):
    """Fails when anything of size reaches a real device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        views = all(r.alias_info is not None for r in func._schema.returns)
        if isinstance(out, torch.Tensor) and not out.is_meta and not views and out.numel() > 1 << 20:
            raise AssertionError(f"{func} was computed")
        return out


def test_nothing_of_size_is_computed():
    module = nn.Sequential(nn.Linear(1 << 11, 1 << 12), nn.GELU(), nn.Linear(1 << 12, 1 << 11))
    x = torch.ones(1 << 10, 1 << 11)
    with Heavy():
        report = scan(module, args=(x,), execution="fake")
    # two products of 2**10 rows
    assert report.totals.macs.value == 2 * (1 << 10) * (1 << 11) * (1 << 12)


def test_a_model_on_the_meta_device_takes_real_token_ids():
    module = Gpt().to("meta")
    report = scan(module, args=(torch.zeros(2, 5, dtype=torch.long),), execution="fake")
    assert report.totals.macs.value == scan(Gpt(), args=(torch.zeros(2, 5, dtype=torch.long),)).totals.macs.value
    block = next(layer for layer in report.layers if layer.path == "block")
    assert block.token_dependencies.sources[0].relation.kind == "prefix"


def test_values_that_do_not_depend_on_the_model_can_be_read():
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x, mask):
            if mask.all() and int(mask.sum()) == 3 and (torch.arange(3) > 1).any().item():
                return self.fc(x)
            raise AssertionError("the mask has lost its values")

    report = scan(Padded(), args=(torch.ones(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)), execution="fake")
    assert report.totals.macs.value == 48


class Reads(nn.Module):
    def __init__(self, how) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.how = how

    def forward(self, x):
        return self.how(self.fc(x))


@pytest.mark.parametrize(
    "how",
    [lambda y: y.sum().item(), lambda y: y if y.sum() > 0 else -y, lambda y: y.nonzero(), lambda y: y[y > 0]],
)
def test_code_that_needs_values_is_told_where_and_what_to_do(how):
    module = Reads(how).train()
    with pytest.raises(FakeExecutionError, match=r"test_fake\.py:\d+.*execution='real'"):
        scan(module, args=(torch.ones(1, 2),), execution="fake")
    assert module.training


def test_the_model_is_left_as_it_was():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = {name: (value.data_ptr(), value.clone()) for name, value in module.state_dict(keep_vars=True).items()}
    scan(module, args=(torch.ones(3, 2),), execution="fake")
    for name, value in module.state_dict(keep_vars=True).items():
        assert value.data_ptr() == before[name][0]
        assert torch.equal(value, before[name][1])


def test_writing_computed_values_into_a_made_tensor_takes_its_values_away():
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            out = torch.zeros(3, 2)
            out[1:] = self.fc(x)
            return F.relu(out) @ out.T, bool(out.sum())

    with pytest.raises(FakeExecutionError, match="test_fake"):
        scan(Writes(), args=(torch.ones(2, 2),), execution="fake")


def test_whatever_a_model_raises_carries_a_note_about_the_fake_run():
    def on_the_cpu_only(y):
        if y.device.type != "cpu":
            raise ValueError("only on the CPU")
        return y

    module = Reads(on_the_cpu_only)
    with pytest.raises(ValueError, match="only on the CPU") as caught:
        scan(module, args=(torch.ones(1, 2),), execution="fake")
    assert "execution='real'" in caught.value.__notes__[0]
    scan(module, args=(torch.ones(1, 2),))


def test_a_model_on_the_meta_device_runs_the_operators_it_would_run(monkeypatch):
    module = nn.Transformer(8, 2, 2, 2, 16, batch_first=True, device="meta").eval()
    x = torch.ones(2, 3, 8, device="meta")
    cached = scan(module, args=(x, x))
    monkeypatch.setattr("torchscan.engine.scanner.is_on_meta", lambda tree: False)
    assert scan(module, args=(x, x)) == cached
    with pytest.raises(RuntimeError, match="meta") as caught:
        scan(Reads(lambda y: y.sum().item()).to("meta"), args=(torch.ones(1, 2, device="meta"),))
    assert not isinstance(caught.value, FakeExecutionError)
