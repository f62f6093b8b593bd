"""Convolutions and transposed convolutions. Derivation: docs/derivations/convolution.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import NOTHING, Counts, dot

__all__ = ["convolution", "transposed_convolution"]


def convolution(inputs: int, outputs: int, terms: int, *, weight: int, bias: int | None, padded: int | None) -> Counts:
    """Count a convolution over its padded operand. Derivation: docs/derivations/convolution.md#convolution.

    Args:
        inputs: input elements.
        outputs: output elements.
        terms: product terms per output element, `in_channels / groups * prod(kernel_size)`.
        weight: elements of the weight.
        bias: elements of the bias tensor, `None` without one.
        padded: elements of the padded operand where a `padding_mode` other than zeros writes one, else `None`.

    """
    if not outputs:
        return NOTHING
    products = outputs * dot(terms)
    bias_adds = outputs if bias is not None else 0
    padding = inputs + padded if padded is not None else 0
    operand = padded if padded is not None else inputs
    return Counts(
        products + bias_adds,
        outputs * terms,
        padding + operand + weight + (bias or 0) + outputs,
    )


def transposed_convolution(inputs: int, outputs: int, taps: int, *, weight: int, bias: int | None) -> Counts:
    """Count the scatter of every input. Derivation: docs/derivations/convolution.md#transposed-convolution.

    Args:
        inputs: input elements.
        outputs: output elements, after cropping.
        taps: products per input element, `out_channels / groups * prod(kernel_size)`.
        weight: elements of the weight.
        bias: elements of the bias tensor, `None` without one.

    """
    if not outputs:
        return NOTHING
    products = inputs * taps
    scatter_adds = products
    bias_adds = outputs if bias is not None else 0
    return Counts(products + scatter_adds + bias_adds, products, inputs + weight + (bias or 0) + outputs)
