"""The base Transformer: d_model 512, 8 heads, 6 + 6 layers, feed-forward 2048, batch 2, 64 + 64 tokens.

torchscan scan scripts/base_transformer.py:base
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def base() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return the model and one call of it."""
    model = nn.Transformer(
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        batch_first=True,
    )
    return model, (), {"src": torch.ones(2, 64, 512), "tgt": torch.ones(2, 64, 512)}
