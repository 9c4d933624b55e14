"""Every rule fires on its bad values, and stays silent on a good one."""

import pytest
from config_texts import VALID, given, pair

from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.rules import RULES, check, violations
from glm53ctl.config.sources import load


def env(text: str) -> str:
    return "engine.extra_env={" + text + "}"


def args(*words: str) -> str:
    return "engine.extra_args=[" + ", ".join(f'"{word}"' for word in words) + "]"


def nodes(*addresses: str, names: str = "abcd") -> str:
    items = ", ".join(
        f"{{name: {name}, address: {address}}}"
        for name, address in zip(names, addresses, strict=False)
    )
    return f"nodes=[{items}]"


BAD: list[tuple[str, list[str]]] = [
    ("moe-marlin", [args("--moe-backend", "marlin")]),
    ("moe-marlin", [args("--moe_backend=MARLIN")]),
    ("moe-marlin", [args("--moe-back", "marlin")]),
    ("moe-marlin", [args("--kernel-config.moe_backend", "marlin")]),
    ("moe-marlin", [args("--kernel-conf.moe-backend=Marlin")]),
    ("moe-marlin", [args("--kernel-config", "{'moe_backend': 'marlin'}")]),
    ("moe-marlin", [args("--kernel_config={'moe_backend': 'marlin'}")]),
    ("no-warmup", [args("--kernel-conf.enable_jit_warmup", "false")]),
    ("no-warmup", [args("--kernel-config", "{'enable_jit_warmup': false}")]),
    ("no-warmup", [args("--kernel_config.enable-jit-warmup=False")]),
    ("no-warmup", [args("--kernel-config.enable_jit_warmup", "false")]),
    ("target-kv", ["kv.dtype=bfloat16"]),
    ("target-kv", ["kv.dtype=nvfp4"]),
    ("target-kv", ["kv.dtype=auto"]),
    ("draft-triton", ["spec.draft_attention=TRITON_ATTN"]),
    ("draft-triton", ["spec.draft_attention=triton_attn"]),
    ("engine-triton", [args("--attention-backend", "TRITON_ATTN")]),
    ("engine-triton", [args("--atten", "TRITON_ATTN")]),
    ("engine-triton", [args("-ac.backend=TRITON_ATTN")]),
    ("env-triton", [env("VLLM_ATTENTION_BACKEND: TRITON_ATTN")]),
    ("draft-kv", ["spec.draft_kv_dtype=fp8"]),
    ("draft-kv", ["spec.draft_kv_dtype=bfloat16"]),
    ("batched-tokens", ["serve.max_num_batched_tokens=8192"]),
    ("batched-tokens", ["serve.max_num_batched_tokens=16384"]),
    ("batch-below-seqs", ["serve.max_num_batched_tokens=3"]),
    ("tensor-parallel", ["serve.tensor_parallel_size=1"]),
    ("pipeline", ["serve.pipeline_parallel_size=2"]),
    ("draft-tokens", ["spec.tokens=5"]),
    ("draft-block", ["spec.tokens=8", "spec.force_tokens=true"]),
    ("draft-parallel", ["spec.draft_tensor_parallel_size=1"]),
    ("ablit-direction", ["ablit.enable=true"]),
    ("ablit-direction", ["ablit.enable=true", "ablit.direction=dealign"]),
    ("ablit-size", ["ablit.enable=true", "ablit.hidden_size=5120"]),
    ("ablit-layers", ["ablit.layers=45-15"]),
    ("ablit-layers", ["ablit.layers=15-46"]),
    ("wildcard-no-key", ["api.host=0.0.0.0"]),
    ("wildcard-no-key", ["api.host='::'"]),
    ("wildcard-no-key", ["api.host='[::]'"]),
    ("wildcard-no-key", ["api.host='0.0'"]),
    ("wildcard-no-key", ["api.host='0'"]),
    ("wildcard-no-key", ["api.host='0x0'"]),
    ("wildcard-no-key", ["api.host='::ffff:0.0.0.0'"]),
    ("no-host", ["api.host=''", "api.open=true"]),
    ("no-host", ["api.host='*'", "api.key_file=/etc/glm53/api-key"]),
    ("lan-no-key", ["api.host=192.0.2.7"]),
    ("open", ["api.host=0.0.0.0", "api.open=true"]),
    ("loopback", []),
    ("host-in-brackets", ["api.host='[::1]'"]),
    ("media-profiling", ["media.skip_profiling=false"]),
    ("media-budget", ["media.images=104", "serve.max_model_len=850000"]),
    ("media-budget", ["media.request_image_tokens=8192", "serve.max_model_len=32000"]),
    ("media-hosts", ["media.urls=true"]),
    ("key-in-argv", [args("--api-key", "sk-EXAMPLE")]),
    ("key-in-argv", [args("--api_key=sk-EXAMPLE")]),
    *[
        ("owned-flag", [args(*words)])
        for words in (
            ("--node-rank", "1"),
            ("--nnodes", "2"),
            ("-n", "2"),
            ("--master-addr", "127.0.0.1"),
            ("--master-port=1",),
            ("--headless",),
            ("--host", "10.0.9.1"),
            ("--port", "1"),
            ("--tensor-parallel-size", "2"),
            ("-tp=2",),
            ("--kv-cache-dtype", "bfloat16"),
            ("--kv_cache_dtype=nvfp4",),
            ("--kv-cache-dt", "auto"),
            ("--speculative-config", "{}"),
            ("--speculative-config.method", "mtp"),
            ("--no-enforce-eager",),
            ("--max-model-len", "1"),
            ("--config", "x.yaml"),
            ("--data-parallel-size", "2"),
            ("-q", "awq"),
            ("-q=awq",),
            ("--quant", "awq"),
            ("--revis", "main"),
            ("--model-tag", "x"),
            ("--model-ta=x",),
            ("-dp2",),
            ("--data-parallel-si", "2"),
            ("--allowed-local-media", "/"),
            ("-sc", "{}"),
        )
    ],
    ("loose-words", [args("--seed 3")]),
    ("loose-words", [args("seed")]),
    *[
        ("owned-env", [env(f"{name}: x")])
        for name in (
            "VLLM_HOST_IP",
            "NCCL_SOCKET_IFNAME",
            "GLOO_SOCKET_IFNAME",
            "VLLM_API_KEY",
            "HF_HUB_OFFLINE",
            "VLLM_PLUGINS",
            "LD_PRELOAD",
            "GLM53_DENSE",
        )
    ],
    ("secret-env", [env("HF_TOKEN: x")]),
    ("secret-env", [env("AWS_SECRET_ACCESS_KEY: x")]),
    ("secret-env", [env("PROVIDER_API_KEYS: x")]),
    ("odd-env", [env("A-B: x")]),
    ("dev-mode", [env("VLLM_SERVER_DEV_MODE: 1")]),
    ("graph-sizes", [args("--cudagraph-capture-sizes", "1", "2", "4", "8", "16")]),
    ("graph-sizes", [args("-cc.cudagraph_capture_sizes=[1]")]),
    ("graph-sizes", [args("--compilation-config", "{'cudagraph_capture_sizes': [1, 8]}")]),
    ("graph-sizes", [args("--cudagraph-cap", "1", "2", "4", "8", "16")]),
    ("same-names", [nodes("10.0.9.1", "10.0.9.2", names="aA")]),
    ("same-addresses", [nodes("10.0.9.1", "10.0.9.1")]),
    ("loopback-master", [nodes("127.0.0.1", "10.0.9.2")]),
    ("loopback-worker", [nodes("10.0.9.1", "127.0.0.1")]),
    ("no-host-address", [nodes("0.0.0.0", "10.0.9.2")]),
    ("no-host-address", [nodes("10.0.9.1", "224.0.0.1")]),
    ("same-ports", ["fabric.link_port=29521"]),
    ("same-ports", ["api.port=29520"]),
    ("same-ports", ["weights.sync_port=29520"]),
    ("same-ports", ["weights.sync_port=29521"]),
    ("same-ports", ["page.port=8888"]),
    ("checkpoint-licence", ["licenses.accept=[CC-BY-NC-ND-4.0]"]),
    ("draft-licence", ["licenses.accept=[ShapleyMCG-1.0]"]),
    ("utilization", ["kv.gpu_memory_utilization=0.87"]),
    ("canary-window", ["serve.max_model_len=64"]),
    ("canary-short", ["canary.max_tokens=2"]),
    ("revisions", ["weights.revision=main"]),
    ("revisions", ["weights.fallback_revision=25a44fdb"]),
    ("revisions", ["weights.draft_revision=v1.0"]),
    ("secret-path", ["api.key_file=sk-EXAMPLE"]),
    ("secret-path", ["weights.token_file=token"]),
    ("beats", ["link.silence_grace_seconds=1"]),
    ("wedge-before-silence", ["supervise.wedge_seconds=30"]),
    ("step-before-stage", ["engine.execute_timeout_seconds=599"]),
    ("step-before-stage", ["engine.execute_timeout_seconds=239", "warmup.enable=false"]),
    ("step-before-stage", ["supervise.limits.warmup=3600"]),
    ("backoff", ["supervise.backoff_max_seconds=1"]),
    ("probe-before-silence", ["watchdog.probe_failures=1"]),
    ("memory-stages", ["watchdog.warn_gib=1"]),
    ("memory-order", ["memory.start_gib=1"]),
]

