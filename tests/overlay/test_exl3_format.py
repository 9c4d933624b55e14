"""The format, held to facts that do not come from its own code."""

import math

import pytest
import torch
from torch import testing

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3 import format as exl3
from glm53_overlay.exl3.format import BLOCK, STATES, Spec

BITS = range(1, 9)
CODEBOOKS = ("3inst", "mcg", "mul1")


def trellis(rows: int, columns: int, bits: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, columns, 16 * bits)
    return torch.randint(-32768, 32768, shape, generator=generator).to(torch.int16)


# --- codebooks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codebook", "deviation"), [("3inst", 1.24372), ("mcg", 1.24412), ("mul1", 1.00032)]
)
def test_the_tables_have_the_published_deviation(codebook, deviation):
    table = exl3.codebook_table(codebook)
    assert table.dtype == torch.float16
    assert table.shape == (STATES,)
    assert float(table.double().std()) == pytest.approx(deviation, abs=1e-5)


def test_the_tables_have_the_published_number_of_values():
    assert len(exl3.codebook_table("mcg").unique()) == 10746
    assert len(exl3.codebook_table("mul1").unique()) == 913
    assert float(exl3.codebook_table("mcg").abs().max()) == pytest.approx(3.949, abs=1e-3)


@pytest.mark.parametrize("codebook", CODEBOOKS)
@pytest.mark.parametrize("window", [0, 1, 12345, 40000, 65535])
def test_a_value_is_what_the_formula_gives_by_hand(codebook, window):
    """The same arithmetic in Python's integers and struct, not in torch."""
    import struct

    def half(bits: int) -> float:
        return struct.unpack("<e", struct.pack("<H", bits))[0]

    if codebook == "mul1":
        product = window * 0x83DCD12D & 0xFFFFFFFF
        value = (1024 + sum(product.to_bytes(4, "little"))) * half(0x1EEE) + half(0xC931)
    else:
        factor, addend = (0xCBAC1FED, 0) if codebook == "mcg" else (89226354, 64248484)
        product = (window * factor + addend & 0xFFFFFFFF & 0x8FFF8FFF) ^ 0x3B603B60
        value = half(product & 0xFFFF) + half(product >> 16)
    rounded = struct.unpack("<e", struct.pack("<e", value))[0]
    assert float(exl3.codebook_table(codebook)[window]) == rounded


def test_the_marker_is_what_checkpoints_hold():
    assert exl3.marker("mcg") == -877912083
    assert exl3.marker("mul1") == 0x83DCD12D - (1 << 32)


# --- bits ----------------------------------------------------------------------------------------


def test_a_window_is_read_from_32_bit_words_high_bit_first():
    """By hand, for 4 bits: window t ends with bit 4(t+1) of a ring of 1,024 bits."""
    words = trellis(1, 1, 4)
    numbers = [int(word) & 0xFFFF for word in words.flatten()]
    stream = "".join(f"{numbers[i + 1]:016b}{numbers[i]:016b}" for i in range(0, len(numbers), 2))
    ring = stream * 2
    found = exl3.windows(words).flatten().tolist()
    for t in (0, 1, 2, 3, 100, 255):
        start = (4 * (t + 1) - 16) % 1024
        assert found[t] == int(ring[start : start + 16], 2), f"window {t}"


@pytest.mark.parametrize("bits", BITS)
def test_packing_what_was_read_gives_the_same_words(bits):
    words = trellis(3, 2, bits)
    testing.assert_close(exl3.pack(exl3.windows(words), bits), words, rtol=0, atol=0)


@pytest.mark.parametrize("bits", BITS)
def test_neighbours_overlap_around_the_ring(bits):
    windows = exl3.windows(trellis(2, 2, bits))
    following = windows.roll(-1, -1)
    assert torch.equal(windows & ((STATES >> bits) - 1), following >> bits)


def test_a_trellis_of_no_bit_width_is_refused():
    with pytest.raises(OverlayError, match="EXL3_SPEC: 24 words"):
        exl3.windows(torch.zeros(1, 1, 24, dtype=torch.int16))


def test_the_permutation_is_the_fragment_of_the_tensor_core():
    """Lane 0 holds rows 0, 1, 8, 9 of column 0, then of column 8; lane 1 rows 2, 3, 10, 11."""
    order = exl3.tile_permutation().tolist()
    assert sorted(order) == list(range(256))
    assert order[:8] == [0, 16, 128, 144, 8, 24, 136, 152]
    assert order[8:10] == [32, 48]
    assert order[32] == 1


