"""`measure_flops`: the operator view of any workload, backward passes included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from torchscan.engine import hooks
from torchscan.engine.operator_mode import OperatorMode
from torchscan.engine.operator_view import tally_report
from torchscan.engine.operators import OperatorBook, OperatorCost
from torchscan.plugins.manager import PluginHost

__all__ = ["measure"]


class _Tallies:
    """Operators per dotted module name; those outside every module have the empty name."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.by_name: dict[str, dict[OperatorCost, int]] = {"": {}}
        self.tally: dict[OperatorCost, int] | None = None
        self._names: dict[int, str] = {}
        self._keep = modules
        for prefix, root in modules.items():
            for path, module in root.named_modules():
                self._names.setdefault(id(module), f"{prefix}.{path}" if path else prefix)
        self._stack: list[tuple[nn.Module, str]] = []

    def current_operators(self) -> dict[OperatorCost, int]:
        return self.by_name.setdefault(self._stack[-1][1] if self._stack else "", {})

    def enter(self, module: nn.Module) -> None:
        if (name := self._names.get(id(module))) is not None:
            self._stack.append((module, name))

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self.failed(module)

    def elsewhere(self, module: nn.Module) -> None:
        """Leave other threads alone; they are no part of this workload's tally."""

    def failed(self, module: nn.Module) -> None:
        if any(running is module for running, _ in self._stack):
            while self._stack.pop()[0] is not module:
                pass


def _named(
    modules: nn.Module | Iterable[nn.Module] | Mapping[str, nn.Module] | None,
) -> dict[str, nn.Module]:
    if modules is None:
        return {}
    if isinstance(modules, nn.Module):
        modules = [modules]
    if isinstance(modules, Mapping):
        named = dict(modules)
    else:
        named = {}
        for module in modules:
            name = type(module).__name__
            if name in named:  # two models of one class stay apart
                name = f"{name}_{sum(key.split('_')[0] == type(module).__name__ for key in named)}"
            named[name] = module
    for name, module in named.items():
        if not isinstance(module, nn.Module):
            raise TypeError(f"modules must hold torch.nn.Module objects, got {type(module).__name__} for {name!r}")
    return named


def measure(
    workload: Callable[[], Any],
    modules: nn.Module | Iterable[nn.Module] | Mapping[str, nn.Module] | None,
    custom_mapping: Mapping[Any, Any] | None,
    host: PluginHost,
) -> dict[str, Any]:
    """Run the workload once and return the operator view in wire form."""
    from torchscan.report.wire import operators_to_dict

    if not callable(workload):
        raise TypeError(f"workload must be a callable without arguments, got {type(workload).__name__}")
    book = OperatorBook(host.operator_formulas, custom_mapping)
    tallies = _Tallies(_named(modules))
    hooks.listen(tallies)
    try:
        with OperatorMode(tallies, book):
            workload()
    finally:
        hooks.unlisten(tallies)
    return operators_to_dict(tally_report(tallies.by_name.items()))
