"""Each setting of the engine reaches the command line, in the words that vLLM understands."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_configs import config, configs, merged, with_dflash

from glm53ctl.config.schema import Config, settings
from glm53ctl.plan import capture_sizes, plan_rank
from glm53ctl.plan.env import COMMON
from glm53ctl.plan.owned import flag_settings
from glm53ctl.plan.render import argument_lines


def flags(conf: Config) -> dict[str, Sequence[str]]:
    lines = argument_lines(plan_rank(conf, 0).argv)
    assert len({line[0] for line in lines}) == len(lines), "a flag is given twice"
    return {line[0]: line[1:] for line in lines}


def spec_of(conf: Config) -> Any:
    return json.loads(flags(conf)["--speculative-config"][0])


@given(configs)
def test_no_flag_is_given_twice(conf: Config) -> None:
    flags(conf.model_copy(update={"engine": conf.engine.model_copy(update={"extra_args": ()})}))


def test_a_setting_with_a_flag_is_carried_unchanged() -> None:
    given_flags = flags(config())
    assert given_flags["--max-model-len"] == ("900000",)
    assert given_flags["--gpu-memory-utilization"] == ("0.87",)
    assert given_flags["--kv-cache-dtype"] == ("fp8",)
    assert given_flags["--served-model-name"] == ("GLM-5.3-Flash-EXL3",)


def test_a_true_switch_is_bare_and_a_false_or_missing_value_is_left_out() -> None:
    assert flags(config(engine={"enforce_eager": True}))["--enforce-eager"] == ()
    assert "--enforce-eager" not in flags(config())
    assert "--kv-cache-memory-bytes" not in flags(config())
    assert "--chat-template" not in flags(config())


def test_bytes_and_share_of_memory_stand_together() -> None:
    """The bytes size the cache; the share stays vLLM's test of free memory before loading."""
    both = flags(config(kv={"bytes": 14 << 30}))
    assert both["--kv-cache-memory-bytes"] == ("15032385536",)
    assert both["--gpu-memory-utilization"] == ("0.87",)


def test_prefix_caching_is_said_either_way() -> None:
    assert "--enable-prefix-caching" in flags(config())
    assert "--no-enable-prefix-caching" in flags(config(serve={"prefix_caching": False}))


def test_dflash_names_the_draft_by_path_and_its_kv_type_always() -> None:
    conf = with_dflash(weights={"draft_dir": "/w/draft"})
    assert spec_of(conf) == {
        "method": "dflash",
        "model": "/w/draft",
        "num_speculative_tokens": 7,
        "kv_cache_dtype": "auto",
        "draft_sample_method": "probabilistic",
    }


def test_dflash_passes_on_what_was_said_of_the_draft() -> None:
    spec = {"draft_attention": "FLASH_ATTN", "draft_tensor_parallel_size": 2}
    assert spec_of(with_dflash(spec=spec)) == {
        **spec_of(with_dflash()),
        "attention_backend": "FLASH_ATTN",
        "draft_tensor_parallel_size": 2,
    }


def test_how_the_draft_picks_tokens_is_a_setting_of_dflash_alone() -> None:
    greedy = spec_of(with_dflash(spec={"draft_sample": "greedy"}))
    assert greedy["draft_sample_method"] == "greedy"
    assert "draft_sample_method" not in spec_of(config(spec={"method": "mtp"}))


def test_without_the_licence_of_the_draft_mtp_drafts_and_no_draft_is_named() -> None:
    assert spec_of(config()) == {"method": "mtp", "num_speculative_tokens": 2}


def test_no_speculation_is_no_flag() -> None:
    assert "--speculative-config" not in flags(config(spec={"method": "none", "tokens": None}))


@pytest.mark.parametrize(
    ("seqs", "drafted", "sizes"),
    [
        (4, 7, (1, 2, 4, 8, 16, 24, 32)),
        (4, 2, (1, 2, 3, 4, 6, 9, 12)),
        (4, 0, (1, 2, 3, 4)),
        (1, 0, (1,)),
        (1, 2, (1, 2, 3)),
    ],
)
def test_capture_sizes(seqs: int, drafted: int, sizes: tuple[int, ...]) -> None:
    assert capture_sizes(seqs, drafted) == sizes


@given(st.integers(1, 64), st.integers(0, 16))
def test_every_full_decode_step_has_its_graph(seqs: int, drafted: int) -> None:
    sizes = capture_sizes(seqs, drafted)
    assert {n * (drafted + 1) for n in range(1, seqs + 1)} <= set(sizes)
    assert sizes[0] == 1
    assert sizes[-1] == seqs * (drafted + 1)
    assert list(sizes) == sorted(set(sizes))


def test_graphs_follow_the_effective_speculation() -> None:
    assert flags(with_dflash())["--cudagraph-capture-sizes"][-1] == "32"
    assert flags(config())["--cudagraph-capture-sizes"][-1] == "12"
    assert "--cudagraph-capture-sizes" not in flags(config(engine={"enforce_eager": True}))
    assert "--cudagraph-capture-sizes" not in flags(config(engine={"platform": "cpu"}))


def test_media_limits() -> None:
    limits = flags(config("long"))
    assert json.loads(limits["--limit-mm-per-prompt"][0]) == {"image": 50, "video": 4}
    assert json.loads(limits["--media-io-kwargs"][0]) == {"video": {"max_frames": 128}}
    assert limits["--skip-mm-profiling"] == ()
    assert "--skip-mm-profiling" not in flags(config(media={"skip_profiling": False}))