def test_a_decoded_weight_lies_where_the_permutation_says():
    words = trellis(2, 3, 4)
    inner = exl3.decode(words, "mcg")
    assert inner.shape == (32, 48)
    values = exl3.codebook_table("mcg")[exl3.windows(words)]
    for t in (0, 5, 77, 255):
        row, column = divmod(int(exl3.tile_permutation()[t]), 16)
        assert inner[16 + row, 32 + column] == values[1, 2, t]


def test_encode_order_undoes_decoding():
    words = trellis(2, 3, 5)
    values = exl3.codebook_table("mul1")[exl3.windows(words)]
    assert torch.equal(exl3.encode_order(exl3.decode(words, "mul1")), values)


# --- transform and linear ------------------------------------------------------------------------


def test_the_hadamard_matrix_is_sylvesters_in_natural_order():
    h = exl3.hadamard(torch.eye(BLOCK))
    entry = 1 / math.sqrt(BLOCK)
    for i, j in ((0, 0), (1, 1), (3, 5), (127, 127), (64, 64)):
        assert h[i, j] == pytest.approx(entry * (-1) ** (i & j).bit_count())


def test_the_hadamard_transform_is_its_own_inverse_and_keeps_to_blocks():
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    testing.assert_close(exl3.hadamard(exl3.hadamard(x)), x)
    x[:, BLOCK:] = 0
    assert not exl3.hadamard(x)[:, BLOCK:].any()


@pytest.mark.parametrize("codebook", CODEBOOKS)
@pytest.mark.parametrize("bits", [2, 4, 7])
def test_a_linear_layer_is_a_product_with_the_unpacked_weight(codebook, bits):
    generator = torch.Generator().manual_seed(bits)
    words = trellis(16, 8, bits)
    suh = torch.randn(256, generator=generator).half()
    svh = torch.randn(128, generator=generator).half()
    x = torch.randn(5, 256, generator=generator)
    w = exl3.dequantize(words, suh, svh, codebook)
    assert w.shape == (256, 128)
    testing.assert_close(exl3.linear(x, words, suh, svh, codebook), x @ w, rtol=1e-4, atol=1e-3)


def test_the_scales_of_inputs_and_outputs_scale_rows_and_columns():
    words = trellis(8, 8, 4)
    one = torch.ones(128).half()
    plain = exl3.dequantize(words, one, one, "mcg")
    by_row = exl3.dequantize(words, one * 2, one, "mcg")
    row_zero = torch.cat([torch.zeros(1), torch.ones(127)]).half()
    testing.assert_close(by_row, plain * 2)
    assert not exl3.dequantize(words, row_zero, one, "mcg")[0].any()
    assert not exl3.dequantize(words, one, row_zero, "mcg")[:, 0].any()


def test_the_clamp_comes_before_the_activation():
    gate, up = torch.tensor([-20.0, 3.0, 50.0]), torch.tensor([50.0, -50.0, 1.0])
    found = exl3.swiglu(gate, up, 10.0)
    silu = torch.nn.functional.silu
    testing.assert_close(found, silu(torch.tensor([-20.0, 3.0, 10.0])) * torch.tensor([10, -10, 1]))
    testing.assert_close(exl3.swiglu(gate, up, 0.0), silu(gate) * up)


# --- specs ---------------------------------------------------------------------------------------


def test_a_spec_says_what_each_tensor_looks_like():
    tensors = Spec(4096, 2048, 4, "mcg").tensors
    assert tensors == {
        "trellis": (torch.int16, (256, 128, 64)),
        "suh": (torch.float16, (4096,)),
        "svh": (torch.float16, (2048,)),
        "mcg": (torch.int32, (1,)),
    }
    assert "mcg" not in Spec(4096, 2048, 4, "3inst").tensors


@pytest.mark.parametrize(
    ("k", "n", "bits", "codebook", "says"),
    [
        (192, 128, 4, "mcg", "192 inputs are not a multiple of 128"),
        (128, 200, 4, "mcg", "200 outputs"),
        (0, 128, 4, "mcg", "0 inputs"),
        (128, 128, 9, "mcg", "bits must be 1 to 8"),
        (128, 128, 0, "mcg", "bits must be 1 to 8"),
        (128, 128, 4, "qtip", "'qtip' is none of 3inst, mcg, mul1"),
    ],
)
def test_an_impossible_spec_is_refused(k, n, bits, codebook, says):
    with pytest.raises(OverlayError, match=f"EXL3_SPEC: .*{says}"):
        Spec(k, n, bits, codebook)
