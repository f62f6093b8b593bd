"""Hand-derived counts of single operators: FLOPs / MACs / DMAs, then the operator view, each with its arithmetic."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from native.operator_log import TABLE, dispatched, one
from torchscan import OperatorCall, TensorSpec

a24, b24 = torch.rand(2, 4), torch.rand(2, 4)
row4, column2 = torch.rand(4), torch.rand(2, 1)
m23, m34 = torch.rand(2, 3), torch.rand(3, 4)
b223, b234 = torch.rand(2, 2, 3), torch.rand(2, 3, 4)
i24 = torch.ones(2, 4, dtype=torch.int64)
mask24 = torch.ones(2, 4, dtype=torch.bool)
t24 = torch.ones(2, 4, dtype=torch.bool)
index3 = torch.tensor([0, 1, 1])
image = torch.rand(1, 2, 4, 4)
pixels = torch.arange(16).repeat(2).view(1, 2, 4, 4)

ELEMENTWISE = [
    # one add per output; two operands of 8 read, 8 written
    (lambda: a24 + b24, (8, 0, 24)),
    # the row is read once at its own size: 8 + 4 + 8
    (lambda: a24 + row4, (8, 0, 20)),
    # (2,1) with (4,) gives 8: 2 + 4 + 8
    (lambda: column2 * row4, (8, 0, 14)),
    # a Python number is no operand: 8 + 8
    (lambda: a24 * 2.5, (8, 0, 16)),
    (lambda: 1 - a24, (8, 0, 16)),
    # in place: the same
    (lambda: a24.clone().add_(b24), (8, 0, 24)),
    # into a given tensor: that one is written, not read
    (lambda: torch.add(a24, b24, out=torch.empty(2, 4)), (8, 0, 24)),
    # the factor scales the 4 elements of the row, then 8 adds
    (lambda: torch.add(a24, row4, alpha=3), (12, 0, 20)),
    # 8 scaled, 8 subtracted
    (lambda: torch.sub(a24, b24, alpha=0.5), (16, 0, 24)),
    # other - alpha * self: the 8 of self are scaled, then 8 subtracts
    (lambda: torch.rsub(a24, 1.0, alpha=2), (16, 0, 16)),
    # a product, an add; with a factor one more
    (lambda: torch.addcmul(a24, a24, b24), (16, 0, 32)),
    (lambda: torch.addcmul(a24, a24, b24, value=2), (24, 0, 32)),
    (lambda: torch.addcdiv(a24, a24, b24, value=2), (24, 0, 32)),
    # subtract, multiply, add
    (lambda: torch.lerp(a24, b24, 0.5), (24, 0, 24)),
    (lambda: torch.div(a24, b24, rounding_mode="floor"), (16, 0, 24)),
    # scale, round, unscale
    (lambda: torch.round(a24, decimals=1), (24, 0, 16)),
    # x*x; x*x*x; square root; reciprocal; reciprocal of a square; log, multiply, exp
    (lambda: a24**2, (8, 0, 16)),
    (lambda: a24**3, (16, 0, 16)),
    (lambda: a24**0.5, (8, 0, 16)),
    (lambda: a24**-1, (8, 0, 16)),
    (lambda: a24**-2, (16, 0, 16)),
    (lambda: a24**1.5, (24, 0, 16)),
    (lambda: a24**b24, (24, 0, 24)),
    # one comparison per given bound
    (lambda: a24.clamp(0, 1), (16, 0, 16)),
    (lambda: a24.clamp(min=0), (8, 0, 16)),
    (lambda: a24.clamp(max=b24), (8, 0, 24)),
    # a selection per element: condition, both values, result
    (lambda: torch.where(t24, a24, b24), (8, 0, 32)),
    # mask 4, scores read 8 and written 8
    (lambda: a24.masked_fill(t24[0], -1.0), (8, 0, 20)),
    # negate, exp, add, divide; six for tanh; sigmoid and product
    (lambda: torch.sigmoid(a24), (32, 0, 16)),
    (lambda: torch.tanh(a24), (48, 0, 16)),
    (lambda: F.silu(a24), (40, 0, 16)),
    (lambda: F.gelu(a24), (40, 0, 16)),
    (lambda: F.gelu(a24, approximate="tanh"), (112, 0, 16)),
    # ELU 6, SELU one more scale, CELU one more divide
    (lambda: F.elu(a24, 2.0), (48, 0, 16)),
    (lambda: F.selu(a24), (56, 0, 16)),
    (lambda: F.celu(a24, 2.0), (56, 0, 16)),
    (lambda: F.logsigmoid(a24), (56, 0, 16)),
    (lambda: F.softplus(a24), (56, 0, 16)),
    (lambda: F.mish(a24), (80, 0, 16)),
    (lambda: F.hardtanh(a24), (16, 0, 16)),
    (lambda: F.relu6(a24), (16, 0, 16)),
    # 4 outputs: sigmoid and product; 8 read, 4 written
    (lambda: F.glu(a24), (20, 0, 12)),
    (lambda: torch.logit(a24), (24, 0, 16)),
    (lambda: torch.logit(a24, eps=1e-6), (40, 0, 16)),
    # integers and truth values cost no FLOP
    (lambda: i24 + i24, (0, 0, 24)),
    (lambda: t24 & t24, (0, 0, 24)),
    (lambda: i24 == 1, (0, 0, 16)),
    # … but a comparison of real numbers does, and so does an integer times a real number
    (lambda: a24 > 0, (8, 0, 16)),
    (lambda: i24 * a24, (8, 0, 24)),
    # a true quotient of integers is a real number
    (lambda: i24 / i24, (8, 0, 24)),
]

REDUCTIONS = [
    # 7 adds; 8 read, 1 written
    (lambda: a24.sum(), (7, 0, 9)),
    # 2 rows of 3 adds
    (lambda: a24.sum(-1), (6, 0, 10)),
    (lambda: a24.sum((0, 1)), (7, 0, 9)),
    (lambda: a24.sum(0, keepdim=True), (4, 0, 12)),
    # a divide per row more
    (lambda: a24.mean(-1), (8, 0, 10)),
    (lambda: a24.amax(-1), (6, 0, 10)),
    (lambda: a24.argmax(-1), (6, 0, 10)),
    (lambda: a24.prod(), (7, 0, 9)),
    # values and positions written
    (lambda: a24.max(-1), (6, 0, 12)),
    (lambda: a24.max(), (7, 0, 9)),
    # of two tensors it is elementwise
    (lambda: torch.ops.aten.maximum(a24, b24), (8, 0, 24)),
    (lambda: torch.aminmax(a24, dim=-1), (12, 0, 20)),
    # integers
    (lambda: i24.sum(), (0, 0, 9)),
    (lambda: t24.any(), (0, 0, 9)),
    # 8 comparisons with zero
    (lambda: torch.count_nonzero(a24, dim=-1), (8, 0, 10)),
    # mean 8, variance 24; squares 8; (8+2) + (8+2+2)
    (lambda: a24.var(-1), (32, 8, 22)),
    (lambda: a24.var(-1, correction=0), (32, 8, 22)),
    (lambda: torch.var_mean(a24, -1), (32, 8, 22)),
    # a root per row: 2 FLOPs, 4 accesses
    (lambda: a24.std(-1), (34, 8, 26)),
    # 8 squares, 6 adds, 2 roots; (8+2) + (2+2)
    (lambda: torch.linalg.vector_norm(a24, dim=-1), (16, 0, 14)),
    # 8 absolute values, 6 adds
    (lambda: torch.linalg.vector_norm(a24, 1, dim=-1), (14, 0, 10)),
    (lambda: torch.linalg.vector_norm(a24, float("inf"), dim=-1), (14, 0, 10)),
    # order 3: absolute value, two products for the cube, 6 adds, 2 roots of three operations
    (lambda: torch.linalg.vector_norm(a24, 3, dim=-1), (8 + 16 + 6 + 6, 0, 14)),
    # order 1.5: absolute value, 3 for the power
    (lambda: torch.linalg.vector_norm(a24, 1.5, dim=-1), (8 + 24 + 6 + 6, 0, 14)),
    (lambda: a24.norm(dim=-1), (16, 0, 14)),
    (lambda: a24.norm(), (8 + 7 + 1, 0, 9 + 2)),
    # maximum 6, subtract 8, exp 8, sum 6, logarithm 2, add 2; 10 + 18 + 16 + 10 + 4 + 6
    (lambda: a24.logsumexp(-1), (32, 0, 64)),
    # one add for all but the first of each row
    (lambda: a24.cumsum(-1), (6, 0, 16)),
    (lambda: a24.cumprod(0), (4, 0, 16)),
    # a diagonal of 2
    (lambda: a24.trace(), (1, 0, 3)),
    # 5N - 2R, 8N + 4R
    (lambda: a24.softmax(-1), (36, 0, 72)),
    # 5N - R, 8N + 6R
    (lambda: a24.log_softmax(-1), (38, 0, 76)),
    # along the other axis there are 4 rows
    (lambda: a24.softmax(0), (32, 0, 80)),
]

MOVEMENT = [
    # all parts read, the whole written
    (lambda: torch.cat([a24, b24]), (0, 0, 32)),
    (lambda: torch.stack([a24, b24, a24]), (0, 0, 48)),
    (lambda: a24.repeat(3, 1), (0, 0, 32)),
    (lambda: a24.roll(1), (0, 0, 16)),
    (lambda: a24.flip(0), (0, 0, 16)),
    (lambda: a24.tril(), (0, 0, 16)),
    # 3 positions, then 3 rows of 2 read and written
    (lambda: a24.index_select(1, index3), (0, 0, 3 + 6 + 6)),
    (lambda: a24[:, index3], (0, 0, 15)),
    (lambda: a24.gather(1, index3[None]), (0, 0, 9)),
    # 3 indices, width 4
    (lambda: F.embedding(index3, b24), (0, 0, 27)),
    # the source read, the target written
    (lambda: torch.empty(2, 4).copy_(row4), (0, 0, 12)),
    # kept elements and the padded result: 8 + 12; a crop reads less: 6 + 6
    (lambda: F.pad(a24, (1, 1)), (0, 0, 20)),
    (lambda: F.pad(a24, (-1, 0)), (0, 0, 12)),
    (lambda: F.pad(a24[None], (1, 1), mode="reflect"), (0, 0, 20)),
    (lambda: F.unfold(torch.rand(1, 1, 3, 3), 2), (0, 0, 25)),
    (lambda: F.pixel_shuffle(torch.rand(1, 4, 2, 2), 2), (0, 0, 32)),
    # self, positions and source read, self written; one add per source element
    (lambda: a24.scatter(1, i24[:, :2], b24), (0, 0, 8 + 4 + 8 + 8)),
    (lambda: a24.scatter_add(1, i24[:, :2], b24[:, :2]), (4, 0, 8 + 4 + 4 + 8)),
    (lambda: a24.index_add(1, index3, b24[:, :3]), (6, 0, 8 + 3 + 6 + 8)),
    (lambda: a24.clone().index_put_((index3[:2],), b24), (0, 0, 8 + 2 + 8 + 8)),
    (lambda: a24.clone().index_put_((index3[:2],), b24, accumulate=True), (8, 0, 26)),
    # a source larger than the positions are many is read whole and added in part
    (lambda: a24.scatter_add(1, i24[:, :2], b24), (4, 0, 8 + 4 + 8 + 8)),
    # one value for each of 3 rows of 4; for 2 x 3 elements named by two indices that are broadcast
    (lambda: a24.clone().index_put_((index3,), b24[:1].expand(3, 4), accumulate=True), (12, 0, 8 + 3 + 12 + 8)),
    (lambda: a24.clone().index_put_((i24[:, :1], index3), b24[:, :3], accumulate=True), (6, 0, 8 + 2 + 3 + 6 + 8)),
    # one value for several elements: how often it is added, a mask would not tell
    (lambda: a24.clone().index_put_((index3,), row4, accumulate=True), (None, 0, 8 + 3 + 4 + 8)),
    (lambda: a24.clone().index_put_((mask24,), row4[:1], accumulate=True), (None, 0, 8 + 8 + 1 + 8)),
    # flat positions; one add per value where they accumulate
    (lambda: a24.clone().put_(index3, row4[:3]), (0, 0, 8 + 3 + 3 + 8)),
    (lambda: a24.clone().put_(index3, row4[:3], accumulate=True), (3, 0, 22)),
    (lambda: a24.scatter_reduce(1, i24[:, :2], b24, "amax"), (4, 0, 8 + 4 + 8 + 8)),
    # a mean divides by counts that only values know
    (lambda: a24.scatter_reduce(1, i24[:, :2], b24, "mean"), (None, 0, 28)),
    # how a sort compares is the algorithm's choice
    (lambda: a24.sort(-1), (None, 0, 8 + 16)),
    (lambda: a24.topk(2, -1), (None, 0, 8 + 8)),
]

WINDOWS = [
    # 8 windows of 4: 3 comparisons each; the positions are a by-product
    (lambda: F.max_pool2d(image, 2), (24, 0, 40)),
    # 3 adds and a divide each
    (lambda: F.avg_pool2d(image, 2), (32, 0, 40)),
    # windows overlap: along each axis 4 + 3 - 1 = 6 values are visited; 2 * 36 = 72, 18 outputs
    (lambda: F.adaptive_avg_pool2d(image, 3), (72, 0, 50)),
    (lambda: F.adaptive_max_pool2d(image, 3), (54, 0, 50)),
    (lambda: F.max_unpool2d(image, pixels, 1), (0, 0, 96)),
    (lambda: F.interpolate(image, size=8), (0, 0, 32 + 128)),
    # 128 outputs of 4 taps: 7 FLOPs, 4 MACs
    (lambda: F.interpolate(image, size=8, mode="bilinear"), (896, 512, 160)),
    (lambda: F.interpolate(image, scale_factor=2, mode="bicubic"), (128 * 31, 128 * 16, 160)),
    (lambda: F.interpolate(image[0], size=8, mode="linear"), (64 * 3, 64 * 2, 32 + 64)),
    # 16 valid entries on 9 pixels
    (lambda: F.fold(torch.rand(1, 4, 4), (3, 3), 2), (7, 0, 25)),
    # 18 outputs of 4 neighbours; the weights come from values
    (lambda: F.grid_sample(image, torch.zeros(1, 3, 3, 2), align_corners=False), (None, 72, None)),
    (lambda: F.grid_sample(image, torch.zeros(1, 3, 3, 2), mode="nearest", align_corners=False), (None, 0, None)),
]

CONTRACTIONS = [
    # 8 outputs of 3 terms: 8*5; 8*3; 6 + 12 + 8. The view counts 2 K
    (lambda: m23 @ m34, (40, 24, 26), 48),
    # one product, no add
    (lambda: column2 @ row4[None], (8, 8, 14), 16),
    # K = 0: nothing is multiplied
    (lambda: torch.rand(2, 0) @ torch.rand(0, 3), (0, 0, 6), 0),
    (lambda: b223 @ b234, (80, 48, 12 + 24 + 16), 96),
    # 8 adds of the bias; read once at its own size
    (lambda: torch.addmm(row4, m23, m34), (48, 24, 30), 48),
    # 8 scaled products, 4 scaled biases
    (lambda: torch.addmm(row4, m23, m34, beta=2, alpha=3), (60, 24, 30), 48),
    # a bias times zero is not read
    (lambda: torch.addmm(row4, m23, m34, beta=0), (40, 24, 26), 48),
    (lambda: torch.baddbmm(a24, b223, b234), (96, 48, 60), 96),
    # the batch is a summed axis too: 8 outputs of 6 terms and 8 adds
    (lambda: torch.addbmm(a24, b223, b234), (96, 48, 8 + 36 + 8), 96),
    # 2 outputs of 3 terms
    (lambda: m23 @ torch.rand(3), (10, 6, 11), 12),
    (lambda: torch.addmv(torch.rand(2), m23, torch.rand(3)), (12, 6, 13), 12),
    (lambda: row4 @ row4, (7, 4, 9), 8),
    (lambda: torch.vdot(row4, row4), (7, 4, 9), 8),
    # no axis is summed: a product and an add per element, no MAC
    (lambda: torch.addr(a24, torch.rand(2), row4), (16, 0, 8 + 2 + 4 + 8), 16),
    # integer matrices: product terms, but no FLOPs
    (lambda: i24 @ i24.T, (0, 16, 8 + 8 + 4), 32),
    # stage 1: 12 values of 2 terms, stage 2: 4 values of 3 terms
    (
        lambda: torch._trilinear(torch.rand(2, 2), torch.rand(2, 2, 3), m23, [1, 3], [0], [1, 2], [2, 3]),
        (56, 36, 50),
        72,
    ),
    # 9 positions of the base grid, 2 outputs of 3 terms each: 18*5; theta 6, grid 27, result 18
    (lambda: F.affine_grid(torch.rand(1, 2, 3), [1, 1, 3, 3], align_corners=False), (90, 54, 51), 108),
    # 4 outputs of 9 terms and a bias
    (lambda: F.conv2d(torch.rand(1, 1, 4, 4), torch.rand(1, 1, 3, 3), torch.rand(1)), (72, 36, 30), 72),
    (lambda: F.conv1d(torch.rand(2, 4, 7), torch.rand(6, 2, 3), groups=2), (660, 360, 152), 720),
    # every one of 24 inputs meets 3 filters of 3 taps
    (
        lambda: F.conv_transpose1d(torch.rand(2, 4, 3), torch.rand(4, 3, 3), torch.rand(6), 2, 1, 1, 2),
        (504, 216, 138),
        432,
    ),
    # 15 outputs of 8 terms and a bias; 24 + 40 + 5 + 15
    (lambda: torch.conv_tbc(torch.rand(4, 1, 4), torch.rand(2, 4, 5), torch.rand(5)), (240, 120, 16 + 45 + 15), 240),
    # norms: 6N + 2R + 2N; N(1 + W)
    (lambda: F.layer_norm(torch.rand(1, 3, 4), (4,), row4, row4), (102, 24, 96), 102),
    (lambda: F.layer_norm(torch.rand(1, 3, 4), (4,)), (78, 12, 64), 78),
    (lambda: F.group_norm(torch.rand(2, 4, 2), 2, row4, row4), (136, 32, 125), 136),
    # saved statistics: 2N + 2C + 2N; the affine product alone
    (
        lambda: F.batch_norm(torch.rand(2, 3, 4), torch.zeros(3), torch.ones(3), torch.ones(3), torch.ones(3)),
        (102, 24, 109),
        102,
    ),
    # statistics of the batch
    (lambda: F.batch_norm(torch.rand(2, 3, 4), None, None, torch.ones(3), torch.ones(3), True), (198, 48, 166), 198),
    # … that also update the stored ones: training, so only the MACs; the view adds 3 per statistic and channel
    (
        lambda: F.batch_norm(torch.rand(2, 3, 4), torch.zeros(3), torch.ones(3), None, None, True),
        (None, 24, None),
        150 + 18,
    ),
]


@pytest.mark.parametrize(("call", "expected"), ELEMENTWISE + REDUCTIONS + MOVEMENT + WINDOWS)
def test_counts(call, expected):
    assert one(call).counts == expected


@pytest.mark.parametrize(("call", "expected", "view"), CONTRACTIONS)
def test_contractions(call, expected, view):
    found = one(call)
    assert found.counts == expected
    assert found.view == view


@pytest.mark.parametrize(("call", "expected"), [case for case in ELEMENTWISE + REDUCTIONS if case[1][0]])
def test_the_operator_view_counts_the_same_operations(call, expected):
    assert one(call).view == expected[0]


def test_the_operator_views_formula_sees_no_types():
    # 8 adds of integers; the estimate knows that they are no FLOPs, and the scan leaves them out of the view
    found = one(lambda: i24 + i24)
    assert (found.view, found.counts[0]) == (8, 0)


def test_embedding_bag_says_what_shapes_say():
    table = torch.rand(10, 4)
    indices, offsets = torch.tensor([1, 2, 3, 4, 5, 6]), torch.tensor([0, 3])

    def bag(**options):
        return lambda: F.embedding_bag(indices, table, offsets, **options)

    # a mean has n*D operations however many bags are empty; 6 indices, 6 rows of 4, 2 results of 4, 2 offsets
    assert one(bag(mode="mean")).counts == (24, 0, 6 + 24 + 8 + 2)
    # a sum has (n - filled)*D, and which bags are filled is a matter of values
    assert one(bag(mode="sum")).counts == (None, 0, 40)
    # weighted: one product term per index and column, 6 weights read
    assert one(bag(mode="sum", per_sample_weights=torch.ones(6))).counts == (None, 24, 46)


def test_losses_reduce_what_they_compared():
    # subtract and square 8 elements, 7 adds and a divide; 16 + 8, then 8 + 1
    assert one(lambda: F.mse_loss(a24, b24)).counts == (16 + 8, 0, 24 + 9)
    assert one(lambda: F.mse_loss(a24, b24, reduction="sum")).counts == (16 + 7, 0, 33)
    assert one(lambda: F.mse_loss(a24, b24, reduction="none")).counts == (16, 0, 24)
    # 10 per element
    assert one(lambda: F.binary_cross_entropy(a24, b24)).counts == (80 + 8, 0, 33)
    assert one(lambda: F.binary_cross_entropy_with_logits(a24, b24, reduction="sum")).counts == (87, 0, 33)
    # 2 rows: a negation each, an add, a divide; targets, picks and results 2 each, then 2 + 1
    assert one(lambda: F.nll_loss(a24, torch.tensor([0, 1]))).counts == (4, 0, 9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.binary_cross_entropy_with_logits(a24, b24, pos_weight=row4),
        lambda: F.nll_loss(a24, torch.tensor([0, 1]), weight=row4),
        lambda: torch.linalg.vector_norm(a24, -2, dim=-1),
        lambda: F.rrelu(a24, training=True),
        lambda: torch.zeros(2, 0).softmax(-1),
        lambda: torch.zeros(2, 0).mean(-1),
        lambda: F.embedding_bag(index3[None], b24, padding_idx=0),
    ],
)
def test_a_form_without_a_rule_is_refused(call):
    with pytest.raises(ValueError, match=r"\w"):
        _ = one(call).estimate


def test_an_empty_batch_is_zero():
    nothing = torch.zeros(0, 4)
    assert one(lambda: nothing + 1).counts == (0, 0, 0)
    assert one(lambda: nothing.softmax(-1)).counts == (0, 0, 0)
    assert one(lambda: F.layer_norm(nothing, (4,))).counts == (0, 0, 0)
    assert one(lambda: nothing @ torch.rand(4, 3)).counts[:2] == (0, 0)


def test_complex_numbers_have_no_rule():
    c = torch.ones(2, 4, dtype=torch.complex64)
    # no contraction axis, so no MAC whatever the numbers are; FLOPs and accesses are not said
    assert one(lambda: c * c).counts == (None, 0, None)
    # a contraction of complex numbers is not a number of real products
    assert one(lambda: c @ c.T).counts == (None, None, None)


def test_quantized_tensors_have_no_rule():
    packed = TensorSpec((2, 4), torch.quint8)
    relu = TABLE["aten.relu"].estimate
    assert relu is not None
    assert relu(OperatorCall("aten.relu", "default", (packed,), {}, packed)) == {}


def test_lists_of_tensors_count_each():
    pair = [torch.rand(2, 4), torch.rand(3)]
    # 11 adds; 11 read and written
    assert one(lambda: torch._foreach_add(pair, 1.0)).counts == (11, 0, 22)
    # two lists: 22 read, 11 written; alpha scales one of them
    assert one(lambda: torch._foreach_add_(pair, pair)).counts == (11, 0, 33)
    assert one(lambda: torch._foreach_add(pair, pair, alpha=2)).counts == (22, 0, 33)
    # a product, an add, and the factor
    assert one(lambda: torch._foreach_addcmul_(pair, pair, pair, value=2.0)).counts == (33, 0, 44)
    assert one(lambda: torch._foreach_addcmul_(pair, pair, pair, value=1.0)).counts == (22, 0, 44)
    # norms of 8 and of 3: 8 + 7 + 1 and 3 + 2 + 1
    assert one(lambda: torch._foreach_norm(pair)).counts == (22, 0, (9 + 2) + (4 + 2))


def test_dropout_is_nothing_in_evaluation():
    with torch.inference_mode():
        training = one(lambda: torch.native_dropout(a24, 0.5, True))
        evaluation = one(lambda: torch.native_dropout(a24, 0.5, False))
    # mask and rescale 8 elements; random numbers are excluded
    assert training.counts == (16, 0, None)
    assert evaluation.counts == (0, 0, 0)


def test_copies_and_creation_are_ignored():
    seen = dispatched(lambda: (a24.T.contiguous(), a24.double(), torch.zeros(2), torch.arange(3), torch.rand(2)))
    kinds = {op.call.name: op.formula.kind for op in seen if op.formula is not None}
    assert kinds == dict.fromkeys(("aten.clone", "aten._to_copy", "aten.zeros", "aten.arange", "aten.rand"), "ignored")
