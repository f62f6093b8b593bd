"""Which source code the formulas were written for.

A formula describes what a function of the library computes. The library rewrites its models often, so a handler
speaks only for source that was read and tested: the syntax tree of every function it relies on, without comments,
docstrings, annotations and error messages, is compared with the recorded digests in `verified.py`. Any other source
makes the counts unavailable, never wrong. `python -m torchscan_transformers.sources` adds the digests of the installed
version.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from torchscan_transformers.verified import DIGESTS


def resolve(name: str) -> Any:
    """Return the object called `module:qualified.name` if its module is loaded, else `None`."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def digest(function: Callable[..., Any]) -> str:
    """Return the digest of what a function computes, decorators aside.

    Raises:
        OSError: its source is not to be had.

    """
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    tree = _Bare().visit(ast.parse(source))
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


class _Bare(ast.NodeTransformer):
    """Remove what computes nothing, and what other versions of Python would print differently."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.copy_location(ast.Raise(), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.copy_location(ast.Constant(""), node)


@functools.lru_cache(maxsize=1024)
def _known(function: Callable[..., Any], name: str) -> bool:
    try:
        return digest(function) in DIGESTS.get(name, ())
    except (OSError, TypeError, SyntaxError):
        return False


@attrs.define
class Sources:
    """Functions of the library, and whether they are the ones a formula describes.

    Attributes:
        names: the functions, `module:qualified.name`.

    """

    names: tuple[str, ...]
    #: Where each verified function was found; a look-up there says whether it is still the same one.
    _seen: tuple[tuple[Mapping[str, Any], str, Any], ...] | None = attrs.field(default=None, init=False)

    def first_unverified(self) -> str | None:
        """Return the first function whose source is not one that was verified, or `None`."""
        if self._seen is not None and all(scope.get(name) is function for scope, name, function in self._seen):
            return None
        self._seen = None
        seen = []
        for name in self.names:
            function = resolve(name)
            if not callable(function) or not _known(function, name):
                return name
            module, _, path = name.partition(":")
            owner, _, attribute = path.rpartition(".")
            scope = vars(resolve(f"{module}:{owner}") if owner else sys.modules[module])
            seen.append((scope, attribute, function))
        if all(scope.get(name) is function for scope, name, function in seen):
            self._seen = tuple(seen)
        return None


def record() -> None:
    """Add the digests of the installed version to `verified.py`: for maintainers, once the tests pass with it."""
    import importlib
    from pathlib import Path

    from torchscan_transformers.plugin import relied_on

    table = {name: list(digests) for name, digests in DIGESTS.items()}
    for name in relied_on():
        importlib.import_module(name.partition(":")[0])
        function = resolve(name)
        if callable(function) and (found := digest(function)) not in table.setdefault(name, []):
            table[name].append(found)
            print(f"{name} {found}")
    lines = [f'    "{name}": ({" ".join(f"{found!r}," for found in sorted(table[name]))}),' for name in sorted(table)]
    head = '"""The source that the formulas were tested with; written by `python -m torchscan_transformers.sources`."""'
    body = "\n".join(lines).replace("'", '"')
    text = f"{head}\n\nfrom __future__ import annotations\n\nDIGESTS: dict[str, tuple[str, ...]] = {{\n{body}\n}}\n"
    Path(__file__).with_name("verified.py").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    record()
