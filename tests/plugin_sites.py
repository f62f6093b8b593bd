"""Folders that look like a site-packages with installed packs."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent


class Site:
    """One folder to put on `sys.path`, with real distributions in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def module(self, name: str, source: str) -> None:
        """Write a top-level module."""
        (self.root / f"{name}.py").write_text(dedent(source))

    def distribution(
        self, name: str, version: str = "1.0", *, plugins: dict[str, str], requires: tuple[str, ...] = ()
    ) -> Path:
        """Write the metadata of a distribution that declares `plugins`, and return its folder."""
        entries = "".join(f"{plugin} = {module}\n" for plugin, module in plugins.items())
        return self.raw_distribution(name, version, f"[torchscan]\n{entries}", requires)

    def raw_distribution(self, name: str, version: str, entry_points: str, requires: tuple[str, ...] = ()) -> Path:
        info = self.root / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        wanted = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}")
        (info / "entry_points.txt").write_text(entry_points)
        return info

    def pack(self, name: str, source: str, version: str = "1.0", *, requires: tuple[str, ...] = ()) -> None:
        """Write a module `<name>_plugin` and a distribution `torchscan-<name>` that declares it as `<name>`."""
        self.module(f"{name}_plugin", source)
        self.distribution(f"torchscan-{name}", version, plugins={name: f"{name}_plugin"}, requires=requires)


def handler_pack(target: str = "torch.nn.modules.linear.Linear", macs: int = 5) -> str:
    """Return the source of a working plugin that gives every `target` this number of MACs."""
    return f"""
import torchscan

def estimate(call):
    return {{"macs": {macs}}}

@torchscan.hookimpl
def torchscan_register_handlers():
    yield torchscan.HandlerRegistration("{target}", estimate)
"""
