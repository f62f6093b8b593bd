"""Running one module again and again, each time as if for the first time.

An experiment on a model must not be disturbed by the run before it: a cache that has grown, a running statistic that
has moved, another dropout mask, an input changed in place. Nor may it leave anything of that behind.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchscan.engine.state import exclusive, force_eager
from torchscan.engine.tree import ModuleTree

__all__ = ["Replay"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, nn.Module, type)


def copied(value: Any, memo: dict[int, Any], *, double: bool = False) -> Any:
    """Return a copy of an argument in which the same tensor stays the same tensor.

    Args:
        value: any argument: tensors, containers of them, objects such as a cache.
        memo: id of an original -> what stands for it; filled on the way, and it may name replacements beforehand.
        double: copy floating-point tensors in double precision.

    """
    if (known := memo.get(id(value))) is not None:
        return known
    found: Any
    if isinstance(value, torch.Tensor):
        found = value.detach().clone()
        if double and found.is_floating_point():
            found = found.double()
    elif type(value) in (dict, OrderedDict):
        found = type(value)((key, copied(item, memo, double=double)) for key, item in value.items())
    elif type(value) in (list, tuple):
        found = type(value)(copied(item, memo, double=double) for item in value)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        found = type(value)(*(copied(item, memo, double=double) for item in value))
    elif isinstance(value, _PLAIN) or callable(value):
        return value
    else:
        try:
            found = copy.deepcopy(value, memo)
        except Exception:  # an object that cannot be copied is passed as it is
            return value
    memo[id(value)] = found
    return found


class _Writes(TorchDispatchMode):
    """Copies a parameter just before it is written in place, which a forward may do but seldom does."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The wrapper that newer releases put around a mode imports the compiler, which takes seconds.
        return False

    def __init__(self, state: _State) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._state = state

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)  # higher-order operators have none
        if schema is not None and schema.is_mutable:
            for position, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    value = kwargs.get(argument.name, args[position] if position < len(args) else None)
                    for tensor in value if isinstance(value, (list, tuple)) else (value,):
                        if isinstance(tensor, torch.Tensor):
                            self._state.before_write(tensor)
        return func(*args, **kwargs)


