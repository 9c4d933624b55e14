"""A broken checkpoint is refused while vLLM loads it, by layer, expert and tensor."""

import pytest
from corruptions import CORRUPTIONS, MTP_LAYER, Corruption, corrupt, refusal


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_broken_checkpoint_is_refused(name, tiny_glm4, tmp_path):
    corruption = CORRUPTIONS[name]
    corrupt(tiny_glm4 / "exl3", tmp_path / "broken", corruption)
    said = refusal(tmp_path / "broken", draft=corruption.layer == MTP_LAYER)
    for word in corruption.words:
        assert word in said


@pytest.mark.parametrize("draft", [False, True])
def test_the_whole_one_is_not(draft, tiny_glm4):
    assert refusal(tiny_glm4 / "exl3", draft=draft) == ""


def test_all_twelve_tensors_of_an_expert_are_missed(tiny_glm4, tmp_path):
    from dataclasses import replace

    def remove_expert(tensors, name):
        prefix = name.rpartition("gate_proj")[0]
        for found in [n for n in tensors if n.startswith(prefix)]:
            del tensors[found]

    corruption = replace(CORRUPTIONS["trellis missing"], change=remove_expert)
    corrupt(tiny_glm4 / "exl3", tmp_path / "broken", corruption)
    said = refusal(tmp_path / "broken", draft=False)
    assert "expert 5, gate_proj.trellis is missing, and so are 11 more of 96" in said


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (("layers.1.self_attn.o_proj.weight",), "self_attn.o_proj.weight (vLLM's name) is missing"),
        (("lm_head.weight", "model.norm.weight"), "in the checkpoint, and so are 1 more."),
    ],
)
def test_a_native_tensor_that_is_missing_is_told(gone, said, tiny_glm4, tmp_path):
    """vLLM looks for them only in models that are not quantised."""

    def remove_native(tensors, _):
        for name in [name for name in tensors if name.endswith(gone)]:
            del tensors[name]

    corrupt(tiny_glm4 / "exl3", tmp_path / "broken", Corruption("", remove_native, ""))
    found = refusal(tmp_path / "broken", draft=False)
    assert found.startswith("EXL3_MISSING: ")
    assert said in found
