"""Padded queries through the kernel with RoPE are the native ones: the mathematics, on a CPU.

The row is vLLM's: 512 latents in fp8 with four fp32 scales (528 bytes), then 64 RoPE values in
bf16 that the writer leaves zero (656 bytes). The kernels themselves are unproven on GB10.
"""

import pytest
import torch

from glm53_overlay import nope
from glm53_overlay.errors import OverlayError

LATENT, ROPE, SCALES, ROW = 512, 64, 4, 656


def rows(count, generator):
    """Written as vLLM writes them: uint8 [count, 656]."""
    latents = torch.randn(count, SCALES, LATENT // SCALES, generator=generator)
    scales = latents.abs().amax(-1) / 448
    packed = (latents / scales[..., None]).to(torch.float8_e4m3fn).flatten(1).view(torch.uint8)
    made = torch.zeros(count, ROW, dtype=torch.uint8)
    made[:, :LATENT] = packed
    made[:, LATENT : LATENT + 4 * SCALES] = scales.contiguous().view(torch.uint8)
    return made


def read(cache, rope):
    """Keys [count, 512 or 576] and values [count, 512] of a cache, fp64."""
    scales = cache[:, LATENT : LATENT + 4 * SCALES].contiguous().view(torch.float32)
    latents = cache[:, :LATENT].contiguous().view(torch.float8_e4m3fn).double()
    values = (latents.unflatten(1, (SCALES, -1)) * scales[..., None]).flatten(1)
    tail = cache[:, LATENT + 4 * SCALES :].contiguous().view(torch.bfloat16).double()
    return torch.cat((values, tail), 1) if rope else values, values


def attend(query, cache, chosen, scale, rope):
    keys, values = read(cache, rope)
    scores = torch.einsum("thd,td...->th...", query.double(), keys[chosen].transpose(1, 2)) * scale
    return torch.einsum("thn,tnd->thd", scores.softmax(-1), values[chosen])


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(5)
    query = torch.randn(3, 8, LATENT, generator=generator).bfloat16()
    cache = rows(200, generator)
    chosen = torch.stack([torch.randperm(200, generator=generator)[:64] for _ in range(3)])
    return query, cache, chosen


def test_padding_changes_neither_scores_nor_values(case):
    query, cache, chosen = case
    native = attend(query, cache, chosen, 256**-0.5, rope=False)
    padded = attend(nope.padded(query), cache, chosen, 256**-0.5, rope=True)
    torch.testing.assert_close(padded, native, rtol=1e-12, atol=1e-12)


def test_the_comparison_would_see_rope_values_that_are_not_zero(case):
    query, cache, chosen = case
    native = attend(query, cache, chosen, 256**-0.5, rope=False)
    cache[:, LATENT + 4 * SCALES :] = torch.randn(len(cache), ROPE).bfloat16().view(torch.uint8)
    same = attend(nope.padded(query), cache, chosen, 256**-0.5, rope=True)
    torch.testing.assert_close(same, native, rtol=1e-12, atol=1e-12)  # zeros of the query do
    other = torch.nn.functional.pad(query, (0, ROPE), value=1.0)
    assert not torch.allclose(attend(other, cache, chosen, 256**-0.5, rope=True), native)


class Backend:
    """Stands in for vLLM's, which imports on a GPU only: it shows what its kernel is given."""

    qk_rope_head_dim = 0

    def _run_mqa_kernel(self, q, kv_cache, topk_indices_physical):
        return q, self.qk_rope_head_dim, kv_cache, topk_indices_physical


def test_the_kernel_is_called_with_the_other_geometry():
    made = type("Made", (Backend,), {})
    nope.wrap(made)
    nope.wrap(made)  # a second call of the plugin
    backend = made()
    query, rope, cache, topk = backend._run_mqa_kernel(torch.ones(2, 8, LATENT), "rows", "chosen")
    assert query.shape == (2, 8, LATENT + ROPE)
    assert query[..., LATENT:].count_nonzero() == 0
    assert (rope, cache, topk) == (ROPE, "rows", "chosen")
    assert backend.qk_rope_head_dim == 0


@pytest.mark.parametrize(
    ("method", "says"),
    [(lambda self, q, rows: None, "calls it with"), (None, "has no FlashInferMLASparseSM120Impl")],
)
def test_another_backend_is_refused(method, says, monkeypatch):
    module = type("Module", (), {})
    if method is not None:
        module.FlashInferMLASparseSM120Impl = type("Impl", (), {"_run_mqa_kernel": method})
    monkeypatch.setattr(nope.importlib, "import_module", lambda name: module)
    with pytest.raises(OverlayError, match=f"NOPE_CONTRACT: .*{says}"):
        nope.install()
