"""The engine's environment is the plan's, and little else."""

import json
from typing import Any

import pytest
from plan_configs import NODES, config

from glm53ctl.plan import engine_env, inherit, plan_rank


def env(profile: str = "vllm-recipe", /, rank: int = 0, **changes: Any) -> dict[str, str]:
    return dict(plan_rank(config(profile, **changes), rank).env)


def test_the_engine_is_offline_and_silent_about_itself() -> None:
    for profile in ("vllm-recipe", "demo"):
        assert env(profile).items() >= {
            ("HF_HUB_OFFLINE", "1"),
            ("TRANSFORMERS_OFFLINE", "1"),
            ("VLLM_NO_USAGE_STATS", "1"),
            ("DO_NOT_TRACK", "1"),
            ("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "0"),
            ("NO_COLOR", "1"),
            ("VLLM_PLUGINS", "glm53,glm53_api"),
        }


def test_timeouts() -> None:
    assert env()["VLLM_ENGINE_READY_TIMEOUT_S"] == "3600"
    timeout = env(engine={"execute_timeout_seconds": 45})["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"]
    assert timeout == "45"


def test_torch_grows_its_blocks_on_a_gpu_alone() -> None:
    assert env()["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in env("demo")
    connected = env(engine={"extra_args": ["--kv_transfer_config", "{}"]})
    assert "PYTORCH_CUDA_ALLOC_CONF" not in connected


def test_nccl_between_sparks() -> None:
    nccl = {name: value for name, value in env().items() if name.startswith("NCCL_")}
    assert nccl == {
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_ROCE_VERSION_NUM": "2",
        "NCCL_NET": "IB",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_CROSS_NIC": "0",
        "NCCL_IGNORE_CPU_AFFINITY": "1",
        "NCCL_DEBUG": "WARN",
        "NCCL_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0",
        "NCCL_IB_GID_INDEX": "3",
    }


def test_rails_that_nobody_named_are_left_to_nccl() -> None:
    worker = env(rank=1)
    assert "NCCL_IB_HCA" not in worker
    assert "NCCL_IB_GID_INDEX" not in worker


def test_gid_index_zero_is_a_choice() -> None:
    assert env(nodes=[{**NODES[0], "gid_index": 0}, NODES[1]])["NCCL_IB_GID_INDEX"] == "0"


@pytest.mark.parametrize(
    "nodes", [NODES[:1], [{"name": name, "address": "127.0.0.1"} for name in "ab"]]
)
def test_rdma_is_not_demanded_where_ranks_do_not_cross_a_cable(nodes: list[Any]) -> None:
    assert "NCCL_NET" not in env(nodes=nodes)
    assert "NCCL_IB_DISABLE" not in env(nodes=nodes)
    assert env(nodes=nodes)["NCCL_DEBUG"] == "WARN"


def test_cpu_ranks_talk_gloo_over_loopback() -> None:
    nodes = [{"name": f"n{n}", "address": "127.0.0.1", "cpus": str(n)} for n in range(2)]
    worker = env("demo", rank=1, nodes=nodes)
    assert worker["GLOO_SOCKET_IFNAME"] == "lo"
    assert worker["VLLM_HOST_IP"] == "127.0.0.1"
    assert worker["VLLM_CPU_OMP_THREADS_BIND"] == "1"
    assert not [name for name in worker if name.startswith("NCCL_")]


def test_cores_are_for_cpu_ranks_only() -> None:
    assert "VLLM_CPU_OMP_THREADS_BIND" not in env(nodes=[{**NODES[0], "cpus": "0"}, NODES[1]])


def test_the_fabric_device_is_configured_or_else_found() -> None:
    nodes = [{"name": "a", "address": "10.0.0.1"}, {**NODES[1]}]
    conf = config(nodes=nodes)
    assert "GLOO_SOCKET_IFNAME" not in plan_rank(conf, 0).env
    assert plan_rank(conf, 0, interface="cx7").env["GLOO_SOCKET_IFNAME"] == "cx7"
    assert plan_rank(conf, 0, interface="cx7").env["NCCL_SOCKET_IFNAME"] == "cx7"
    assert plan_rank(conf, 1, interface="cx7").env["GLOO_SOCKET_IFNAME"] == "enp1s0f1np1"


def test_compiled_kernels_of_one_engine_are_not_found_by_another() -> None:
    old, new = (env(engine={"prefix": prefix}) for prefix in ("/store/old", "/store/new"))
    assert old["XDG_CACHE_HOME"].startswith("/var/lib/glm53/cache/")
    caches = {name for name, value in old.items() if "/cache/" in value}
    assert caches >= {"XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"}
    assert all(old[name] != new[name] for name in caches)


def test_the_plugin_gets_what_vllm_has_no_flag_for() -> None:
    overlay = json.loads(env(dense="q4", serve={"default_max_tokens": 9})["GLM53_OVERLAY"])
    assert set(overlay) == {"ablit", "api", "dense", "nope", "suppress_stops"}
    assert (overlay["ablit"], overlay["nope"], overlay["suppress_stops"]) == (None, "native", True)
    assert set(overlay["dense"].values()) == {"q4"}
    assert overlay["api"].items() >= {
        ("default_max_tokens", 9),
        ("window", 900_000),
        ("max_active", 4 + 64),
        ("template", "appliance"),
        ("reasoning_field", "reasoning"),
        ("watchdog_report", "/run/glm53/watchdog.json"),
    }
    assert overlay["api"]["media"].items() >= {("images", 4), ("image_mib", 10), ("urls", False)}
    small = json.loads(env(media={"image_pixels": 9})["GLM53_OVERLAY"])["api"]["media"]
    assert (overlay["api"]["media"]["image_pixels"], small["image_pixels"]) == (50_000_000, 9)
    assert overlay["api"]["media"]["request_image_tokens"] is None
    long = json.loads(env("long")["GLM53_OVERLAY"])["api"]
    assert long["media"]["request_image_tokens"] == 16_384
    assert long["default_max_tokens"] == 32_768
    text_only = json.loads(env(media={"enable": False})["GLM53_OVERLAY"])["api"]["media"]
    assert (text_only["images"], text_only["videos"]) == (0, 0)
    own = json.loads(env(thinking={"chat_template": "/t.jinja"})["GLM53_OVERLAY"])["api"]
    assert own["template"] == "checkpoint"
    ablit = json.loads(
        env(ablit={"enable": True, "direction": "/d.safetensors", "alpha": 1.0})["GLM53_OVERLAY"]
    )["ablit"]
    assert ablit == {
        "direction": "/d.safetensors",
        "layers": "15-45",
        "alpha": 1.0,
        "include_mtp": True,
        "hidden_size": 4096,
    }


def test_a_4k_frame_is_decoded_and_what_a_request_keeps_is_bounded() -> None:
    frame, kept = "VLLM_MAX_IMAGE_PIXELS", "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES"
    assert (env()[frame], env()[kept]) == (str(3840 * 2160), str(2 << 30))
    assert env("long")[kept] == str(4 * 128 * 3 * 1920 * 1088)
    larger = env(media={"video_pixels": 7680 * 4320})
    assert (larger[frame], larger[kept]) == (str(7680 * 4320), env()[kept])
    assert env(media={"video_pixels": 1, "image_tokens": 100})[frame] == str(100 * 28 * 28)
    assert frame not in env("demo")


def test_extra_variables_do_not_replace_the_plans() -> None:
    conf = {"extra_env": {"HF_HUB_OFFLINE": "0", "VLLM_HOST_IP": "6.6.6.6", "MAX_JOBS": "4"}}
    merged = env(engine=conf)
    assert (merged["HF_HUB_OFFLINE"], merged["VLLM_HOST_IP"]) == ("1", "10.0.0.1")
    assert merged["MAX_JOBS"] == "4"


def test_inherited_is_a_short_list() -> None:
    kept = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "LC_ALL": "C", "CUDA_HOME": "/cuda"}
    dropped = {
        "NOTIFY_SOCKET": "/run/n",
        "CREDENTIALS_DIRECTORY": "/run/c",
        "HTTPS_PROXY": "http://p",
        "HF_TOKEN": "hf_x",
        "VLLM_API_KEY": "k",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "NCCL_IB_GID_INDEX": "",
        "PYTHONPATH": "/x",
        "LD_PRELOAD": "/x.so",
        "GLM53_DENSE": "q4",
    }
    assert inherit({**kept, **dropped}) == kept


def test_the_plan_wins_over_the_inherited_and_its_tools_come_first() -> None:
    plan = plan_rank(config(engine={"prefix": "/opt/e", "extra_env": {"LANG": "C.UTF-8"}}), 0)
    assert engine_env(plan, {"LANG": "C", "PATH": "/usr/bin"}).items() >= {
        ("LANG", "C.UTF-8"),
        ("PATH", "/opt/e/bin:/usr/bin"),
    }
    assert engine_env(plan, {})["PATH"] == "/opt/e/bin:/usr/local/bin:/usr/bin:/bin"


def test_a_group_of_dense_projections_may_be_of_another_type() -> None:
    settings = json.loads(env(dense="q4", dense_groups={"kda": "fp8"})["GLM53_OVERLAY"])
    assert settings["dense"] == {"kda": "fp8", "mla": "q4", "shared": "q4", "mlp": "q4"}
