"""A counter that performs the staged dense algorithm on nested lists, one scalar at a time.

It knows no closed formula: every count below is the number of times a line ran. It returns the output as well, so that
a test can hold it against PyTorch: an algorithm that computes something else counts something else.

Rules it obeys (docs/derivations): a stage loads each operand and each parameter tensor once and stores its result
once; one arithmetic operation is one FLOP; a product of a contraction, a square of a variance and a product with an
affine weight is one MAC; dropout in evaluation, views and constants cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

Lists = Any  # nested lists of floats


class Counter:
    """Counts scalar operations and accesses as they happen."""

    def __init__(self) -> None:
        self.flops = 0
        self.macs = 0
        self.dmas = 0

    # -- accesses ----------------------------------------------------------------------------------------------------

    def load(self, values: Lists) -> Lists:
        """Read every scalar of an operand once."""
        for _ in scalars(values):
            self.dmas += 1
        return values

    def store(self, values: Lists) -> Lists:
        """Write every scalar of a result once."""
        for _ in scalars(values):
            self.dmas += 1
        return values

    # -- arithmetic --------------------------------------------------------------------------------------------------

    def add(self, x: float, y: float) -> float:
        self.flops += 1
        return x + y

    def subtract(self, x: float, y: float) -> float:
        self.flops += 1
        return x - y

    def multiply(self, x: float, y: float) -> float:
        self.flops += 1
        return x * y

    def divide(self, x: float, y: float) -> float:
        self.flops += 1
        return x / y

    def larger(self, x: float, y: float) -> float:
        self.flops += 1
        return max(x, y)

    def exp(self, x: float) -> float:
        self.flops += 1
        return math.exp(x)

    def sqrt(self, x: float) -> float:
        self.flops += 1
        return math.sqrt(x)

    def product_term(self, x: float, y: float) -> float:
        self.macs += 1
        return self.multiply(x, y)

    def fold(self, operation: Callable[[float, float], float], values: Sequence[float]) -> float:
        """Combine values from left to right; the first one is free."""
        result = values[0]
        for value in values[1:]:
            result = operation(result, value)
        return result

    def dot(self, left: Sequence[float], right: Sequence[float]) -> float:
        return self.fold(self.add, [self.product_term(x, y) for x, y in zip(left, right, strict=True)])


def scalars(values: Lists) -> Any:
    """Walk the scalars of nested lists."""
    if isinstance(values, list):
        for value in values:
            yield from scalars(value)
    else:
        yield values


def zip_map(operation: Callable[..., float], *values: Lists) -> Lists:
    """Apply `operation` to the scalars of equally nested lists."""
    if isinstance(values[0], list):
        return [zip_map(operation, *parts) for parts in zip(*values, strict=True)]
    return operation(*values)


def lists(tensor: torch.Tensor | None) -> Lists:
    return None if tensor is None else tensor.detach().double().tolist()


# -- stages ----------------------------------------------------------------------------------------------------------


def linear(c: Counter, tokens: Lists, weight: Lists, bias: Lists | None) -> Lists:
    """Map every token of [batch][token][feature]."""
    c.load(tokens)
    c.load(weight)
    if bias is not None:
        c.load(bias)
    result = []
    for sequence in tokens:
        mapped = []
        for token in sequence:
            row = [c.dot(token, terms) for terms in weight]
            if bias is not None:
                row = [c.add(value, offset) for value, offset in zip(row, bias, strict=True)]
            mapped.append(row)
        result.append(mapped)
    return c.store(result)


def residual(c: Counter, left: Lists, right: Lists) -> Lists:
    c.load(left)
    c.load(right)
    return c.store(zip_map(c.add, left, right))


def layer_norm(c: Counter, tokens: Lists, norm: nn.Module | None) -> Lists:
    if norm is None or isinstance(norm, nn.Identity):
        return tokens
    rows = [token for sequence in tokens for token in sequence]
    c.load(rows)
    means = c.store([c.divide(c.fold(c.add, row), len(row)) for row in rows])

    c.load(rows)
    c.load(means)
    variances = []
    for row, mean in zip(rows, means, strict=True):
        squares = []
        for value in row:
            difference = c.subtract(value, mean)
            squares.append(c.product_term(difference, difference))
        variances.append(c.divide(c.fold(c.add, squares), len(row)))
    c.store(variances)

    c.load(rows)
    c.load(means)
    c.load(variances)
    epsilon = c.load([norm.eps])[0]
    result = []
    for row, mean, variance in zip(rows, means, variances, strict=True):
        deviation = c.sqrt(c.add(variance, epsilon))
        result.append([c.divide(c.subtract(value, mean), deviation) for value in row])
    c.store(result)

    weight, bias = lists(norm.weight), lists(norm.bias)
    if weight is not None or bias is not None:
        c.load(result)
        if weight is not None:
            c.load(weight)
            result = [[c.product_term(value, w) for value, w in zip(row, weight, strict=True)] for row in result]
        if bias is not None:
            c.load(bias)
            result = [[c.add(value, b) for value, b in zip(row, bias, strict=True)] for row in result]
        c.store(result)
    flat = iter(result)
    return [[next(flat) for _ in sequence] for sequence in tokens]


def softmax(c: Counter, scores: Lists) -> Lists:
    """Softmax of every row of [batch][head][query][key], in five stages."""

    def rows(values: Lists) -> list[Any]:
        return [row for batch in values for head in batch for row in head]

    c.load(scores)
    maxima = c.store([c.fold(c.larger, row) for row in rows(scores)])
    c.load(scores)
    c.load(maxima)
    shifted = c.store([[c.subtract(x, top) for x in row] for row, top in zip(rows(scores), maxima, strict=True)])
    c.load(shifted)
    powers = c.store([[c.exp(x) for x in row] for row in shifted])
    c.load(powers)
    sums = c.store([c.fold(c.add, row) for row in powers])
    c.load(powers)
    c.load(sums)
    flat = iter(c.store([[c.divide(x, total) for x in row] for row, total in zip(powers, sums, strict=True)]))
    return [[[next(flat) for _ in head] for head in batch] for batch in scores]


def additive(mask: torch.Tensor) -> Lists:
    """A boolean mask as what it adds; the conversion is outside the model."""
    if mask.dtype is torch.bool:
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask, -math.inf)
    return lists(mask)


def attention(
    c: Counter,
    module: nn.MultiheadAttention,
    query: Lists,
    key: Lists,
    value: Lists,
    attn_mask: torch.Tensor | None = None,
    key_padding_mask: torch.Tensor | None = None,
    averaged: bool = False,
) -> tuple[Lists, Lists]:
    """One attention on [batch][token][feature] lists; returns the output and the weights."""
    width, heads = module.embed_dim, module.num_heads
    size = width // heads
    if module.in_proj_weight is not None:
        weights = [lists(part) for part in module.in_proj_weight.chunk(3)]
    else:
        weights = [lists(part) for part in (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)]
    biases: list[Lists] = [None] * 3
    if module.in_proj_bias is not None:
        biases = [lists(part) for part in module.in_proj_bias.chunk(3)]
    q = linear(c, query, weights[0], biases[0])
    k = linear(c, key, weights[1], biases[1])
    v = linear(c, value, weights[2], biases[2])

    factor = 1 / math.sqrt(size)
    c.load(q)
    q = c.store(zip_map(lambda x: c.multiply(x, factor), q))

    c.load(q)
    c.load(k)
    scores = c.store(
        [
            [
                [[c.dot(tq[h * size : (h + 1) * size], tk[h * size : (h + 1) * size]) for tk in k[b]] for tq in q[b]]
                for h in range(heads)
            ]
            for b in range(len(q))
        ]
    )

    if attn_mask is not None:
        entries = c.load(additive(attn_mask))
        c.load(scores)
        scores = c.store(
            [
                [
                    [
                        [c.add(x, m) for x, m in zip(row, mask_row, strict=True)]
                        for row, mask_row in zip(
                            head, entries if attn_mask.dim() == 2 else entries[b * heads + h], strict=True
                        )
                    ]
                    for h, head in enumerate(batch)
                ]
                for b, batch in enumerate(scores)
            ]
        )
    if key_padding_mask is not None:
        entries = c.load(additive(key_padding_mask))
        c.load(scores)
        scores = c.store(
            [
                [[[c.add(x, m) for x, m in zip(row, entries[b], strict=True)] for row in head] for head in batch]
                for b, batch in enumerate(scores)
            ]
        )

    probabilities = softmax(c, scores)

    c.load(probabilities)
    c.load(v)
    context = []
    for b, batch in enumerate(probabilities):
        sequence = []
        for t in range(len(q[b])):
            token = []
            for column in range(width):
                token.append(c.dot(batch[column // size][t], [row[column] for row in v[b]]))
            sequence.append(token)
        context.append(sequence)
    c.store(context)

    output = linear(c, context, lists(module.out_proj.weight), lists(module.out_proj.bias))
    if not averaged:
        return output, probabilities
    c.load(probabilities)
    mean = c.store([zip_map(lambda *x: c.divide(c.fold(c.add, x), heads), *batch) for batch in probabilities])
    return output, mean


def feed_forward(c: Counter, layer: nn.Module, tokens: Lists) -> Lists:
    hidden = linear(c, tokens, lists(layer.linear1.weight), lists(layer.linear1.bias))
    c.load(hidden)
    if "gelu" in str(layer.activation).lower():  # the module FLOPs of a layer with GELU mean nothing here
        hidden = zip_map(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))), hidden)
    else:
        hidden = zip_map(lambda x: c.larger(x, 0.0), hidden)
    c.store(hidden)
    return linear(c, hidden, lists(layer.linear2.weight), lists(layer.linear2.bias))


# -- layers and stacks -----------------------------------------------------------------------------------------------

Mask = torch.Tensor | None


def encoder_layer(c: Counter, layer: nn.TransformerEncoderLayer, x: Lists, mask: Mask, padding: Mask) -> Lists:
    def attend(y: Lists) -> Lists:
        return attention(c, layer.self_attn, y, y, y, mask, padding)[0]

    if layer.norm_first:
        x = residual(c, x, attend(layer_norm(c, x, layer.norm1)))
        return residual(c, x, feed_forward(c, layer, layer_norm(c, x, layer.norm2)))
    x = layer_norm(c, residual(c, x, attend(x)), layer.norm1)
    return layer_norm(c, residual(c, x, feed_forward(c, layer, x)), layer.norm2)


def decoder_layer(
    c: Counter, layer: nn.TransformerDecoderLayer, x: Lists, memory: Lists, masks: Sequence[Mask]
) -> Lists:
    mask, padding, memory_mask, memory_padding = masks

    def attend(y: Lists) -> Lists:
        return attention(c, layer.self_attn, y, y, y, mask, padding)[0]

    def look_up(y: Lists) -> Lists:
        return attention(c, layer.multihead_attn, y, memory, memory, memory_mask, memory_padding)[0]

    if layer.norm_first:
        x = residual(c, x, attend(layer_norm(c, x, layer.norm1)))
        x = residual(c, x, look_up(layer_norm(c, x, layer.norm2)))
        return residual(c, x, feed_forward(c, layer, layer_norm(c, x, layer.norm3)))
    x = layer_norm(c, residual(c, x, attend(x)), layer.norm1)
    x = layer_norm(c, residual(c, x, look_up(x)), layer.norm2)
    return layer_norm(c, residual(c, x, feed_forward(c, layer, x)), layer.norm3)


def encoder(c: Counter, stack: nn.TransformerEncoder, x: Lists, mask: Mask, padding: Mask) -> Lists:
    for layer in stack.layers:
        x = encoder_layer(c, layer, x, mask, padding)
    return layer_norm(c, x, stack.norm)


def decoder(c: Counter, stack: nn.TransformerDecoder, x: Lists, memory: Lists, masks: Sequence[Mask]) -> Lists:
    for layer in stack.layers:
        x = decoder_layer(c, layer, x, memory, masks)
    return layer_norm(c, x, stack.norm)


# -- calls -----------------------------------------------------------------------------------------------------------


def perform(
    module: nn.Module, inputs: Sequence[torch.Tensor], batch_first: bool, options: dict[str, Any]
) -> tuple[Counter, torch.Tensor]:
    """Perform one call of a native module.

    Args:
        module: one of the six native types.
        inputs: its positional tensors.
        batch_first: their layout.
        options: its keyword arguments, as PyTorch names them; causal hints are left to their masks.

    Returns:
        The counts, and the main output in the layout of the inputs.

    """
    c = Counter()
    values = [lists(x if batch_first else x.transpose(0, 1)) for x in inputs]
    get = options.get
    tgt_masks = [get(n) for n in ("tgt_mask", "tgt_key_padding_mask", "memory_mask", "memory_key_padding_mask")]
    match module:
        case nn.MultiheadAttention():
            averaged = get("need_weights", True) and get("average_attn_weights", True)
            masks = (get("attn_mask"), get("key_padding_mask"))
            result = attention(c, module, *values, *masks, averaged)[0]
        case nn.TransformerEncoderLayer():
            result = encoder_layer(c, module, *values, get("src_mask"), get("src_key_padding_mask"))
        case nn.TransformerDecoderLayer():
            result = decoder_layer(c, module, *values, tgt_masks)
        case nn.TransformerEncoder():
            result = encoder(c, module, *values, get("mask"), get("src_key_padding_mask"))
        case nn.TransformerDecoder():
            result = decoder(c, module, *values, tgt_masks)
        case nn.Transformer():
            memory = encoder(c, module.encoder, values[0], get("src_mask"), get("src_key_padding_mask"))
            result = decoder(c, module.decoder, values[1], memory, tgt_masks)
    output = torch.tensor(result, dtype=torch.float64)
    return c, output if batch_first else output.transpose(0, 1)
