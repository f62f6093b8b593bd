"""Plugins that scan while they are being loaded change nothing for those who scan afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from plugin_sites import Site

SCAN = "torchscan.scan(torch.nn.Linear(3, 2), (3,))"

PLUGINS = {
    "while it is imported": f"import torch, torchscan\nfound = {SCAN}\n",
    "in a hook": f"""
import torch, torchscan

@torchscan.hookimpl
def torchscan_register_handlers():
    {SCAN}
    return ()

@torchscan.hookimpl
def torchscan_register_operator_formulas():
    {SCAN}
    return ()
""",
    "when a report is ready": f"""
import torch, torchscan

running = []

@torchscan.hookimpl
def torchscan_report_ready(report):
    if not running:
        running.append(True)
        {SCAN}
        running.pop()
""",
}


@pytest.mark.parametrize("when", PLUGINS)
def test_a_plugin_that_scans(tmp_path, when):
    # in a name that comes before the native plugin's, and one that comes after it
    site = Site(tmp_path)
    for name in ("aaa", "zzz"):
        site.pack(name, PLUGINS[when])
    # Linear(3, 2) on one row is 6 products; a product in a body is estimated
    code = f"""
import torch, torchscan

class Body(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(3, 2)

for _ in range(2):
    report = {SCAN}
    print(report.totals.macs.status, report.totals.macs.value, len(report.diagnostics))
print(torchscan.scan(Body(), (3,), functional="estimate").totals.macs.value)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    assert ran.stdout.splitlines() == ["complete 6 0", "complete 6 0", "6"]
