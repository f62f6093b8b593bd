"""Elementwise operators: one stage each. Derivation: docs/derivations/functional-operators.md#elementwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas.activation import FLOPS_PER_ELEMENT, gated_linear_unit
from torchscan_native.layers.formulas.rules import power
from torchscan_native.operators.shapes import (
    NOTHING,
    NotCovered,
    Rule,
    Shape,
    Work,
    numel,
    offer,
    tensors,
    unknown,
    work,
)

__all__ = ["elementwise", "formulas"]

#: FLOPs per output element. Every operator here also exists in place, with a trailing underscore.
_IN_PLACE_TOO = {
    "abs neg reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh "
    "asinh acosh atanh erf erfc erfinv floor ceil trunc sign sgn atan2 fmod remainder eq ne lt le gt ge "
    "masked_fill clamp_min clamp_max deg2rad rad2deg relu": 1,
    "floor_divide threshold": 2,  # divide, floor; compare, select
    "lerp": 3,  # subtract, multiply, add
    "hypot": 4,  # two squares, add, square root
    "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift "
    "logical_and logical_or logical_xor logical_not": 0,  # integers and truth values
    "sigmoid": FLOPS_PER_ELEMENT["Sigmoid"],
    "tanh": FLOPS_PER_ELEMENT["Tanh"],
    "silu": FLOPS_PER_ELEMENT["SiLU"],
    "mish": FLOPS_PER_ELEMENT["Mish"],
    "leaky_relu": FLOPS_PER_ELEMENT["LeakyReLU"],
    "hardtanh": FLOPS_PER_ELEMENT["Hardtanh"],
    "hardsigmoid": FLOPS_PER_ELEMENT["Hardsigmoid"],
    "hardswish": FLOPS_PER_ELEMENT["Hardswish"],
    "celu": FLOPS_PER_ELEMENT["CELU"],
}

#: The same for operators without an in-place form.
_OUT_OF_PLACE = {
    "maximum minimum fmax fmin isnan isinf isposinf isneginf": 1,
    "__lshift__ __rshift__ __ilshift__ __irshift__": 0,  # integers
    "softplus": FLOPS_PER_ELEMENT["Softplus"],
    "softshrink": FLOPS_PER_ELEMENT["Softshrink"],
    "hardshrink": FLOPS_PER_ELEMENT["Hardshrink"],
    "_prelu_kernel": FLOPS_PER_ELEMENT["PReLU"],
    "logaddexp": 7,  # maximum, subtract, abs, negate, exp, log1p, add
}

#: The same for lists of tensors; all but `_foreach_norm` also exist in place.
_FOREACH = {
    "abs neg reciprocal sqrt rsqrt exp expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh erf erfc "
    "floor ceil trunc round sign div maximum minimum clamp_min clamp_max": 1,
    "sigmoid": FLOPS_PER_ELEMENT["Sigmoid"],
    "tanh": FLOPS_PER_ELEMENT["Tanh"],
    "lerp": 3,
}

#: Without a contraction axis, and without a convention for their FLOPs: sampling aids and special functions.
_NO_MACS = (
    "frac nan_to_num sinc lgamma digamma polygamma igamma igammac i0 special_i0e special_i1 special_i1e "
    "special_entr special_erfcx special_ndtri special_log_ndtr special_zeta heaviside copysign "
    "nextafter gcd lcm ldexp_ frexp logaddexp2 signbit frac_ nan_to_num_ sinc_ lgamma_ digamma_ gcd_ "
    "lcm_ logit_"
)


def _reads(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    operands = (value for name, value in kwargs.items() if not name.startswith("out"))
    return sum(map(numel, tensors(*args, *operands)))


def elementwise(per_element: int) -> Rule:
    """Return the rule of an operator of `per_element` FLOPs for each element it writes.

    Derivation: docs/derivations/functional-operators.md#elementwise. Every tensor operand is read once at its own
    size, so a broadcast operand costs what it holds, and Python numbers cost nothing.
    """

    def rule(*args: Any, out_shape: Any = None, **kwargs: Any) -> Work:
        written = numel(out_shape)
        return Work(per_element * written, 0, _reads(args, kwargs) + written)

    return rule


def foreach(per_element: int) -> Rule:
    """Return the rule of the same operator over a list of tensors; the in-place form returns nothing."""

    def rule(first: list[Shape], *args: Any, out_shape: Any = None, **kwargs: Any) -> Work:
        written = sum(map(numel, tensors(first)))
        return Work(per_element * written, 0, written + _reads(args, kwargs) + written)

    return rule


def foreach_add(first: list[Shape], *args: Any, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `a + alpha * b` over a list of tensors."""
    tensor_list = any(True for _ in tensors(*args))
    return foreach(2 if tensor_list and alpha != 1 else 1)(first, *args, **kwargs)