class _State:
    """What a module tree holds: registries, attributes and their contents, buffers, and parameters once written."""

    def __init__(self, module: nn.Module) -> None:
        self._dicts: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._contents: list[tuple[Any, Any]] = []
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        self._parameters: dict[int, list[torch.Tensor]] = {}
        for child in module.modules():
            if isinstance(child, torch.jit.ScriptModule):
                continue  # keeps its attributes in C++
            attributes = child.__dict__
            self._dicts.append((attributes, dict(attributes)))
            for value in attributes.values():
                if type(value) in (list, dict, set, OrderedDict):
                    self._contents.append((value, copy.copy(value)))
            # A tensor kept as a plain attribute (a cache, a counter) is state just like a registered buffer.
            for tensor in (*child._buffers.values(), *attributes.values()):
                if isinstance(tensor, torch.Tensor):
                    self._keep(tensor)
            for parameter in child._parameters.values():
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    if parameter is not None:
                        self._parameters.setdefault(parameter.untyped_storage()._cdata, []).append(parameter)

    def _keep(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self._copies or tensor.is_meta:
            return
        with contextlib.suppress(RuntimeError, NotImplementedError):
            self._copies[id(tensor)] = (tensor, tensor.detach().clone(), tensor._version)

    def before_write(self, tensor: torch.Tensor) -> None:
        """Hear that `tensor` is about to be written in place."""
        with contextlib.suppress(RuntimeError, NotImplementedError):
            for parameter in self._parameters.get(tensor.untyped_storage()._cdata, ()):
                self._keep(parameter)

    def restore(self, *, trust_versions: bool) -> None:
        """Put everything back.

        Args:
            trust_versions: leave tensors alone that autograd knows to be unwritten; a write through `.data` escapes it.

        """
        for attributes, before in self._dicts:
            if attributes.keys() != before.keys() or any(attributes[key] is not before[key] for key in before):
                attributes.clear()
                attributes.update(before)
        for container, content in self._contents:
            if not container and not content:
                continue
            if type(container) is list:
                container[:] = content
            elif container != content if type(container) is set else not _same(container, content):
                container.clear()
                container.update(content)
        with torch.no_grad():
            for key, (tensor, original, version) in self._copies.items():
                if tensor.grad_fn is not None:  # written with a value that has a gradient
                    tensor.detach_()
                if tensor._version == version and trust_versions:
                    continue
                if not torch.equal(tensor.data, original):
                    tensor.data.copy_(original)
                self._copies[key] = (tensor, original, tensor._version)


def _same(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool:
    return list(left) == list(right) and all(left[key] is right[key] for key in left)


class _Randomness:
    """The random generators that a forward may draw from: PyTorch's, Python's and NumPy's."""

    def __init__(self, module: nn.Module) -> None:
        self._torch = torch.get_rng_state()
        devices = {p.device.index for p in (*module.parameters(), *module.buffers()) if p.device.type == "cuda"}
        self._cuda = [(index, torch.cuda.get_rng_state(index)) for index in devices]
        self._python = random.getstate()
        self._numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None

    def replay(self) -> None:
        """Put every generator back where it was."""
        torch.set_rng_state(self._torch)
        for index, state in self._cuda:
            torch.cuda.set_rng_state(state, index)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


class Replay:
    """One call of a module, to be repeated with other values for one of its tensors.

    Args:
        module: the module.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        training: run in training mode; otherwise in evaluation mode.

    Every run gets copies of the arguments, the same random numbers and the same state.

    """

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, training: bool) -> None:
        self.module = module
        self._args = args
        self._kwargs = dict(kwargs)
        self._training = training
        self._state: _State | None = None
        self._randomness: _Randomness | None = None
        self._watch = True

    def in_double(self, original: torch.Tensor) -> tuple[Replay, torch.Tensor] | None:
        """Return the same call on a copy of the module in double precision.

        Args:
            original: an argument of the call.

        Returns:
            The call and what stands for `original` in it, or `None` where the module cannot be copied.

        """
        memo: dict[int, Any] = {}
        try:
            module = copy.deepcopy(self.module).double()
        except Exception:  # whatever a module's own __deepcopy__ raises: it has no copy
            return None
        args, kwargs = copied(self._args, memo, double=True), copied(self._kwargs, memo, double=True)
        return Replay(module, args, kwargs, training=self._training), memo[id(original)]

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Hold the module for a series of runs, and put it back as it was."""
        tree = ModuleTree(self.module)
        with exclusive(tree), force_eager(tree), torch.inference_mode(False):
            self._randomness = _Randomness(self.module)
            # One by one: a model's own `train()` may do more than set a flag, and that would outlive the session.
            flipped = [child for child in self.module.modules() if child.training is not self._training]
            for child in flipped:
                child.training = self._training
            self._state = _State(self.module)
            try:
                yield
            finally:
                self._state.restore(trust_versions=False)
                for child in flipped:
                    child.training = not self._training
                self._randomness.replay()
                self._state = self._randomness = None

    @contextlib.contextmanager
    def run(self, original: torch.Tensor, replacement: torch.Tensor, *, gradients: bool = False) -> Iterator[Any]:
        """Yield the output of one run; the state is put back at the end of the block, not before.

        Args:
            original: the argument to replace, wherever this tensor object occurs.
            replacement: what to pass instead; it may be written in place.
            gradients: record the graph.

        """
        assert self._state is not None, "runs belong to a session"
        assert self._randomness is not None
        self._randomness.replay()
        memo: dict[int, Any] = {id(original): replacement}
        args, kwargs = copied(self._args, memo), copied(self._kwargs, memo)
        watch = _Writes(self._state) if self._watch else contextlib.nullcontext()
        self._watch = False
        try:
            with torch.set_grad_enabled(gradients):
                with watch:
                    output = self.module(*args, **kwargs)
                yield output
        finally:
            self._state.restore(trust_versions=True)
