"""The conventions' check vectors: FLOPs / MACs / DMAs, each with its arithmetic."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from native.layers_support import counts

ones = torch.ones

VECTORS = [
    # 6 dot products of 4 terms: 6*7, and 6 biases; 6*4; 12 + 10 + 6
    (lambda: nn.Linear(4, 2), [(3, 4)], (48, 24, 28)),
    # 6*7; 6*4; 12 + 8 + 6
    (lambda: nn.Linear(4, 2, bias=False), [(3, 4)], (42, 24, 26)),
    # t: 12 values of 2 terms 12*3, y: 4 values of 3 terms 4*5, 4 biases; 12*2 + 4*3; (4+12+12) + (12+6+2+4)
    (lambda: nn.Bilinear(2, 3, 2), [(2, 2), (2, 3)], (60, 36, 52)),
    # 36 + 20; 36; 28 + (12+6+4)
    (lambda: nn.Bilinear(2, 3, 2, bias=False), [(2, 2), (2, 3)], (56, 36, 50)),
    # 2*6*5 = 60 outputs of 2*3 terms: 60*11; 60*6; 56 + 36 + 60
    (lambda: nn.Conv1d(4, 6, 3, groups=2, bias=False), [(2, 4, 7)], (660, 360, 152)),
    # 4*17 + 4; 4*9; 16 + 10 + 4
    (lambda: nn.Conv2d(1, 1, 3), [(1, 1, 4, 4)], (72, 36, 30)),
    # 16*17 + 16; 16*9; 16 + 10 + 16
    (lambda: nn.Conv2d(1, 1, 3, padding=1), [(1, 1, 4, 4)], (288, 144, 42)),
    # out height (6+2-2-1)//2+1 = 3, width 5-2 = 3: 2*6*9 = 108 outputs of 2*6 = 12 terms: 108*23; 108*12;
    # 240 + 72 + 108
    (
        lambda: nn.Conv2d(4, 6, (2, 3), groups=2, stride=(2, 1), padding=(1, 0), dilation=(2, 1), bias=False),
        [(2, 4, 6, 5)],
        (2484, 1296, 420),
    ),
    # 2*8 = 16 outputs of 8 terms: 16*15 + 16; 16*8; 27 + 18 + 16
    (lambda: nn.Conv3d(1, 2, 2), [(1, 1, 3, 3, 3)], (256, 128, 61)),
    # 2 inputs * 2 taps = 4 products and 4 adds, 3 biases; 4; 2 + 3 + 3
    (lambda: nn.ConvTranspose1d(1, 1, 2), [(1, 1, 2)], (11, 4, 8)),
    # 24 inputs * 3 channels * 3 taps = 216: 432, out length (3-1)*2-2+2+1+1 = 6, 72 biases; 216; 24 + 42 + 72
    (
        lambda: nn.ConvTranspose1d(4, 6, 3, groups=2, stride=2, padding=1, output_padding=1),
        [(2, 4, 3)],
        (504, 216, 138),
    ),
    # 16 * 9 = 144: 288 + 36; 144; 16 + 10 + 36
    (lambda: nn.ConvTranspose2d(1, 1, 3), [(1, 1, 4, 4)], (324, 144, 62)),
    # 12 inputs * 2 channels * 6 taps = 144; out 5 x 5 * 4 = 100 biases: 288 + 100; 144; 12 + (24+4) + 100
    (
        lambda: nn.ConvTranspose2d(2, 4, (2, 3), groups=2, stride=2, padding=(0, 1), output_padding=(1, 0)),
        [(1, 2, 2, 3)],
        (388, 144, 140),
    ),
    # 16 inputs * 8 taps = 128: 256; 128; out (2-1)*2 + 2 + 1 = 5: 250; 16 + 16 + 250
    (
        lambda: nn.ConvTranspose3d(2, 2, 2, groups=2, stride=2, dilation=2, bias=False),
        [(1, 2, 2, 2, 2)],
        (256, 128, 282),
    ),
    # N=12, R=3: 72 + 6 + 24; 12*2; 48 + 15 + 1 + 24 + 8
    (lambda: nn.LayerNorm(4), [(1, 3, 4)], (102, 24, 96)),
    # 72 + 6 + 12; 24; 64 + 24 + 4
    (lambda: nn.LayerNorm(4, bias=False), [(1, 3, 4)], (90, 24, 92)),
    # 72 + 6; 12; 64
    (lambda: nn.LayerNorm(4, elementwise_affine=False), [(1, 3, 4)], (78, 12, 64)),
    # N=16, R=4: 96 + 8 + 32; 32; 64 + 20 + 1 + 32 + 8
    (lambda: nn.GroupNorm(2, 4), [(2, 4, 2)], (136, 32, 125)),
    # 96 + 8; 16; 85
    (lambda: nn.GroupNorm(2, 4, affine=False), [(2, 4, 2)], (104, 16, 85)),
    # N=16, R=2: 4*16 + 4; 32; 48 + 8 + 1 + 32 + 8
    (lambda: nn.RMSNorm((2, 4)), [(2, 2, 4)], (68, 32, 97)),
    # 3*16 + 4; 16; 57
    (lambda: nn.RMSNorm((2, 4), elementwise_affine=False), [(2, 2, 4)], (52, 16, 57)),
    # N=24, R=6: 144 + 12 + 48; 48; 96 + 30 + 1 + 48 + 6
    (lambda: nn.InstanceNorm1d(3, affine=True), [(2, 3, 4)], (204, 48, 181)),
    # N=24, C=3: 48 + 6 + 48; 24; 48 + 6 + 1 + 48 + 6
    (lambda: nn.BatchNorm1d(3), [(2, 3, 4)], (102, 24, 109)),
    # 48 + 6; 0; 55
    (lambda: nn.BatchNorm1d(3, affine=False), [(2, 3, 4)], (54, 0, 55)),
    # N=24, R=3: 144 + 6 + 48; 48; 96 + 15 + 1 + 48 + 6
    (lambda: nn.BatchNorm1d(3, track_running_stats=False), [(2, 3, 4)], (198, 48, 166)),
    # 8*1; 0; 8 + 8
    (lambda: nn.ReLU(), [(8,)], (8, 0, 16)),
    # the same, written over its input
    (lambda: nn.ReLU(inplace=True), [(8,)], (8, 0, 16)),
    # 8*4; 0; 8 + 1 + 8
    (lambda: nn.PReLU(), [(8,)], (32, 0, 17)),
    # 8*5; 0; 16
    (lambda: nn.GELU(), [(8,)], (40, 0, 16)),
    # 8*14; 0; 16
    (lambda: nn.GELU(approximate="tanh"), [(8,)], (112, 0, 16)),
    # 8*6; 0; 16, and 8*6, 8*4
    (lambda: nn.Tanh(), [(8,)], (48, 0, 16)),
    (lambda: nn.ELU(), [(8,)], (48, 0, 16)),
    (lambda: nn.LeakyReLU(), [(8,)], (32, 0, 16)),
    # 4 outputs * 5; 0; 8 + 4
    (lambda: nn.GLU(), [(2, 4)], (20, 0, 12)),
    # N=8, R=2: 40 - 4; 0; 64 + 8
    (lambda: nn.Softmax(-1), [(2, 4)], (36, 0, 72)),
    # 40 - 2; 0; 64 + 12
    (lambda: nn.LogSoftmax(-1), [(2, 4)], (38, 0, 76)),
    # 48 - 4; 0; 80 + 8
    (lambda: nn.Softmin(-1), [(2, 4)], (44, 0, 88)),
    # N=12, R=4 pixels of 3 channels: 60 - 8; 0; 96 + 16
    (lambda: nn.Softmax2d(), [(1, 3, 2, 2)], (52, 0, 112)),
    # 4*3; 0; 16 + 4
    (lambda: nn.MaxPool2d(2), [(1, 1, 4, 4)], (12, 0, 20)),
    # and 4 indices
    (lambda: nn.MaxPool2d(2, return_indices=True), [(1, 1, 4, 4)], (12, 0, 24)),
    # 4*4; 0; 20
    (lambda: nn.AvgPool2d(2), [(1, 1, 4, 4)], (16, 0, 20)),
    # windows visit 5+3-1 = 7 of each channel: 14 - 6; 0; 10 + 6
    (lambda: nn.AdaptiveMaxPool1d(3), [(1, 2, 5)], (8, 0, 16)),
    (lambda: nn.AdaptiveAvgPool1d(3), [(1, 2, 5)], (14, 0, 16)),
    # 7*7; 0; 25 + 9
    (lambda: nn.AdaptiveAvgPool2d(3), [(1, 1, 5, 5)], (49, 0, 34)),
    # T=2, B=1, I=2, H=3: 6*17; 30; (4+6+3+6) + 2*(21+9+3)
    (lambda: nn.RNN(2, 3), [(2, 1, 2)], (102, 30, 85)),
    # 6*72; 120; (4+24+12+24) + 2*(105+36+12)
    (lambda: nn.LSTM(2, 3), [(2, 1, 2)], (432, 120, 370)),
    # 6*52; 90; (4+18+9+18) + 2*(78+27+9)
    (lambda: nn.GRU(2, 3), [(2, 1, 2)], (312, 90, 277)),
    # 6*15; 30; 85 - 3 - 2*3
    (lambda: nn.RNN(2, 3, bias=False), [(2, 1, 2)], (90, 30, 76)),
    # 6*64; 120; 370 - 12 - 2*12
    (lambda: nn.LSTM(2, 3, bias=False), [(2, 1, 2)], (384, 120, 334)),
    # 6*46; 90; 277 - 9 - 2*9
    (lambda: nn.GRU(2, 3, bias=False), [(2, 1, 2)], (276, 90, 250)),
    # T=4, B=2, I=3, H=2, T*B*H = 16: 16*(2*5-1+2+6); 16*5; (24+6+2+16) + 4*(28+4+2)
    (lambda: nn.RNN(3, 2), [(4, 2, 3)], (272, 80, 184)),
    # relu costs 1 in place of 6: 272 - 16*5
    (lambda: nn.RNN(3, 2, nonlinearity="relu"), [(4, 2, 3)], (192, 80, 184)),
    # 16*(40+24+8); 4*80; (24+24+8+64) + 4*(140+16+8)
    (lambda: nn.LSTM(3, 2), [(4, 2, 3)], (1152, 320, 776)),
    # 16*(30+16+6); 3*80; (24+18+6+48) + 4*(104+12+6)
    (lambda: nn.GRU(3, 2), [(4, 2, 3)], (832, 240, 584)),
    # T*B*H=16: 16*(8*5+24+8) + 2*(2*2*7); 4*16*5 + 2*16; (12+48+16+64) + 2*((35*8-8+4)+32+16 + (8+8+4))
    (lambda: nn.LSTM(3, 4, proj_size=2), [(2, 2, 3)], (1208, 352, 828)),
    # kept 8 + written 12; cropped: 6 + 6
    (lambda: nn.ConstantPad1d((1, 0), 0.0), [(4, 2)], (0, 0, 20)),
    (lambda: nn.ConstantPad1d((-1, 0), 0.0), [(2, 4)], (0, 0, 12)),
    # 8 + 12
    (lambda: nn.ReflectionPad1d(1), [(2, 4)], (0, 0, 20)),
    # 9 + 4*4
    (lambda: nn.Unfold(2), [(1, 1, 3, 3)], (0, 0, 25)),
    # 16 entries land on 9 pixels: 16 - 9; 0; 16 + 9
    (lambda: nn.Fold((3, 3), 2), [(1, 4, 4)], (7, 0, 25)),
    # 16 + 16
    (lambda: nn.PixelShuffle(2), [(1, 4, 2, 2)], (0, 0, 32)),
    (lambda: nn.PixelUnshuffle(2), [(1, 1, 4, 4)], (0, 0, 32)),
    (lambda: nn.ChannelShuffle(2), [(1, 4, 2, 2)], (0, 0, 32)),
    # 4 + 16
    (lambda: nn.Upsample(size=4), [(1, 1, 2, 2)], (0, 0, 20)),
    # 16 outputs of 4 taps: 16*7; 16*4; 20
    (lambda: nn.Upsample(size=4, mode="bilinear"), [(1, 1, 2, 2)], (112, 64, 20)),
    # as AdaptiveAvgPool: 4*4
    (lambda: nn.Upsample(size=2, mode="area"), [(1, 1, 4, 4)], (16, 0, 20)),
    (lambda: nn.Identity(), [(8,)], (0, 0, 0)),
    (lambda: nn.Flatten(), [(2, 4)], (0, 0, 0)),
    (lambda: nn.Unflatten(1, (2, 2)), [(2, 4)], (0, 0, 0)),
    (lambda: nn.Dropout(), [(8,)], (0, 0, 0)),
]


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("index", range(len(VECTORS)))
def test_check_vector(index):
    build, shapes, expected = VECTORS[index]
    assert counts(build(), *(ones(shape) for shape in shapes)) == expected


def test_lookup_vectors():
    # 4 indices, rows of 4: 4 + 16 + 16
    assert counts(nn.Embedding(10, 4), ones(4, dtype=torch.long)) == (0, 0, 36)
    bag = ones((2, 3), dtype=torch.long)
    # 6 rows in 2 bags: 4 adds of 4; 6 + 24 + 8
    assert counts(nn.EmbeddingBag(10, 4, mode="sum"), bag) == (16, 0, 38)
    # and 2 divides of 4
    assert counts(nn.EmbeddingBag(10, 4, mode="mean"), bag) == (24, 0, 38)
    # 24 products more, 6 weights read
    weighted = counts(nn.EmbeddingBag(10, 4, mode="sum"), bag, per_sample_weights=ones(2, 3))
    assert weighted == (40, 24, 44)
    # 4 comparisons of 4
    assert counts(nn.EmbeddingBag(10, 4, mode="max"), bag) == (16, 0, 38)


# Cells are one step: T=1, B=2, I=3, H=2.
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        # 4 units*(2*5-1+2+6); 4*5; (6+6+2+4) + (28+4+2)
        (lambda: nn.RNNCell(3, 2), (68, 20, 52)),
        # 4*(2*5-1+2+1)
        (lambda: nn.RNNCell(3, 2, nonlinearity="relu"), (48, 20, 52)),
        # 4*(2*5-1+6); 20; 52 - 2 - 2
        (lambda: nn.RNNCell(3, 2, bias=False), (60, 20, 48)),
        # 4*(40+24+8); 4*20; (6+24+8+16) + (140+16+8)
        (lambda: nn.LSTMCell(3, 2), (288, 80, 218)),
        # 4*(30+16+6); 3*20; (6+18+6+12) + (104+12+6)
        (lambda: nn.GRUCell(3, 2), (208, 60, 164)),
    ],
)
def test_cells(build, expected):
    assert counts(build(), ones(2, 3)) == expected


def test_unbatched_cell():
    # 2 units*17; 2*5; (3+6+2+2) + (14+4+2)
    assert counts(nn.RNNCell(3, 2), ones(3)) == (34, 10, 33)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_users_reports():
    # 2*4*3 products of the first, 2*2*6 of the second: channels first although there is no batch
    assert counts(nn.Conv1d(1, 2, 3), ones(1, 6))[1] == 24
    assert counts(nn.Conv1d(2, 2, 3), ones(2, 4))[1] == 24
    # every one of 12 inputs meets 1 output channel * 4 taps, not every one of 16 outputs
    assert counts(nn.ConvTranspose2d(3, 1, 2, stride=2), ones(1, 3, 2, 2))[1] == 48
    # 5 inputs * 9 taps: the weight is (in, out, ...)
    assert counts(nn.ConvTranspose2d(5, 1, 3), ones(1, 5, 1, 1))[1] == 45
    # 36 squares and 36 weights; a bias adds none
    assert counts(nn.LayerNorm(6, bias=False), ones(2, 3, 6))[1] == 72
    assert counts(nn.LayerNorm(6), ones(2, 3, 6))[1] == 72
    # layer 0: 2 directions * 6*(3+2) = 60 a step and row; layer 1 receives 4: 2*6*(4+2) = 72; 8 cells
    gru = nn.GRU(3, 2, num_layers=2, bidirectional=True)
    assert counts(gru, ones(4, 2, 3))[1] == 132 * 8
    assert counts(gru, ones(8, 2, 3))[1] == 132 * 16
    # a cell 16*(3+2) = 80 and the projection 8, five steps
    assert counts(nn.LSTM(3, 4, proj_size=2, batch_first=True), ones(1, 5, 3))[1] == 440