GOOD: dict[str, list[list[str]]] = {
    "moe-marlin": [
        [args("--moe-backend", "triton")],
        [args("--kernel-config.moe_backend", "triton")],
        [args("--model-impl", "marlin")],
    ],
    "no-warmup": [
        [args("--kernel-config", "{'enable_jit_warmup': true}")],
        [args("--kernel-config", "{'enable_flashinfer_autotune': false}")],
        ["engine.platform=cpu", args("--kernel-config.enable_jit_warmup", "false")],
    ],
    "target-kv": [["kv.dtype=fp8"], ["engine.platform=cpu", "kv.dtype=auto"]],
    "draft-triton": [["spec.draft_attention=FLASH_ATTN"]],
    "engine-triton": [[args("--attention-backend", "FLASHINFER")]],
    "batched-tokens": [["serve.max_num_batched_tokens=8191"]],
    "batch-below-seqs": [["serve.max_num_batched_tokens=4"]],
    "tensor-parallel": [["serve.tensor_parallel_size=2"]],
    "draft-tokens": [
        ["spec.tokens=5", "spec.force_tokens=true"],
        ["spec.tokens=2", "spec.method=mtp"],
    ],
    "draft-block": [["spec.tokens=3", "spec.force_tokens=true"]],
    "draft-parallel": [["spec.draft_tensor_parallel_size=2"]],
    "ablit-direction": [
        ["ablit.direction=dealign"],
        ["ablit.enable=true", "ablit.direction=/w/dealign.safetensors"],
    ],
    "ablit-size": [["ablit.hidden_size=5120"], ["ablit.enable=true"]],
    "wildcard-no-key": [
        ["api.host=0.0.0.0", "api.key_file=/etc/glm53/api-key"],
        ["api.host=0.0.0.0", "api.open=true"],
        ["api.host='::1'"],
        ["api.host=localhost"],
    ],
    "lan-no-key": [["api.host=192.0.2.7", "api.key_file=/etc/glm53/api-key"]],
    "open": [["api.open=true"]],
    "loopback": [["api.host=192.0.2.7"]],
    "media-profiling": [["media.skip_profiling=false", "media.enable=false"]],
    "media-budget": [
        ["media.images=103", "serve.max_model_len=850000"],
        ["media.images=500", "media.request_image_tokens=16384"],
        ["media.images=500", "media.enable=false"],
    ],
    "media-hosts": [["media.urls=true", "media.url_domains=[example.org]"]],
    "owned-flag": [
        [args("--seed", "-1")],
        [args("--chat-template-content-format", "openai")],
        [args("--reasoning-parser-plugin", "x.py")],
        [args("--quantization-config", "{}")],
        [args("--tokenizer-revision", "x")],
        [args("--compilation-config.mode", "3")],
    ],
    "loose-words": [[args("--override-generation-config={'a': 1}")]],
    "owned-env": [[env("NCCL_IB_TC: 106")]],
    "graph-sizes": [
        [args("--cudagraph-capture-sizes", "1", "8", "16", "24", "32")],
        [args("--cudagraph-capture-sizes", "3", "6"), "spec.method=mtp", "serve.max_num_seqs=2"],
    ],
    "same-ports": [
        ["page.port=8888", "page.enabled=false"],
        ["weights.sync_port=29520", "weights.source=local"],
    ],
    "no-host": [["api.host=0.0.0.0"], ["api.host=localhost"]],
    "revisions": [
        ["weights.revision=main", "weights.source=local"],
        ["weights.fallback_revision=null", "weights.fallback_repo=null"],
    ],
    "host-in-brackets": [["api.host='::1'"]],
    "same-addresses": [[nodes("127.0.0.1", "127.0.0.1")]],
    "loopback-master": [[nodes("127.0.0.1", "127.0.0.2")]],
    "checkpoint-licence": [["licenses.accept=[]", "weights.source=local"]],
    "draft-licence": [["licenses.accept=[ShapleyMCG-1.0]", "spec.method=mtp"]],
    "utilization": [["kv.bytes=15032385536"], ["kv.gpu_memory_utilization=0.86"]],
    "step-before-stage": [
        ["engine.execute_timeout_seconds=600"],
        ["engine.execute_timeout_seconds=240", "warmup.enable=false"],
    ],
    "dev-mode": [[env("VLLM_SERVER_DEV_MODE: 0")]],
}


