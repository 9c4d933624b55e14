"""The demo checkpoint is the same everywhere, whole or absent, and cut as an engine expects."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from glm53ctl.demo.model import INDEX, SHARDS, digest_of, make_model
from glm53ctl.demo.shape import SHAPE
from glm53ctl.demo.streams import spread
from glm53ctl.errors import UserError

GOLDEN = "65946e1fc87044baec565e191286d3348737007d028a1c576a6ee5246f0dbb1f"
"""Of the whole folder, with the locked versions of tokenizers and safetensors. Tests that compare
answers with recorded ones depend on it: a change here is a change of the model."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("demo") / "model"
    make_model(target)
    return target


def test_every_byte_is_the_known_one(model: Path) -> None:
    assert digest_of(model) == GOLDEN


def test_random_numbers_do_not_depend_on_any_library() -> None:
    drawn = spread("a name", (3,), deviation=1.0)
    assert [f"{value:.6f}" for value in drawn] == ["-0.031160", "1.275278", "0.626975"]


def test_it_is_small_and_in_several_shards_with_a_complete_index(model: Path) -> None:
    index = json.loads((model / INDEX).read_text())
    shards = {path.name: load_file(path) for path in model.glob("*.safetensors")}
    assert len(shards) == SHARDS
    assert index["weight_map"] == {name: shard for shard in shards for name in shards[shard]}
    tensors = [tensor for shard in shards.values() for tensor in shard.values()]
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors)
    assert {tensor.dtype for tensor in tensors} == {np.dtype(np.float32)}
    assert sum(path.stat().st_size for path in model.iterdir()) < 10_000_000


def test_config_and_tensors_agree(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    tensors = {k: v for path in model.glob("*.safetensors") for k, v in load_file(path).items()}
    assert tensors["lm_head.weight"].shape == (config["vocab_size"], config["hidden_size"])
    experts = {name.split(".")[5] for name in tensors if ".mlp.experts." in name}
    assert len(experts) == config["n_routed_experts"]
    assert f"model.layers.{config['num_hidden_layers'] - 1}.self_attn.q_proj.bias" in tensors
    assert config["num_key_value_heads"] % 2 == 0
    assert SHAPE.expert_width % 2 == 0


def test_an_equal_model_is_not_touched(model: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in model.iterdir()}
    assert make_model(model) == digest_of(model)
    assert {path.name: path.stat().st_mtime_ns for path in model.iterdir()} == before


def test_a_damaged_model_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "model"
    digest = make_model(target)
    (target / "config.json").write_text("{}")
    (target / "tokenizer.json").unlink()
    assert make_model(target) == digest
    assert digest_of(target) == digest
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError) as refused:
        make_model(tmp_path)
    assert refused.value.code == "DEMO_TARGET"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as refused:
        make_model(tmp_path / "file/model")
    assert refused.value.code == "DEMO_MODEL"


def test_files_are_readable_by_the_engines_user(model: Path) -> None:
    assert {path.stat().st_mode & 0o444 for path in model.iterdir()} == {0o444}