def test_media_off_is_text_only() -> None:
    text_only = flags(config(media={"enable": False}))
    assert "--language-model-only" in text_only
    assert "--limit-mm-per-prompt" not in text_only


@pytest.mark.parametrize(
    "media", [{}, {"urls": True}, {"urls": True, "url_domains": ["a.example"]}]
)
def test_the_engine_itself_fetches_from_nowhere(media: Any) -> None:
    assert flags(config(media=media))["--allowed-media-domains"] == ("invalid.localhost",)


def test_the_middleware_stands_before_every_engine() -> None:
    for profile in ("vllm-recipe", "long", "demo"):
        given = flags(config(profile))["--middleware"]
        assert given == ("glm53_overlay.api.middleware.Middleware",)


def test_tools_need_their_parser() -> None:
    assert flags(config())["--tool-call-parser"] == ("glm47",)
    assert "--enable-auto-tool-choice" in flags(config())
    assert "--enable-auto-tool-choice" not in flags(config(thinking={"tool_parser": None}))


@pytest.mark.parametrize(
    ("thinking", "kwargs"),
    [
        ({"default_effort": "high"}, {"reasoning_effort": "high", "enable_thinking": True}),
        # The checkpoint's own template always thinks; `none` would be its longest.
        (
            {"default_effort": "none", "template": "checkpoint"},
            {"reasoning_effort": "low", "enable_thinking": True},
        ),
        (
            {"default_effort": "none"},
            {"reasoning_effort": "none", "enable_thinking": False},
        ),
    ],
)
def test_default_effort(thinking: Any, kwargs: Any) -> None:
    value = flags(config(thinking=thinking))["--default-chat-template-kwargs"][0]
    assert json.loads(value) == kwargs


def test_efforts_are_mapped_for_the_checkpoints_template_only() -> None:
    checkpoint = {"template": "checkpoint"}
    stock = json.loads(flags(config(thinking=checkpoint))["--reasoning-effort-map"][0])
    assert stock == {"none": "low", "minimal": "low", "medium": "high", "xhigh": "max"}
    assert "--reasoning-effort-map" not in flags(config(thinking={"chat_template": "/t.jinja"}))
    assert "--reasoning-effort-map" not in flags(config())
    assert "--reasoning-effort-map" not in flags(config("demo"))
    assert "--default-chat-template-kwargs" not in flags(config())


def test_platforms() -> None:
    cuda, cpu = flags(config()), flags(config("demo"))
    assert cuda["--sparse-indexer-topk-backend"] == ("per_row",)
    assert "--disable-flashinfer-autotune" in cuda
    assert "--disable-custom-all-reduce" not in cuda
    assert "--disable-custom-all-reduce" in cpu
    assert "--disable-flashinfer-autotune" not in cpu
    assert "--sparse-indexer-topk-backend" not in cpu


NOT_THE_ENGINES = {
    "profile",
    "engine.verify_overlay",  # done before there is an engine
    "fabric.link_port",
    "fabric.rails",  # decides which devices are found; those are passed
    "link",
    "weights.source",
    "weights.repo",
    "weights.revision",
    "weights.fallback_repo",
    "weights.fallback_revision",
    "weights.draft_repo",
    "weights.draft_revision",
    "weights.token_file",
    "weights.streams",
    "weights.stall_seconds",
    "weights.reserve_gib",
    "weights.sync_port",
    "weights.sync_mb_per_second",
    "serve.tensor_parallel_size",  # only the number of nodes is allowed, and that is passed
    "spec.force_tokens",
    "api.open",
    "memory",
    "power",
    "watchdog",
    "supervise",
    "canary",
    "warmup",
    "page",
}
IN_EVERY_PLAN = {
    "nodes",
    "engine.extra_args",
    "engine.extra_env",
    "weights.model_dir",
    "api.key_file",
}


def test_every_setting_of_the_engine_is_carried() -> None:
    """A new setting must be carried, or be said here to be none of the engine's."""
    carried = {path for paths in flag_settings().values() for path in paths} | IN_EVERY_PLAN
    carried |= {path for variable in COMMON for path in variable.settings}
    for setting in settings(Config):
        section = setting.path.split(".")[0]
        ours = not NOT_THE_ENGINES & {setting.path, section}
        assert (setting.path in carried) == ours or setting.path == "weights.token_file", (
            setting.path
        )


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"dtype": "bfloat16"}},
        {"engine": {"execute_timeout_seconds": 33}},
        {"engine": {"prefix": "/opt/other"}},
        {"engine": {"extra_env": {"A": "b"}}},
        {"serve": {"drain_seconds": 33}},
        {"serve": {"default_max_tokens": 33}},
        {"serve": {"pipeline_parallel_size": 2}},
        {"dense": "q4"},
        {"ablit": {"enable": True}},
        {"spec": {"tokens": 5}},
        {"spec": {"draft_kv_dtype": "fp8"}},
        {"weights": {"draft_dir": "/d"}},
        {"licenses": {"accept": []}},
        {"media": {"max_frames": 33}},
        {"media": {"cache_gib": 3.3}},
        {"media": {"video_pixels": 33}},
        {"thinking": {"parser": None}},
        {"api": {"key_file": "/k"}},
        {"api": {"port": 33}},
        {"fabric": {"nccl_debug": "INFO"}},
        {"paths": {"state_dir": "/s"}},
    ],
)
def test_changing_a_setting_changes_the_plan(change: dict[str, Any]) -> None:
    assert plan_rank(with_dflash(), 0) != plan_rank(with_dflash(**merged(change)), 0)
