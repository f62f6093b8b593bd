"""Scan the worked examples of the native Transformer formulas and print what each call costs.

    python scripts/transformer_estimates.py --json estimates.json

Every call runs on small CPU tensors. The JSON file maps the name of each example to its full report, with
diagnostics and token dependencies. The arithmetic is in docs/derivations.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchscan import crawl_module

Example = tuple[str, nn.Module, tuple[torch.Tensor, ...], Mapping[str, Any]]

NO_WEIGHTS = {"need_weights": False}


def causal(length: int) -> torch.Tensor:
    """Return the boolean mask that excludes later tokens."""
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def tokens(length: int, width: int = 4, *, batch_first: bool) -> torch.Tensor:
    """Return one batch entry of `length` tokens."""
    return torch.ones((1, length, width) if batch_first else (length, 1, width))


def masks() -> dict[str, torch.Tensor]:
    """Return all six masks of a call with three source and two target tokens."""
    return {
        "src_mask": causal(3),
        "tgt_mask": causal(2),
        "memory_mask": torch.zeros(2, 3, dtype=torch.bool),
        "src_key_padding_mask": torch.zeros(1, 3, dtype=torch.bool),
        "tgt_key_padding_mask": torch.zeros(1, 2, dtype=torch.bool),
        "memory_key_padding_mask": torch.zeros(1, 3, dtype=torch.bool),
    }


def examples(batch_first: bool) -> Iterator[Example]:
    """Yield the examples in one layout.

    Args:
        batch_first: tensors are (batch, tokens, features), else (tokens, batch, features).

    """
    layout = {"batch_first": batch_first}
    src, tgt = tokens(3, batch_first=batch_first), tokens(2, batch_first=batch_first)

    attention = nn.MultiheadAttention(4, 2, **layout)
    yield "self-attention", attention, (src, src, src), NO_WEIGHTS
    yield "self-attention, averaged weights", attention, (src, src, src), {}
    yield "self-attention, weights per head", attention, (src, src, src), {"average_attn_weights": False}
    yield (
        "self-attention, causal",
        attention,
        (src, src, src),
        {**NO_WEIGHTS, "attn_mask": causal(3), "is_causal": True},
    )
    padding = torch.zeros(1, 3, dtype=torch.bool)
    yield "self-attention, padding mask", attention, (src, src, src), {**NO_WEIGHTS, "key_padding_mask": padding}
    per_head = {**NO_WEIGHTS, "attn_mask": torch.zeros(2, 3, 3)}
    yield "self-attention, mask per head", attention, (src, src, src), per_head
    yield "self-attention, no biases", nn.MultiheadAttention(4, 2, bias=False, **layout), (src,) * 3, NO_WEIGHTS
    yield "cross-attention", attention, (tgt, src, src), NO_WEIGHTS
    key, value = tokens(3, 6, batch_first=batch_first), tokens(3, 5, batch_first=batch_first)
    wide = nn.MultiheadAttention(4, 2, kdim=6, vdim=5, **layout)
    yield "cross-attention, kdim 6 and vdim 5", wide, (tgt, key, value), NO_WEIGHTS

    encoder_layer = nn.TransformerEncoderLayer(4, 2, 8, **layout)
    yield "encoder layer", encoder_layer, (src,), {}
    yield "encoder layer, causal", encoder_layer, (src,), {"src_mask": causal(3), "is_causal": True}
    yield "encoder layer, norm first", nn.TransformerEncoderLayer(4, 2, 8, norm_first=True, **layout), (src,), {}
    yield "encoder layer, GELU", nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", **layout), (src,), {}
    decoder_layer = nn.TransformerDecoderLayer(4, 2, 8, **layout)
    yield "decoder layer", decoder_layer, (tgt, src), {}
    yield "decoder layer, causal", decoder_layer, (tgt, src), {"tgt_mask": causal(2), "tgt_is_causal": True}

    encoder = nn.TransformerEncoder(encoder_layer, 2, norm=nn.LayerNorm(4), enable_nested_tensor=False)
    yield "encoder, two layers", encoder, (src,), {}
    yield "encoder, two layers, padding mask", encoder, (src,), {"src_key_padding_mask": padding}
    yield "decoder, two layers", nn.TransformerDecoder(decoder_layer, 2, norm=nn.LayerNorm(4)), (tgt, src), {}
    with warnings.catch_warnings():
        # sequence-first, nn.Transformer warns about its own default
        warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
        transformer = nn.Transformer(4, 2, 1, 1, 8, **layout)
        deeper = nn.Transformer(4, 2, 2, 2, 8, **layout)
    yield "Transformer, 1 + 1 layers", transformer, (src, tgt), {}
    yield "Transformer, 1 + 1 layers, six masks", transformer, (src, tgt), masks()
    yield "Transformer, 2 + 2 layers", deeper, (src, tgt), {}


def figure(result: Mapping[str, Any]) -> str:
    """Return a metric for the table: its value, or its status where it has none."""
    return str(result["value"]) if result["status"] == "complete" else result["status"]


def main(argv: list[str] | None = None) -> int:
    """Scan every example, print the table, and save the reports.

    Args:
        argv: command-line arguments; by default those of the process.

    Returns:
        0.

    """
    parser = argparse.ArgumentParser(description="Scan the worked examples of the native Transformer formulas.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the full reports to FILE")
    options = parser.parse_args(argv)

    reports = {}
    print(f"{'call':<50}{'layout':<16}{'module FLOPs':>13}{'MACs':>7}{'DMAs':>7}")
    for batch_first in (True, False):
        layout = "batch first" if batch_first else "sequence first"
        for name, module, args, kwargs in examples(batch_first):
            report = crawl_module(module, args=args, kwargs=kwargs)
            reports[f"{name}, {layout}"] = report
            flops, macs, dmas = (figure(report["totals"][metric]) for metric in ("module_flops", "macs", "dmas"))
            print(f"{name:<50}{layout:<16}{flops:>13}{macs:>7}{dmas:>7}")
    if options.json is not None:
        options.json.write_text(json.dumps(reports, indent=2) + "\n", encoding="utf-8")
        print(f"{len(reports)} reports in {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
