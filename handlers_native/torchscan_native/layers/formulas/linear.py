"""Linear maps. Derivation: docs/derivations/linear.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import NOTHING, Counts, dot

__all__ = ["bilinear", "linear"]


def linear(rows: int, in_features: int, out_features: int, *, bias: int | None) -> Counts:
    """Count `x W^T (+ b)`. Derivation: docs/derivations/linear.md#linear.

    Args:
        rows: all leading dimensions together.
        in_features: width of a row.
        out_features: outputs per row.
        bias: elements of the bias tensor, `None` without one.

    """
    if not rows:
        return NOTHING
    outputs = rows * out_features
    weight = out_features * in_features
    products = outputs * dot(in_features)
    bias_adds = outputs if bias is not None else 0
    return Counts(
        products + bias_adds,
        outputs * in_features,
        rows * in_features + weight + (bias or 0) + outputs,
    )


def bilinear(rows: int, in1: int, in2: int, out_features: int, *, bias: int | None) -> Counts:
    """Count `x1 W x2 (+ b)` as two contractions. Derivation: docs/derivations/linear.md#bilinear.

    Args:
        rows: all leading dimensions together.
        in1: width of the first input.
        in2: width of the second input.
        out_features: outputs per row.
        bias: elements of the bias tensor, `None` without one.

    """
    if not rows:
        return NOTHING
    inner = rows * out_features * in2  # t[n, o, j]
    outputs = rows * out_features
    first = inner * dot(in1)
    second = outputs * dot(in2)
    bias_adds = outputs if bias is not None else 0
    return Counts(
        first + second + bias_adds,
        inner * in1 + outputs * in2,
        (rows * in1 + out_features * in1 * in2 + inner) + (inner + rows * in2 + (bias or 0) + outputs),
    )
