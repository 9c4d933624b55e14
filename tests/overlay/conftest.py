"""These tests run in the engine's Python (`make overlay-test`); elsewhere there is no torch."""

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import torch

    # The tensors are small: on a busy machine, threads that wait for each other cost minutes.
    torch.set_num_threads(1)

    @pytest.fixture(scope="session")
    def tiny_glm4(tmp_path_factory):
        """The tiny Glm4Moe checkpoint and its twin, in `exl3` and `dense` below this folder."""
        return _tiny(tmp_path_factory, "glm4_moe")

    @pytest.fixture(scope="session")
    def tiny_glm5(tmp_path_factory):
        """The same in the layout of Glm5Next."""
        return _tiny(tmp_path_factory, "glm5_next_text")

    def _tiny(factory, layout):
        from glm53_overlay.exl3 import tiny

        folder = factory.mktemp(layout)
        tiny.write(folder, layout)
        return folder
