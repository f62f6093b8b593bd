"""A scan leaves the model, the process and other scans as they were."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from torchscan import ConcurrentScanError, crawl_module, scan


class Counting(nn.Module):
    """Changes everything it can while it runs."""

    def __init__(self, armed: bool = False) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.armed = armed
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("cache", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        self.seen = self.seen + 1
        self.cache = torch.ones(3)
        self.fc.bias.data.fill_(9.0)
        torch.rand(1)
        x = self.norm(self.fc(x))
        if self.armed:
            raise ValueError("fuse")
        return x


def snapshot(module: nn.Module) -> dict[str, Any]:
    return {
        "state": {name: value.clone() for name, value in module.state_dict().items()},
        "keys": list(module.state_dict()),
        "flags": [child.training for child in module.modules()],
        "hooks": [
            (dict(child._forward_hooks), dict(child._forward_pre_hooks), dict(child._buffers).keys())
            for child in module.modules()
        ],
        "identity": [id(tensor) for tensor in (*module.parameters(), *module.buffers())],
        "grads": [parameter.grad for parameter in module.parameters()],
        "rng": torch.get_rng_state(),
        "grad_enabled": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
    }


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    state = left.pop("state"), right.pop("state")
    rng = left.pop("rng"), right.pop("rng")
    return left == right and torch.equal(*rng) and all(torch.equal(state[0][name], state[1][name]) for name in state[0])


@pytest.mark.parametrize("armed", [False, True])
@pytest.mark.parametrize("options", [{}, {"mode": "structure"}, {"functional": "estimate"}])
def test_everything_is_as_it_was(armed, options):
    module = Counting(armed)
    module.norm.eval()  # a mixed pattern of flags
    before = snapshot(module)
    if armed:
        with pytest.raises(ValueError, match=r"^fuse$"):
            scan(module, (2,), **options)
    else:
        scan(module, (2,), **options)
    assert same(before, snapshot(module))
    module.armed = False
    # 2 * 2 products, and 2 affine products of the norm with saved statistics
    assert scan(module, (2,)).totals.macs.value == 6
    from torch.nn.modules import module as shared

    assert not shared._global_forward_hooks
    assert not shared._global_forward_pre_hooks


def test_three_scans_give_three_equal_reports():
    module = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3))
    x = torch.ones(2, 4)
    first, second, third = (crawl_module(module, args=(x,)) for _ in range(3))
    assert first == second == third


def test_two_threads_scan_their_own_models():
    wrong: list[Any] = []

    def work(width: int) -> None:
        module = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        for _ in range(200):
            report = scan(module, (width,))
            if report.totals.macs.value != width * width + width or len(report.layers) != 4:
                wrong.append(report.totals.macs)

    threads = [threading.Thread(target=work, args=(width,)) for width in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    from torch.utils import _python_dispatch

    assert not _python_dispatch._is_in_torch_dispatch_mode


def test_one_module_cannot_be_scanned_twice_at_the_same_time():
    class Nosy(nn.Module):
        def forward(self, x):
            with pytest.raises(ConcurrentScanError, match="already being scanned"):
                scan(self, args=(x,))
            return x

    scan(Nosy(), args=(torch.ones(1),), mode="structure")
