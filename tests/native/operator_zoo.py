"""Functional code of all sorts, for the tests that ask whether every operator it dispatches is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

x, y = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
image = torch.rand(2, 3, 6, 6)
q, k, v = torch.rand(1, 2, 3, 4), torch.rand(1, 2, 5, 4), torch.rand(1, 2, 5, 4)
row = torch.ones(4)
places = torch.tensor([0, 1])
mask = torch.ones(3, 5, dtype=torch.bool)


def _rotary(t: torch.Tensor) -> torch.Tensor:
    half = t.shape[-1] // 2
    angles = torch.outer(torch.arange(t.shape[-2]).float(), 10000 ** (-torch.arange(half) / half))
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    return t * cos + torch.cat([-t[..., half:], t[..., :half]], -1) * sin


def _cache() -> torch.Tensor:
    cache = torch.zeros(2, 8, 4)
    cache[:, 2:5] = x
    cache.index_copy_(1, places, y[:, :2])
    return cache.masked_fill(torch.arange(8)[None, :, None] > 4, float("-inf"))


def _message_passing() -> torch.Tensor:
    source, target = torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 0, 1])
    nodes = torch.rand(3, 4)
    gathered = nodes[source] - nodes.index_select(0, target)
    return torch.zeros(3, 4).index_add_(0, target, gathered).scatter_add(0, target[:, None].expand(-1, 4), gathered)


def _routing() -> list[torch.Tensor]:
    weights, chosen = (x[0] @ torch.rand(4, 3)).softmax(-1).topk(2)
    hot = F.one_hot(chosen, 3)
    return [torch.where(hot[..., expert].bool())[0] for expert in range(3)] + [weights / weights.sum(-1, keepdim=True)]


FUNCTIONAL: dict[str, Callable[[], Any]] = {
    "arithmetic": lambda: (x + y, x - 1, 2 * x, x / y, -x, x**2, x.sqrt(), 1 / x, x.rsqrt(), x.exp(), x.log1p()),
    "comparison": lambda: (x > y, x.eq(1), torch.where(x > 0, x, y), x.clamp(0, 1), torch.maximum(x, y), x.sign()),
    "in place": lambda: x.clone().add_(1).mul_(y).relu_().sigmoid_().masked_fill_(x > 0, 0).sub_(y).div_(2).tanh_(),
    "rounding": lambda: (x.floor(), x.ceil(), x.round(), x.trunc(), x % 2, x // 2, torch.fmod(x, 2)),
    "trigonometry": lambda: (x.sin(), x.cos(), x.tan(), torch.atan2(x, y), x.erf(), x.sinh(), x.abs()),
    "fused arithmetic": lambda: (torch.addcmul(x, x, y), torch.addcdiv(x, x, y), torch.lerp(x, y, 0.5), x.logit(1e-6)),
    "integers": lambda: (places + 1, places * 2, places & 1, places << 1, ~mask, mask & mask, places // 2),
    "reductions": lambda: (
        x.sum(),
        x.mean(-1),
        x.max(-1),
        x.min(),
        x.amax(-1),
        x.argmax(-1),
        x.var(-1),
        x.std(),
        x.prod(),
    ),
    "norms of vectors": lambda: (
        x.norm(dim=-1),
        F.normalize(x, dim=-1),
        torch.linalg.vector_norm(x, 1),
        torch.dist(x, y),
    ),
    "running": lambda: (
        x.cumsum(-1),
        x.cumprod(-1),
        x.logsumexp(-1),
        x.softmax(-1),
        x.log_softmax(-1),
        F.softmin(x, -1),
    ),
    "ordering": lambda: (x.sort(-1), x.topk(2, -1), x.median(), torch.unique(x), torch.bincount(places)),
    "matrices": lambda: (x @ y.mT, x[0] @ y[0].T, x[0] @ row, row @ row, torch.addmm(row[:3], x[0], y[0].T)),
    "more matrices": lambda: (
        torch.baddbmm(torch.rand(2, 3, 3), x, y.mT),
        torch.addbmm(torch.rand(3, 3), x, y.mT),
        torch.addmv(row[:3], x[0], row),
        torch.addr(torch.rand(3, 4), row[:3], row),
        torch.outer(row, row),
        torch.vdot(row, row),
        torch.tensordot(x, y, 3),
        torch.inner(x[0], y[0]),
        torch.kron(x[0], y[0]),
        torch.linalg.multi_dot([x[0], y[0].T, x[0]]),
        torch.linalg.matrix_power(torch.rand(3, 3), 3),
    ),
    "einsum": lambda: (
        torch.einsum("bij,bkj->bik", x, y),
        torch.einsum("ij,ij->", x[0], y[0]),
        torch.einsum("i,j->ij", row, row),
        torch.einsum("bij->b", x),
        torch.einsum("bij,bij->bij", x, y),
        torch.einsum("bij,jk,bkl->bil", x, torch.rand(4, 5), torch.rand(2, 5, 2)),
    ),
    "linear": lambda: (
        F.linear(x, torch.rand(5, 4), torch.rand(5)),
        F.linear(x, torch.rand(5, 4)),
        F.linear(row, torch.rand(5, 4)),
    ),
    "bilinear": lambda: F.bilinear(torch.rand(2, 2), torch.rand(2, 3), torch.rand(2, 2, 3), torch.rand(2)),
    "convolution": lambda: (
        F.conv1d(x, torch.rand(2, 3, 2)),
        F.conv2d(image, torch.rand(3, 1, 3, 3), groups=3, padding="same"),
        F.conv3d(image[None], torch.rand(2, 2, 1, 2, 2)),
        F.conv_transpose2d(image, torch.rand(3, 2, 2, 2), torch.rand(2)),
        torch.conv_tbc(x, torch.rand(2, 4, 5), torch.rand(5)),
    ),
    "norms": lambda: (
        F.layer_norm(x, (4,), row, row),
        F.group_norm(x, 3),
        F.instance_norm(x),
        F.batch_norm(x, row[:3], row[:3]),
        F.rms_norm(x, (4,), row),
        F.local_response_norm(image, 2),
    ),
    "activations": lambda: [
        function(x)
        for function in (
            *(F.relu, F.relu6, F.elu, F.selu, F.celu, F.leaky_relu, F.gelu, F.silu, F.mish, F.softplus, F.hardtanh),
            *(F.hardswish, F.hardsigmoid, F.hardshrink, F.softshrink, F.tanhshrink, F.softsign, F.logsigmoid),
            *(torch.sigmoid, torch.tanh, F.glu, F.rrelu),
        )
    ],
    "more activations": lambda: (F.prelu(x, torch.ones(3)), F.threshold(x, 0, 1), F.gelu(x, approximate="tanh")),
    "pooling": lambda: (
        F.max_pool1d(x, 2),
        F.max_pool2d(image, 2),
        F.max_pool3d(image[None], 2),
        F.avg_pool1d(x, 2),
        F.avg_pool2d(image, 2),
        F.avg_pool3d(image[None], 2),
        F.adaptive_avg_pool1d(x, 2),
        F.adaptive_avg_pool2d(image, 4),
        F.adaptive_avg_pool3d(image[None], 2),
        F.adaptive_max_pool2d(image, 4),
        F.lp_pool2d(image, 2, 2),
        F.fractional_max_pool2d(image, 2, output_size=3),
    ),
    "interpolation": lambda: [
        F.interpolate(t, size=(8,) * (t.dim() - 2), mode=mode)
        for t, mode in (
            (x, "nearest"),
            (x, "linear"),
            (image, "nearest"),
            (image, "bilinear"),
            (image, "bicubic"),
            (image, "area"),
            (image, "nearest-exact"),
            (image[None], "trilinear"),
        )
    ],
    "sampling": lambda: (
        F.grid_sample(image, torch.zeros(2, 3, 3, 2), align_corners=False),
        F.affine_grid(torch.rand(1, 2, 3), [1, 1, 3, 3], align_corners=False),
    ),
    "padding": lambda: [F.pad(image, (1, 1, 1, 1), mode=m) for m in ("constant", "reflect", "replicate", "circular")],
    "rearranging": lambda: (
        torch.cat([x, y]),
        torch.stack([x, y]),
        x.repeat(2, 1, 1),
        x.repeat_interleave(2, 0),
        x.tile(2),
        x.roll(1),
        x.flip(0),
        x.rot90(),
        x.tril(),
        F.pixel_shuffle(torch.rand(1, 4, 2, 2), 2),
        F.channel_shuffle(torch.rand(1, 4, 2, 2), 2),
        F.unfold(image, 2),
        F.fold(torch.rand(1, 4, 4), (3, 3), 2),
        torch.diag_embed(row),
        torch.block_diag(x[0], y[0]),
    ),
    "views": lambda: (
        x.transpose(0, 1).reshape(-1),
        x.mT.contiguous(),
        x.chunk(2, -1),
        x.unbind(),
        x[:, 1:],
        x[..., None],
        x.unfold(-1, 2, 1),
        x.expand(5, 2, 3, 4),
        torch.broadcast_tensors(x, row),
        x.swapaxes(0, 1).flatten(1),
        x.to(torch.float64),
        x.half().float(),
        torch.atleast_2d(row),
        torch.meshgrid(places, places, indexing="ij"),
    ),
    "lookup": lambda: (
        F.embedding(places, x[0]),
        x[:, places],
        x[x > 0.5],
        x.gather(0, torch.zeros(1, 3, 4, dtype=torch.int64)),
        torch.take(x, places),
        x.take_along_dim(torch.zeros(2, 3, 1, dtype=torch.int64), -1),
        x.masked_select(x > 0.5),
        (x > 0.5).nonzero(),
        F.embedding_bag(places[None], x[0]),
    ),
    "writing": lambda: (
        _cache(),
        x.scatter(0, torch.zeros(1, 3, 4, dtype=torch.int64), y),
        x.index_fill(1, places, 0.0),
        torch.slice_scatter(x, y[:, :1], 1, 0, 1),
        x.scatter_reduce(0, torch.zeros(1, 3, 4, dtype=torch.int64), y, "amax"),
    ),
    "creation": lambda: (
        torch.zeros(2),
        torch.ones_like(x),
        torch.full((2,), 3.0),
        torch.arange(3),
        torch.linspace(0, 1, 3),
        torch.eye(3),
        torch.tensor(3.0),
        torch.rand(2),
        torch.randn_like(x),
        torch.randperm(3),
        torch.randint(3, (2,)),
        x.new_zeros(3),
        x.bernoulli(),
        torch.hann_window(4),
        torch.multinomial(row, 1),
    ),
    "questions": lambda: (x.sum().item(), bool((x > 0).all()), torch.equal(x, y), torch.isnan(x).any(), x.tolist()),
    "attention": lambda: (
        F.scaled_dot_product_attention(q, k, v),
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        F.scaled_dot_product_attention(q, q, q, is_causal=True),
        F.scaled_dot_product_attention(q[0], k[0], v[0]),
        F.scaled_dot_product_attention(q, k, torch.rand(1, 2, 5, 6)),
        (q @ k.mT / 2 + torch.zeros(3, 5)).softmax(-1) @ v,
    ),
    "rotary": lambda: _rotary(q),
    "graph": _message_passing,
    "routing": _routing,
    "distances": lambda: (torch.cdist(x, y), torch.cdist(x, y, p=1.0), F.pdist(x[0]), F.pairwise_distance(x, y)),
    "dropout": lambda: (F.dropout(x, training=False), F.dropout(x), F.dropout2d(image)),
    "losses": lambda: (
        F.mse_loss(x, y),
        F.l1_loss(x, y),
        F.smooth_l1_loss(x, y),
        F.huber_loss(x, y),
        F.cross_entropy(x[0], torch.tensor([1, 2, 0])),
        F.binary_cross_entropy_with_logits(x, y),
        F.binary_cross_entropy(x, y),
        F.kl_div(x, y, reduction="sum"),
        F.cosine_similarity(x, y),
        F.triplet_margin_loss(x, y, x),
    ),
}

#: What PyTorch computes in one operator whose arithmetic the conventions do not describe.
UNDESCRIBED: dict[str, Callable[[], Any]] = {
    "aten._fft_r2c": lambda: torch.fft.rfft(x),
    "aten._upsample_bilinear2d_aa": lambda: F.interpolate(image, size=8, mode="bilinear", antialias=True),
    "aten._linalg_svd": lambda: torch.linalg.svd(x[0]),
    "aten.linalg_inv_ex": lambda: torch.linalg.inv(torch.eye(3)),
    "aten.linalg_cholesky_ex": lambda: torch.linalg.cholesky(torch.eye(3)),
    "aten.linalg_cross": lambda: torch.linalg.cross(x[..., :3], y[..., :3]),
}


def _step(model: nn.Module, inputs: torch.Tensor, loss: Callable[[Any], torch.Tensor], **options: Any) -> None:
    optimizer = options.pop("optimizer")(model.parameters(), **options)
    optimizer.zero_grad()
    loss(model(inputs)).backward()
    optimizer.step()


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.LayerNorm(8),
        nn.GELU(),
        nn.Dropout(),
        nn.Linear(8, 8),
        nn.Tanh(),
        nn.Linear(8, 4),
    )


#: Training steps whose operators all have formulas.
TRAINING: dict[str, Callable[[], Any]] = {
    "image, SGD": lambda: _step(
        _network(),
        image,
        lambda out: F.cross_entropy(out, places),
        optimizer=torch.optim.SGD,
        lr=0.1,
        momentum=0.9,
        weight_decay=0.1,
    ),
    "image, fused AdamW": lambda: _step(
        _network(), image, lambda out: F.mse_loss(out, y[:, 0]), optimizer=torch.optim.AdamW, fused=True
    ),
    "image, Adam over lists": lambda: _step(
        _network(), image, lambda out: out.mean(), optimizer=torch.optim.Adam, foreach=True, amsgrad=True
    ),
    "encoder, RMSprop": lambda: _step(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2),
        x,
        lambda out: F.l1_loss(out, y),
        optimizer=torch.optim.RMSprop,
        foreach=True,
    ),
    "lookup, Adagrad": lambda: _step(
        nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LeakyReLU(), nn.Linear(4, 3), nn.ELU()),
        places,
        lambda out: F.nll_loss(out.log_softmax(-1), places),
        optimizer=torch.optim.Adagrad,
        foreach=False,
    ),
}
