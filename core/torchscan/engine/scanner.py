"""The public scans: `crawl_module`, `scan`, `summary`, `measure_flops`, and the embeddable `Scanner`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import nn

from torchscan.contract.call import ModuleCall
from torchscan.contract.errors import IncompleteAnalysisError
from torchscan.contract.handler import HandlerRegistration
from torchscan.contract.states import METRICS
from torchscan.engine import hooks
from torchscan.engine.assembly import assemble
from torchscan.engine.guard import ModelGuard
from torchscan.engine.inputs import InputShape, call_arguments
from torchscan.engine.meta_shapes import MetaExecutor, is_on_meta
from torchscan.engine.observation import Observation
from torchscan.engine.observer import Observer
from torchscan.engine.operator_mode import OperatorMode
from torchscan.engine.operators import OperatorBook, checked_mapping
from torchscan.engine.plan import Plan, incomplete
from torchscan.engine.records import CallRecord
from torchscan.engine.rows import Rows
from torchscan.engine.state import evaluation, exclusive, force_eager, is_training, random_state
from torchscan.engine.tree import ModuleTree
from torchscan.engine.values import describe
from torchscan.plugins.default import default_host
from torchscan.plugins.manager import PluginHost
from torchscan.plugins.resolution import Resolver, caller_registrations
from torchscan.report.schema import Inputs, PluginUsed, Report

__all__ = ["SELECTABLE", "Scanner", "crawl_module", "measure_flops", "scan", "summary"]

#: Everything `metrics=` may name.
SELECTABLE: Final = (*METRICS, "operator_flops", "token_dependencies")


# What a set of plugins knows does not change between scans; kept as long as the set itself.
_books: WeakKeyDictionary[PluginHost, OperatorBook] = WeakKeyDictionary()
_resolvers: WeakKeyDictionary[PluginHost, Resolver] = WeakKeyDictionary()


def checked_plan(mode: str, functional: str, execution: str, metrics: Iterable[str] | None) -> Plan:
    """Check what a scan was asked to do.

    Raises:
        ValueError: an option has an unknown value; the message lists the known ones.
        TypeError: `metrics` is one string.

    """
    for name, value, known in (
        ("mode", mode, ("full", "structure")),
        ("functional", functional, ("audit", "estimate", "skip")),
        ("execution", execution, ("real", "fake")),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a collection of names such as {{{metrics!r}}}, got a string")
    selected = frozenset(SELECTABLE if metrics is None else metrics)
    if unknown := sorted(map(str, selected - frozenset(SELECTABLE))):
        raise ValueError(f"metrics names nothing known: {', '.join(unknown)}; choose from {', '.join(SELECTABLE)}")
    return Plan(selected, mode, functional, execution, metrics is not None)


class Scanner:
    """An embeddable scanner with its own plugin set.

    Args:
        plugins: objects or modules with hook implementations, beside the installed ones.
        autoload: whether installed plugins are loaded; `None` asks the environment.
        disabled: names of installed plugins to leave out.

    Two scanners with different plugins do not see each other; nothing global changes.
    """

    def __init__(
        self, plugins: Iterable[object] = (), *, autoload: bool | None = None, disabled: Iterable[str] = ()
    ) -> None:
        self._host = PluginHost(plugins, autoload=autoload, disabled=disabled)

    @classmethod
    def _with_host(cls, host: PluginHost) -> Scanner:
        scanner = cls.__new__(cls)
        scanner._host = host
        return scanner

    @property
    def host(self) -> PluginHost:
        """The plugins of this scanner."""
        return self._host

    def scan(
        self,
        module: nn.Module,
        input_shape: InputShape | None = None,
        *,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        dtype: torch.dtype | Iterable[torch.dtype] | None = None,
        device: torch.device | str | None = None,
        mode: str = "full",
        strict: bool = False,
        functional: str = "audit",
        metrics: Iterable[str] | None = None,
        execution: str = "real",
        custom_modules: Mapping[Any, Any] | None = None,
        custom_mapping: Mapping[Any, Any] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Report:
        """Run one call in evaluation mode without gradients and return its typed report.

        Args:
            module: the model.
            input_shape: sizes of one generated input without the batch dimension (one is added), or a list of them
                for several positional inputs. Excludes `args` and `kwargs`.
            args: the positional arguments of the call; passed through untouched.
            kwargs: its keyword arguments; passed through untouched.
            dtype: of generated inputs, one or one per input; by default that of the first parameter, then of
                the first buffer, then float32.
            device: of generated inputs; by default that of the first parameter, then of the first buffer, then the CPU.
            mode: `"full"`, or `"structure"` for shapes and parameters without any formula.
            strict: raise when a requested metric is incomplete.
            functional: what happens to arithmetic in a composite's own body: `"audit"` makes the affected metrics
                partial, `"estimate"` counts it with operator formulas, `"skip"` does not look at it (composites are
                then partial, and a parameter that the model's own forward overwrites is not put back).
            metrics: names of the metrics to compute; by default all of them, with `operator_flops` and
                `token_dependencies`.
            execution: `"real"`, or `"fake"` for the same module metrics without computing anything.
            custom_modules: module class (or dotted name) to handler, for this call alone.
            custom_mapping: operator packet to a FLOP formula in PyTorch's shape contract, for this call alone.
            progress: called with the number of module calls seen so far.

        Returns:
            The report.

        Raises:
            IncompleteAnalysisError: `strict` and a requested metric is incomplete; carries `.report`.
            ConcurrentScanError: the module is already being scanned.
            TypeError: an argument has the wrong type; the message names it.
            ValueError: an argument has a wrong value; the message names it.

        An exception of the model reaches the caller as it is; training flags, parameters, buffers, hooks and random
        state are put back in every case.
        """
        plan = checked_plan(mode, functional, execution, metrics)
        registrations = caller_registrations(custom_modules)
        call_args, call_kwargs, generated = call_arguments(module, input_shape, args, kwargs, dtype, device)
        host = self._host
        book = self._book(plan, custom_mapping)
        resolver = self._resolver(plan, registrations)
        training_before = is_training(module)
        inputs = Inputs(
            "generated" if generated else "provided",
            tuple(describe(arg) for arg in call_args),
            {name: describe(value) for name, value in call_kwargs.items()},
        )
        tree = ModuleTree(module)
        with exclusive(tree):
            counting = plan.audits or plan.operator_view
            # On the meta device nothing but shapes is worked out, which need not be done twice.
            meta = execution == "real" and is_on_meta(tree)
            # Without the operator mode (the cheapest scans) writes cannot be seen coming: buffers are copied ahead.
            watched = counting or meta or plan.mode == "structure" or execution == "fake"
            guard = ModelGuard(tree, copy_buffers=not watched)
            executor = None
            if execution == "fake":
                from torchscan.engine.fake import NOTE, FakeExecutor

                executor = FakeExecutor(tree, guard.before_write)
            observer = Observer(
                tree,
                resolver,
                plan.bits,
                readable=None if executor is None else executor.readable,
                call_estimated=self._streamed(plan),
                progress=progress,
                whole=True,
                estimating=plan.estimates,
            )
            with contextlib.ExitStack() as stack:
                stack.enter_context(random_state(tree))
                stack.callback(guard.restore)
                stack.enter_context(force_eager(tree))
                stack.enter_context(evaluation(tree))
                hooks.listen(observer)
                stack.callback(hooks.unlisten, observer)
                if executor is not None:
                    stack.enter_context(executor.stand_ins())
                    call_args, call_kwargs = executor.arguments(call_args, call_kwargs)
                if watched:
                    execute = executor if executor is not None else MetaExecutor() if meta else None
                    stack.enter_context(OperatorMode(observer, book, guard, execute, counting=counting))
                try:
                    output = module(*call_args, **call_kwargs)
                except Exception as error:
                    if executor is not None:
                        error.add_note(NOTE)
                    raise
                observer.finish(call_args, call_kwargs, output)
                del output
        report = self._assemble(observer, plan, training_before, inputs, resolver)
        host.report_ready(report)
        if strict and (why := incomplete(report, plan)):
            raise IncompleteAnalysisError(f"the analysis is incomplete: {why}", report)
        return report

    def observe(
        self,
        module: nn.Module,
        *,
        functional: str = "audit",
        metrics: Iterable[str] | None = None,
        custom_modules: Mapping[Any, Any] | None = None,
        custom_mapping: Mapping[Any, Any] | None = None,
    ) -> Observation:
        """Return a context manager that watches calls of `module` without disturbing them.

        Args:
            module: the model; its mode, device and gradients stay the caller's affair. Where a formula describes
                evaluation only, a module in training mode is unavailable.
            functional: as in `scan`.
            metrics: as in `scan`; without `operator_flops` and with `functional="skip"` no operator is looked at.
            custom_modules: as in `scan`.
            custom_mapping: as in `scan`.

        Returns:
            The observation: `.report()` at any time, `.calls`, `.clear()`.

        Raises:
            TypeError: an argument has the wrong type; the message names it.
            ValueError: an argument has a wrong value; the message names it.

        Example:
            ```python
            with torchscan.Scanner().observe(model) as observation:
                model(batch)
                print(observation.report().totals.macs)
            ```

        """
        plan = checked_plan("full", functional, "real", metrics)
        if not isinstance(module, nn.Module):
            raise TypeError(f"expected a torch.nn.Module to observe, got {type(module).__name__}")
        resolver = self._resolver(plan, caller_registrations(custom_modules))
        book = self._book(plan, custom_mapping)
        observer = Observer(
            ModuleTree(module),
            resolver,
            plan.bits,
            call_estimated=self._streamed(plan),
            estimating=plan.estimates,
        )
        training = is_training(module)

        def build(seen: Observer, inputs: Inputs) -> Report:
            report = self._assemble(seen, plan, training, inputs, resolver, execution_mode="observed")
            self._host.report_ready(report)
            return report

        return Observation(observer, plan, book, build)

    def crawl_module(self, module: nn.Module, input_shape: InputShape | None = None, **options: Any) -> dict[str, Any]:
        """Do as `scan`, and return the wire form: plain JSON-ready data."""
        return self.scan(module, input_shape, **options).to_dict()

    def _book(self, plan: Plan, custom_mapping: Mapping[Any, Any] | None) -> OperatorBook:
        """Return what is known about operators; without the caller's formulas it is the same for every scan."""
        if plan.mode != "full":
            return OperatorBook()
        if custom_mapping:
            return OperatorBook(self._host.operator_formulas, custom_mapping)
        book = _books.get(self._host)
        if book is None or book.full:
            book = OperatorBook(self._host.operator_formulas)
            if self._host.settled:
                _books[self._host] = book
        checked_mapping(custom_mapping)
        return book

    def _resolver(self, plan: Plan, registrations: tuple[HandlerRegistration, ...]) -> Resolver:
        if plan.mode != "full":
            return Resolver(registrations)
        if registrations:
            return Resolver(registrations, self._host.handlers)
        resolver = _resolvers.get(self._host)
        if resolver is None:
            resolver = Resolver((), self._host.handlers)
            if self._host.settled:
                _resolvers[self._host] = resolver
        return resolver

    def _assemble(
        self,
        observer: Observer,
        plan: Plan,
        training_before: bool,
        inputs: Inputs,
        resolver: Resolver,
        execution_mode: str = "evaluation_no_grad",
    ) -> Report:
        host = self._host
        return assemble(
            observer,
            plan,
            training_before=training_before,
            inputs=inputs,
            execution_mode=execution_mode,
            plugins=[PluginUsed(p.name, p.distribution, p.version) for p in host.plugins if p.status == "ok"],
            diagnostics=(*host.diagnostics, *resolver.conflicts_of(observer.module_types())),
        )

    def _streamed(self, plan: Plan) -> Callable[[ModuleCall, CallRecord], None] | None:
        host = self._host
        if not host.wants_call_estimated:
            return None

        def streamed(call: ModuleCall, record: CallRecord) -> None:
            # A row by itself: what its ancestors own and what its body did is decided when they have finished.
            host.call_estimated(call, Rows(plan).row(record))

        return streamed


def scan(module: nn.Module, input_shape: InputShape | None = None, **options: Any) -> Report:
    """Scan one call with the installed plugins; see `Scanner.scan` for the arguments."""
    return _installed().scan(module, input_shape, **options)


def crawl_module(module: nn.Module, input_shape: InputShape | None = None, **options: Any) -> dict[str, Any]:
    """Scan one call and return plain JSON-ready data; see `Scanner.scan` for the arguments."""
    return _installed().scan(module, input_shape, **options).to_dict()


def summary(
    module: nn.Module,
    input_shape: InputShape | None = None,
    *,
    depth: int | None = None,
    columns: Sequence[str] | None = None,
    exact: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Scan one call, print the table, and return what `crawl_module` returns.

    Args:
        module: the model.
        input_shape: as in `Scanner.scan`.
        depth: show calls down to this depth; those below are summed up.
        columns: which columns to show, in order.
        exact: numbers in full instead of SI units.
        options: every other argument of `Scanner.scan`.

    """
    from torchscan.report.text import print_summary

    report = _installed().scan(module, input_shape, **options)
    print_summary(report, depth=depth, columns=columns, exact=exact)
    return report.to_dict()


def measure_flops(
    workload: Callable[[], Any],
    *,
    modules: nn.Module | Iterable[nn.Module] | Mapping[str, nn.Module] | None = None,
    custom_mapping: Mapping[Any, Any] | None = None,
) -> dict[str, Any]:
    """Count the operator FLOPs of any workload, backward passes included, as what really ran.

    Args:
        workload: called once, without arguments, in the caller's own modes.
        modules: the modules to break the count down by; a mapping names them, else their class does.
        custom_mapping: operator packet to a FLOP formula in PyTorch's shape contract, for this call alone.

    Returns:
        The operator view in wire form: `total`, `by_module`, `by_operator`, `ignored_operators`, `diagnostics`.

    """
    from torchscan.engine.workload import measure

    return measure(workload, modules, custom_mapping, default_host())


def _installed() -> Scanner:
    return Scanner._with_host(default_host())
