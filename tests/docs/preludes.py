"""What a page may take for granted, and the pages whose blocks have a test of their own."""

from __future__ import annotations

__all__ = ["PRELUDES", "TESTED_ELSEWHERE"]

#: Page -> code that runs before its first block: what the text introduces in words. It runs in the page's folder.
PRELUDES: dict[str, str] = {
    "docs/explanation/token-relations.md": """
import torch
import torchscan
from torch import nn

model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4))
ids = torch.tensor([[1, 2, 3]])
""",
    "docs/how-to/compare-and-share.md": """
import torchscan
from torch import nn

from torchscan.report.render import write_report

before = torchscan.scan(nn.Conv2d(3, 8, 3), (3, 8, 8))
after = torchscan.scan(nn.Conv2d(3, 16, 3), (3, 8, 8))
write_report(before, "before.json")
write_report(after, "after.json")
""",
    "docs/how-to/gate-a-pull-request.md": """
import sys
import torchscan
from pathlib import Path
from torch import nn
from torchscan.report.render import write_report

report = torchscan.scan(nn.Conv2d(3, 1, 32, stride=32), (3, 224, 224))
write_report(report, "report.json")
write_report(report, "main.json")
sys.argv[:] = ["scripts/scan.py", "report.json"]
Path("mymodel.py").write_text('''
from torch import nn


def build_model():
    return nn.Conv2d(3, 1, 32, stride=32)
''')
""",
    "docs/reference/hooks.md": "import torchscan\n",
    "docs/reference/wire-schema.md": """
import torchscan
from torch import nn
from torchscan.report.render import write_report

data = torchscan.crawl_module(nn.Linear(2, 2), (2,))
write_report(torchscan.Report.from_dict(data), "report.json")
""",
    "docs/reference/conformance-kit.md": """
from torch import nn
import torch
from torchscan.testing import conformance


def my_handler(call):
    return {"macs": call.args[0].numel()}


def make_small_call():
    return nn.Identity(), (torch.ones(2),), {}
""",
}

#: Page -> the test that runs its blocks, because they need an environment of their own.
TESTED_ELSEWHERE: dict[str, str] = {
    "docs/tutorials/write-a-handler-pack.md": "tests/e2e/test_tutorial.py",
}
