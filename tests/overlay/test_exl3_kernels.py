"""Which backend a device gets, and that kernels of another release are refused.

The extension here is a stand-in: functions with the signatures pybind11 writes into docstrings.
What the real kernels compute is tested on a GPU, in tests/gpu.
"""

from types import SimpleNamespace

import pytest
import torch

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3 import kernels
from glm53_overlay.exl3.experts import Experts, Projection
from glm53_overlay.exl3.reference import TorchBackend


def function(name: str, arguments: int):
    listed = ", ".join(f"arg{at}: torch.Tensor" for at in range(arguments))
    return SimpleNamespace(__doc__=f"{name}({listed}) -> None\n\n{name}\n")


def extension(**other: int) -> SimpleNamespace:
    wanted = kernels.ARGUMENTS | other
    return SimpleNamespace(**{name: function(name, count) for name, count in wanted.items()})


def experts() -> Experts:
    def projection(k: int, n: int) -> Projection:
        return Projection(
            torch.zeros(2, k // 16, n // 16, 64, dtype=torch.int16),
            torch.ones(2, k, dtype=torch.float16),
            torch.ones(2, n, dtype=torch.float16),
        )

    return Experts(projection(128, 256), projection(128, 256), projection(256, 128), 4, "mcg", 0.0)


def test_a_cpu_gets_the_reference():
    made = kernels.make_backend(experts(), torch.device("cpu"), max_tokens=8, top_k=2)
    assert isinstance(made, TorchBackend)


def test_the_extension_of_the_pinned_release_is_accepted():
    kernels.check_extension(extension())


@pytest.mark.parametrize("arguments", [29, 30, 34])
def test_kernels_of_another_release_are_refused(arguments):
    with pytest.raises(OverlayError, match=f"exl3_moe .* takes {arguments} arguments and not 35"):
        kernels.check_extension(extension(exl3_moe=arguments))


def test_a_missing_kernel_is_named():
    lacking = extension()
    del lacking.exl3_moe_coop
    with pytest.raises(OverlayError, match="no function exl3_moe_coop"):
        kernels.check_extension(lacking)


def test_each_address_is_that_of_the_expert():
    projection = experts().down
    trellis, suh, svh = kernels.addresses(projection)
    for table, stack in ((trellis, projection.trellis), (suh, projection.suh)):
        assert table.tolist() == [part.data_ptr() for part in stack]
    assert svh.dtype == torch.int64


def test_tensors_that_are_not_contiguous_are_refused():
    whole = experts().down
    cut = Projection(whole.trellis[:, :, :4], whole.suh, whole.svh)
    with pytest.raises(OverlayError, match="contiguous"):
        kernels.addresses(cut)
