"""The plans of all profiles, judged by the argument parser of the installed vLLM.

The engine is the environment at GLM53_ENGINE, by default `.engine` in the repository. Profiles for
the Sparks are made for vLLM 0.33.0; what the 0.32.0 of the CPU engine does not know of them is
written down here, so that anything else it refuses is a surprise.
"""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.plan import RankPlan, check_argv, owned_flag, owned_flags, plan_rank
from glm53ctl.plan.argcheck import SCRIPT, engine_python
from glm53ctl.plan.options import OPTIONS
from glm53ctl.plan.owned import NEVER
from glm53ctl.plan.render import argument_lines

ROOT = Path(__file__).parents[2]
ENGINE = Path(os.environ.get("GLM53_ENGINE") or ROOT / ".engine").absolute()
UNKNOWN = {
    "0.32": {"--disable-flashinfer-autotune"},
    "0.33": set(),
}
"""Flags of the Spark profiles that a version of the engine does not know."""

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not (ENGINE / "bin/vllm").exists(), reason=f"no engine at {ENGINE}"),
]


def plan_of(profile: str, rank: int, tmp_path: Path, **engine: Any) -> RankPlan:
    tree: dict[str, Any] = {
        "profile": profile,
        "nodes": [{"name": f"n{n}", "address": f"10.0.0.{n + 1}"} for n in range(2)],
        "licenses": {"accept": ["CC-BY-NC-ND-4.0"]},
        "paths": {"state_dir": str(tmp_path)},
        **PROFILES[profile],  # type: ignore[index]
        # Arguments do not depend on it, and the CPU engine lacks the classes that it changes.
        "dense": "bf16",
    }
    tree["engine"] = {**tree.get("engine", {}), "prefix": str(ENGINE), **engine}
    return plan_rank(Config.model_validate(tree), rank)


def without(plan: RankPlan, flags: set[str]) -> RankPlan:
    lines = [line for line in argument_lines(plan.argv) if line[0] not in flags]
    return replace(plan, argv=tuple(word for line in lines for word in line))


PROBE = f"""
import importlib.util, json, os, sys
answer = os.fdopen(os.dup(1), "w"); os.dup2(2, 1)
spec = importlib.util.spec_from_file_location("parse", {str(SCRIPT)!r})
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
from dataclasses import fields
from vllm.config import SpeculativeConfig
from vllm.utils.argparse_utils import FlexibleArgumentParser
import vllm, vllm.envs
parser = module._cli_args().make_arg_parser(FlexibleArgumentParser())
json.dump({{
    "flags": list(parser._option_string_actions),
    "spec": [field.name for field in fields(SpeculativeConfig)],
    "env": list(vllm.envs.environment_variables),
    "version": [vllm.__version__],
}}, answer)
"""


@pytest.fixture(scope="module")
def engine_knows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the flags, the keys of the speculative JSON and the variables that vLLM knows."""
    plan = plan_of("demo", 0, tmp_path_factory.mktemp("engine"))
    command = [str(engine_python(plan)), "-P", "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    return {name: set(words) for name, words in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def unknown(engine_knows: dict[str, set[str]]) -> set[str]:
    """Return the flags of the Spark profiles that this engine is too old for."""
    (version,) = engine_knows["version"]
    return UNKNOWN[version[:4]]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_demo_is_understood(rank: int, tmp_path: Path) -> None:
    plan = plan_of("demo", rank, tmp_path)
    values = check_argv(plan, os.environ).values
    assert values["model_tag"] == plan.argv[2]
    assert (values["nnodes"], values["node_rank"], values["tensor_parallel_size"]) == (2, rank, 2)
    assert values["headless"] == (rank == 1)
    assert values["kv_cache_memory_bytes"] == 33554432
    assert values["enable_prefix_caching"] is True
    assert values["disable_custom_all_reduce"] is True
    assert values["language_model_only"] is True


@pytest.mark.parametrize(("profile", "rank"), [("vllm-recipe", 0), ("long", 1)])
def test_a_spark_profile_is_understood_but_for_what_is_newer(
    profile: str, rank: int, unknown: set[str], tmp_path: Path
) -> None:
    parsed = check_argv(without(plan_of(profile, rank, tmp_path), unknown), os.environ)
    values = parsed.values
    media: Any = PROFILES[profile]["media"]  # type: ignore[index]
    assert values["limit_mm_per_prompt"] == {"image": media["images"], "video": media["videos"]}
    assert values["media_io_kwargs"] == {"video": {"max_frames": 128}}
    assert values["allowed_media_domains"] == ["invalid.localhost"]
    assert values["cudagraph_capture_sizes"] == [1, 2, 4, 8, 16, 24, 32]
    assert values["kv_cache_dtype"] == "fp8"
    assert values["gpu_memory_utilization"] == 0.87
    assert values["sparse_indexer_topk_backend"] == "per_row"
    assert values["speculative_config"] == {
        "method": "dflash",
        "num_speculative_tokens": 7,
        "model": "/var/lib/glm53/weights/draft",
        "kv_cache_dtype": "auto",
        "draft_sample_method": "probabilistic",
    }
    if not unknown:
        assert values["enable_flashinfer_autotune"] is False


def test_what_is_newer_is_refused_by_name_and_nothing_else(
    unknown: set[str], tmp_path: Path
) -> None:
    if not unknown:
        pytest.skip("this engine knows every flag")
    with pytest.raises(UserError, match=r"PLAN_ARGV: .*unrecognized arguments: ") as refused:
        check_argv(plan_of("vllm-recipe", 0, tmp_path), os.environ)
    words = refused.value.message.partition("unrecognized arguments: ")[2]
    assert set(re.findall(r"--[a-z-]+", words)) == unknown


def test_the_engine_refuses_in_its_own_words(tmp_path: Path) -> None:
    plan = plan_of("demo", 0, tmp_path, extra_args=("--enable-log-outputs",))
    sentence = "--enable-log-outputs requires --enable-log-requests"
    with pytest.raises(UserError, match=f"PLAN_ARGV: .*{sentence}"):
        check_argv(plan, os.environ)


def test_no_flag_is_taken_for_the_abbreviation_of_an_owned_one(
    engine_knows: dict[str, set[str]],
) -> None:
    """`owned_flag` reads abbreviations as the parser does; a whole flag is none."""
    for flag in engine_knows["flags"]:
        meant = owned_flag(flag)
        spelled = {flag, "--" + flag.removeprefix("--no-")}
        assert meant is None or meant in spelled, f"{flag} is read as {meant}"


def test_the_keys_of_the_speculative_json_exist(engine_knows: dict[str, set[str]]) -> None:
    keys = {
        "method",
        "model",
        "num_speculative_tokens",
        "kv_cache_dtype",
        "attention_backend",
        "draft_sample_method",
        "draft_tensor_parallel_size",
    }
    assert keys <= engine_knows["spec"]


def test_vllm_reads_the_variables_that_carry_its_name(
    engine_knows: dict[str, set[str]], tmp_path: Path
) -> None:
    plan = plan_of("demo", 0, tmp_path)
    ours = {name for name in {*plan.env, *plan.secret_env} if name.startswith("VLLM_")}
    assert ours <= engine_knows["env"]


def test_flags_that_are_never_let_through_exist(engine_knows: dict[str, set[str]]) -> None:
    assert set(NEVER) <= engine_knows["flags"]
    derived = {flag for option in OPTIONS for flag in option.flags}
    assert derived - engine_knows["flags"] <= UNKNOWN["0.32"] | {"--reasoning-effort-map"}
    assert derived <= owned_flags()
