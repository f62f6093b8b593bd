"""Activations. Derivation: docs/derivations/activation.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import Counts

__all__ = ["FLOPS_PER_ELEMENT", "activation", "gated_linear_unit"]

#: FLOPs per element; the expansion of each is a row of docs/derivations/activation.md#elementwise.
FLOPS_PER_ELEMENT = {
    "ReLU": 1,  # max
    "ReLU6": 2,  # two clamps
    "Hardtanh": 2,
    "Threshold": 2,  # compare, select
    "Softsign": 3,  # abs, add, divide
    "Hardshrink": 3,  # abs, compare, select
    "Sigmoid": 4,  # negate, exp, add, divide
    "LeakyReLU": 4,  # max, min, multiply, add
    "PReLU": 4,
    "RReLU": 4,
    "Hardsigmoid": 4,  # add, two clamps, divide
    "SiLU": 5,  # sigmoid, multiply
    "GELU": 5,  # scale, erf, add, half, multiply
    "Hardswish": 5,  # Hardsigmoid, multiply
    "Softshrink": 5,  # subtract, max, add, min, add
    "Tanh": 6,  # exp, negate, exp, subtract, add, divide
    "ELU": 6,  # max, exp, subtract, multiply, min, add
    "CELU": 7,  # ELU with a divide
    "SELU": 7,  # ELU and a final scale
    "LogSigmoid": 7,  # min, abs, negate, exp, add, log, subtract
    "Softplus": 7,  # scale, exp, add, log, divide, compare, select
    "Tanhshrink": 7,  # tanh, subtract
    "Mish": 10,  # exp, add, log, tanh, multiply
    "GELU (tanh)": 14,  # two multiplies, scale, add, scale, tanh, add, half, multiply
}


def activation(elements: int, per_element: int, parameters: int = 0) -> Counts:
    """Count one elementwise stage. Derivation: docs/derivations/activation.md#elementwise.

    Args:
        elements: all elements, `N`.
        per_element: FLOPs of each.
        parameters: parameter elements the stage reads (PReLU).

    """
    return Counts(elements * per_element, 0, elements + (parameters if elements else 0) + elements)


def gated_linear_unit(outputs: int) -> Counts:
    """Count `a * sigmoid(b)` over the two halves. Derivation: docs/derivations/activation.md#gated-linear-unit.

    Args:
        outputs: output elements; the input has twice as many.

    """
    sigmoid = 4
    gate = 1
    return Counts(outputs * (sigmoid + gate), 0, 2 * outputs + outputs)
