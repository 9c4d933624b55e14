"""Ranks are one engine: they may differ in exactly what makes them ranks."""

import pytest
from hypothesis import given
from plan_configs import NODES, config, configs

from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.plan import RankPlan, plan_pair, plan_rank
from glm53ctl.plan.render import argument_lines

MAY_DIFFER_FLAGS = {"--node-rank", "--headless", "--host", "--port"}
MAY_DIFFER_ENV = {
    "VLLM_HOST_IP",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "VLLM_CPU_OMP_THREADS_BIND",
}


def shared_argv(plan: RankPlan) -> list[tuple[str, ...]]:
    return [line for line in argument_lines(plan.argv) if line[0] not in MAY_DIFFER_FLAGS]


def shared_env(plan: RankPlan) -> dict[str, str]:
    return {name: value for name, value in plan.env.items() if name not in MAY_DIFFER_ENV}


def own_flags(plan: RankPlan) -> set[str]:
    return {line[0] for line in argument_lines(plan.argv)} & MAY_DIFFER_FLAGS


def assert_one_engine(plans: tuple[RankPlan, ...]) -> None:
    head, *others = plans
    assert own_flags(head) == {"--node-rank", "--host", "--port"}
    for plan in others:
        assert shared_argv(plan) == shared_argv(head)
        assert shared_env(plan) == shared_env(head)
        assert own_flags(plan) == {"--node-rank", "--headless"}
        assert dict(plan.secret_env) == {}
        assert (plan.base_url, plan.health_url, plan.metrics_url) == (None, None, None)
    assert list(head.secret_env) == ["VLLM_API_KEY"]


@pytest.mark.parametrize("profile", list(PROFILES))
def test_ranks_differ_in_nothing_but_their_place(profile: str) -> None:
    plans = plan_pair(config(profile))
    assert len(plans) == 2
    assert_one_engine(plans)


@given(configs)
def test_ranks_of_any_configuration_differ_in_nothing_but_their_place(conf: Config) -> None:
    plans = plan_pair(conf)
    assert_one_engine(plans)
    assert [plan.rank for plan in plans] == list(range(conf.world_size))
    assert [plan.node for plan in plans] == [node.name for node in conf.nodes]


@given(configs)
def test_every_value_is_text_and_no_variable_is_empty(conf: Config) -> None:
    for plan in plan_pair(conf):
        assert all(isinstance(word, str) and word for word in plan.argv)
        assert all(isinstance(value, str) and value for value in plan.env.values())


def test_command_line_starts_with_the_engine_and_a_path() -> None:
    conf = config(engine={"prefix": "/opt/e"}, weights={"model_dir": "/w/model"})
    assert plan_rank(conf, 1).argv[:3] == ("/opt/e/bin/vllm", "serve", "/w/model")


def test_extra_arguments_come_last_on_every_rank() -> None:
    conf = config(engine={"extra_args": ["--seed", "7"]})
    assert all(plan.argv[-2:] == ("--seed", "7") for plan in plan_pair(conf))


def test_the_head_is_where_ranks_meet() -> None:
    argv = plan_rank(config(), 1).argv
    assert argv[argv.index("--master-addr") + 1] == "10.0.0.1"
    assert argv[argv.index("--master-port") + 1] == "29521"
    assert argv[argv.index("--nnodes") + 1] == "2"
    assert argv[argv.index("--tensor-parallel-size") + 1] == "2"
    assert argv[argv.index("--node-rank") + 1] == "1"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8888"),
        ("0.0.0.0", "http://127.0.0.1:8888"),
        ("0.0", "http://127.0.0.1:8888"),
        ("::ffff:0.0.0.0", "http://127.0.0.1:8888"),
        ("::", "http://[::1]:8888"),
        ("0::0", "http://[::1]:8888"),
        ("192.168.1.5", "http://192.168.1.5:8888"),
    ],
)
def test_urls_are_reachable_from_the_head_itself(host: str, url: str) -> None:
    plan = plan_rank(config(api={"host": host}), 0)
    assert plan.argv[plan.argv.index("--host") + 1] == host
    assert plan.base_url == url
    assert plan.health_url == f"{url}/health"
    assert plan.metrics_url == f"{url}/metrics"


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_no_node_has_is_refused(rank: int) -> None:
    with pytest.raises(UserError, match="RANK_UNKNOWN"):
        plan_rank(config(), rank)


def test_more_nodes_are_more_ranks() -> None:
    three = [*NODES, {"name": "third", "address": "10.0.0.3"}]
    plan = plan_rank(config(nodes=three), 2)
    assert plan.argv[plan.argv.index("--tensor-parallel-size") + 1] == "3"
    assert plan.env["VLLM_HOST_IP"] == "10.0.0.3"


def test_a_plan_cannot_be_changed() -> None:
    plan = plan_rank(config(), 0)
    with pytest.raises(TypeError):
        plan.env["X"] = "1"  # type: ignore[index]