def foreach_third(first: list[Shape], second: list[Shape], third: list[Shape], *scale: Any, **kwargs: Any) -> Work:
    """Count `a + scale * b * c` or `a + scale * b / c` over a list of tensors; a factor of one is none."""
    factor = scale[0] if scale else kwargs.get("value", kwargs.get("scalars", 1))
    return foreach(2 if factor == 1 else 3)(first, second, third)


def add(*args: Any, out_shape: Shape, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `self + alpha * other`. Derivation: docs/derivations/functional-operators.md#scaled-operands."""
    self, other, *positional = args
    factor = positional[0] if positional else alpha
    scaled = numel(other) if isinstance(other, tuple) and factor != 1 else 0
    written = numel(out_shape)
    return Work(written + scaled, 0, _reads((self, other), {}) + written)


def rsub(*args: Any, out_shape: Shape, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `other - alpha * self`. Derivation: docs/derivations/functional-operators.md#scaled-operands."""
    self, other, *positional = args
    factor = positional[0] if positional else alpha
    written = numel(out_shape)
    return Work(written + (numel(self) if factor != 1 else 0), 0, _reads((self, other), {}) + written)


def third(*args: Any, out_shape: Shape, value: Any = 1, **kwargs: Any) -> Work:
    """Count `self + value * tensor1 * tensor2`, and the same with a quotient."""
    per_element = 2 if value == 1 else 3
    return elementwise(per_element)(*args, out_shape=out_shape)


def divide(*args: Any, out_shape: Shape, rounding_mode: str | None = None, **kwargs: Any) -> Work:
    """Count a quotient, and one more for its rounding."""
    return elementwise(1 if rounding_mode is None else 2)(*args, out_shape=out_shape)


def round_(*args: Any, out_shape: Shape, decimals: int = 0, **kwargs: Any) -> Work:
    """Count a rounding; to some decimals it is a product, the rounding and a quotient."""
    return elementwise(3 if decimals else 1)(*args, out_shape=out_shape)


def pow_(base: Any, exponent: Any, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count `base ** exponent`. Derivation: docs/derivations/functional-operators.md#powers."""
    known = isinstance(base, tuple) and not isinstance(exponent, tuple)
    per_element = _power(float(exponent)) if known else 3  # logarithm, multiply, exponential
    if per_element is None:
        raise NotCovered(f"no rule for the exponent {exponent}")
    return elementwise(per_element)(base, exponent, out_shape=out_shape)


def _power(exponent: float) -> int | None:
    if exponent == 0:
        return 0  # a constant
    if exponent == -0.5:
        return 1  # reciprocal square root
    if exponent < 0:
        positive = power(-exponent)
        return None if positive is None else positive + 1  # and a reciprocal
    return power(exponent)


def where(condition: Shape, *args: Any, out_shape: Any, **kwargs: Any) -> Work:
    """Count one selection per element; without two values to choose from, the call asks where the condition holds.

    A Python number is a tensor of one element when it is dispatched, but for inference mode: one read all the same.
    """
    if not args:
        return Work(0, 0, numel(condition) + sum(map(numel, tensors(out_shape))))
    numbers = sum(not isinstance(value, tuple) for value in args)
    return elementwise(1)(condition, *args, out_shape=out_shape).plus(dmas=numbers)


def clamp(self: Shape, min: Any = None, max: Any = None, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count one comparison per bound that is given."""
    bounds = (min is not None) + (max is not None)
    return elementwise(bounds)(self, min, max, out_shape=out_shape)


def gelu(*args: Any, out_shape: Shape, approximate: str = "none", **kwargs: Any) -> Work:
    """Count GELU, exact or with the tanh approximation."""
    return elementwise(FLOPS_PER_ELEMENT["GELU" if approximate == "none" else "GELU (tanh)"])(
        *args, out_shape=out_shape
    )


def elu(self: Shape, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count ELU; SELU is one with a final scale."""
    per_element = FLOPS_PER_ELEMENT["ELU"] + (scale != 1) + (input_scale != 1)
    return elementwise(per_element)(self, out_shape=out_shape)


def glu(self: Shape, dim: int = -1, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a gated linear unit."""
    return work(gated_linear_unit(numel(out_shape)))


def log_sigmoid(self: Shape, *, out_shape: Any, **kwargs: Any) -> Work:
    """Count a log-sigmoid; the buffer kept for the backward pass is no result."""
    return elementwise(FLOPS_PER_ELEMENT["LogSigmoid"])(self, out_shape=self)


def logit(self: Shape, eps: Any = None, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count `log(x / (1 - x))`, and two clamps where an epsilon is given."""
    return elementwise(3 if eps is None else 5)(self, out_shape=out_shape)


def rrelu(
    self: Shape,
    noise: Shape,
    lower: Any = 0.125,
    upper: Any = 1 / 3,
    training: bool = False,
    generator: Any = None,
    *,
    out_shape: Shape,
    **kwargs: Any,
) -> Work:
    """Count the evaluation form, a leaky ReLU; the noise is neither read nor written there."""
    if training:
        raise NotCovered("a random slope in training mode")
    return elementwise(FLOPS_PER_ELEMENT["RReLU"])(self, out_shape=out_shape)


def dropout(input: Shape, p: float = 0.5, train: bool | None = True, *, out_shape: Any, **kwargs: Any) -> Work:
    """Count mask and rescale; random numbers are excluded, and in evaluation nothing happens."""
    elements = numel(input)
    if train is False:
        return NOTHING
    return Work(elements if p == 1 else 2 * elements, 0, None)


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of elementwise operators."""
    for names, per_element in _IN_PLACE_TOO.items():
        both = " ".join(f"{name} {name}_" for name in names.split())
        yield from offer(both, "arithmetic", elementwise(per_element))
    for names, per_element in _OUT_OF_PLACE.items():
        yield from offer(names, "arithmetic", elementwise(per_element))
    for names, per_element in _FOREACH.items():
        both = " ".join(f"_foreach_{name} _foreach_{name}_" for name in names.split())
        yield from offer(both, "arithmetic", foreach(per_element))
    yield from offer("_foreach_mul _foreach_mul_", "arithmetic", foreach(1), terms="products")
    yield from offer("_foreach_addcmul _foreach_addcmul_", "arithmetic", foreach_third, terms="products")
    yield from offer("_foreach_addcdiv _foreach_addcdiv_", "arithmetic", foreach_third)
    yield from offer("_foreach_add _foreach_add_ _foreach_sub _foreach_sub_", "arithmetic", foreach_add)
    yield from offer("add add_ sub sub_", "arithmetic", add)
    yield from offer("mul mul_", "arithmetic", elementwise(1), terms="products")
    yield from offer("rsub", "arithmetic", rsub)
    yield from offer("addcmul addcmul_", "arithmetic", third, terms="products")
    yield from offer("addcdiv addcdiv_", "arithmetic", third)
    yield from offer("div div_", "arithmetic", divide)
    yield from offer("round round_", "arithmetic", round_)
    yield from offer("pow pow_", "arithmetic", pow_, terms="squares")
    yield from offer("where", "arithmetic", where)
    yield from offer("clamp clamp_", "arithmetic", clamp)
    yield from offer("gelu gelu_", "arithmetic", gelu)
    yield from offer("elu elu_", "arithmetic", elu)
    yield from offer("glu", "arithmetic", glu)
    yield from offer("log_sigmoid_forward", "arithmetic", log_sigmoid)
    yield from offer("logit", "arithmetic", logit)
    yield from offer("rrelu_with_noise rrelu_with_noise_", "arithmetic", rrelu)
    yield from offer("native_dropout", "arithmetic", dropout)
    yield from offer(_NO_MACS, "arithmetic", unknown, view=False)
    yield from offer("xlogy xlogy_ special_xlog1py", "arithmetic", unknown, view=False, terms="products")