def broken(*words: str) -> set[str]:
    return {rule.name for rule, _ in violations(pair(*words))}


@pytest.mark.parametrize(("name", "words"), BAD)
def test_a_forbidden_combination_is_found(name: str, words: list[str]) -> None:
    assert name in broken(*words)


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, cases in GOOD.items() for words in cases]
)
def test_an_allowed_combination_is_not(name: str, words: list[str]) -> None:
    assert name not in broken(*words)


def test_every_rule_has_a_bad_value_here() -> None:
    assert {name for name, _ in BAD} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_profiles_break_nothing() -> None:
    for profile in PROFILES:
        config = given(*VALID, f"profile={profile}").config
        assert [f for f in check(config) if f.severity == "fail"] == []
    demo = load(overrides=["profile=demo"], environ={}).config
    assert {f.code for f in check(demo)} == {"API_LOOPBACK"}


def test_profile_long_warns_of_its_share_of_memory_alone() -> None:
    """Its window fits, as `plan` computes, and its images share their tokens."""
    words = [*VALID, "profile=long"]
    found = {rule.name for rule, _ in violations(given(*words).config)}
    assert found == {"utilization", "loopback"}


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["kv.dtype=bfloat16"], "CFG_FORBIDDEN", ["bfloat16", "fp8"]),
        (["serve.max_num_batched_tokens=8192"], "CFG_FORBIDDEN", ["8192", "7168"]),
        ([args("--moe-backend", "marlin")], "CFG_FORBIDDEN", ["--moe-backend marlin"]),
        ([args("--cudagraph-capture-sizes", "8", "16")], "CFG_GRAPH_SIZES", ["24", "32"]),
        (["spec.draft_attention=TRITON_ATTN"], "CFG_FORBIDDEN", ["TRITON_ATTN", "draft"]),
        (["media.skip_profiling=false"], "CFG_FORBIDDEN", ["SKIP_MM_PROFILING"]),
        (
            ["media.images=200", "serve.max_model_len=850000"],
            "CFG_MM_BUDGET",
            ["200", "409600", "850000"],
        ),
        (["api.host=0.0.0.0"], "API_NO_KEY", ["0.0.0.0", "8888"]),
        ([args("--api-key", "sk-EXAMPLE")], "API_KEY_IN_ARGV", ["VLLM_API_KEY"]),
        ([nodes("127.0.0.1", "10.0.9.2")], "NET_MASTER_LOOPBACK", ["127.0.0.1"]),
        (["licenses.accept=[ShapleyMCG-1.0]"], "CFG_LICENSE", ["MTP", "nothing", "downloaded"]),
    ],
)
def test_a_finding_names_what_an_operator_looks_for(
    words: list[str], code: str, parts: list[str]
) -> None:
    found = [f.sentence() for f in check(pair(*words)) if f.code == code]
    assert any(all(part in sentence for part in parts) for sentence in found)


def test_no_finding_repeats_a_secret() -> None:
    secret = "sk-EXAMPLE"
    words = [
        args("--api-key", secret, f"--api-key {secret}", f"--hf-token={secret}"),
        env(f"HF_TOKEN: {secret}, VLLM_API_KEY: {secret}"),
        f"api.key_file={secret}",
    ]
    found = check(pair(*words))
    assert {"API_KEY_IN_ARGV", "CFG_FORBIDDEN"} <= {f.code for f in found}
    assert not [f for f in found if secret in f.sentence()]


def test_every_failure_says_what_to_do() -> None:
    assert [rule.name for rule in RULES if rule.severity != "ok" and not rule.fix] == []
