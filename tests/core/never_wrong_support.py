"""What the tests of `never complete and wrong` share: small tensors, and a total in two words."""

from __future__ import annotations

import torch

X = torch.ones(3, 4)
W = torch.ones(4, 4)


def times_w(value):
    return value @ W


def macs(report):
    return report.totals.macs.status, report.totals.macs.known_value
