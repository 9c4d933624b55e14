"""What the plan says cannot be said otherwise by extra arguments or variables."""

import pytest
from hypothesis import given
from plan_configs import configs

from glm53ctl.config.schema import Config, settings
from glm53ctl.plan import owned_env, owned_flag, owned_flags, plan_pair
from glm53ctl.plan import setting_for as setting_of
from glm53ctl.plan.render import argument_lines


@given(configs)
def test_everything_that_a_plan_sets_is_owned(conf: Config) -> None:
    extra_flags, extra_names = set(conf.engine.extra_args), set(conf.engine.extra_env)
    for plan in plan_pair(conf):
        given_flags = {line[0] for line in argument_lines(plan.argv[3:])} - extra_flags
        assert given_flags <= owned_flags()
        assert {*plan.env, *plan.secret_env} - extra_names <= owned_env()


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        ("--max-model-len", "--max-model-len"),
        ("--max_model_len", "--max-model-len"),
        ("--max-model-len=4", "--max-model-len"),
        ("--max-model", "--max-model-len"),
        ("--speculative-config.method", "--speculative-config"),
        ("--no-enforce-eager", "--enforce-eager"),
        ("--no-enable-flashinfer-autotune", "--enable-flashinfer-autotune"),
        ("-tp", "-tp"),
        ("-n2", "-n"),
        ("--api-key", "--api-key"),
        ("--config", "--config"),
        ("--seed", None),
        ("--kv-cache-dtype-skip-layers", None),
        ("--reasoning-parser-plugin", None),
        ("-1", None),
        ("0.5", None),
        ("max-model-len", None),
    ],
)
def test_a_word_is_read_as_the_engine_reads_it(word: str, flag: str | None) -> None:
    assert owned_flag(word) == flag


@pytest.mark.parametrize(
    ("flag", "setting"),
    [
        ("--max-model-len", "serve.max_model_len"),
        ("--speculative-config", "spec.method"),
        ("--spec-tokens", "spec.method"),
        ("-tp", "nodes"),
        ("--host", "api.host"),
        ("--api-key", "api.key_file"),
        ("--limit-mm-per-prompt", "media.images"),
        ("--cudagraph-capture-sizes", ""),
        ("--config", ""),
    ],
)
def test_a_refused_flag_has_a_setting_instead(flag: str, setting: str) -> None:
    assert setting_of(flag) == setting


def test_settings_behind_flags_exist() -> None:
    paths = {setting.path for setting in settings(Config)} | {""}
    assert {setting_of(flag) for flag in owned_flags()} <= paths
