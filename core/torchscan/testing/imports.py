"""Does a pack cost nothing until its library is in use?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

from torchscan.testing.samples import ConformanceError

__all__ = ["check_pack_import"]

_SCRIPT = """
import importlib, json, sys

blocked, module = json.loads(sys.argv[1])

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
plugin = importlib.import_module(module)
if "torch" in sys.modules:
    sys.exit("importing it imports torch, which stored reports are rendered without")

from torchscan.plugins.manager import PluginHost

host = PluginHost([plugin], autoload=False)
infos = host.collect()
for diagnostic in host.diagnostics:
    sys.exit(diagnostic.message)
if not any(info.handlers or info.operator_formulas or info.formats for info in infos):
    sys.exit("it registers nothing")
if loaded := [name for name in blocked if name in sys.modules]:
    sys.exit(f"registering imports {loaded[0]}")
"""


def check_pack_import(plugin: str, libraries: Iterable[str] = ()) -> None:
    """Check, in a process of its own, that a pack imports and registers without its libraries and without torch.

    Args:
        plugin: the plugin module, such as `"torchscan_einops.plugin"`.
        libraries: top-level names of the libraries it models, made absent for the check.

    Raises:
        ConformanceError: it needs one of them, needs torch to be imported, or registers nothing.

    """
    if isinstance(libraries, str):
        raise TypeError(f"libraries must be a collection of names, got the string {libraries!r}")
    command = [sys.executable, "-c", _SCRIPT, json.dumps([list(libraries), plugin])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ConformanceError(f"{plugin} does not import on its own: {lines[-1]}")
