"""From a configuration to what each rank starts: command line, environment, secrets' places.

Pure but for two edges: `credentials` reads secret files at launch, `argcheck` asks the installed
engine's own argument parser.
"""

from glm53ctl.plan.argcheck import Parsed, check_argv
from glm53ctl.plan.credentials import engine_env, launch_env, read_secret, read_secrets
from glm53ctl.plan.inherit import inherit
from glm53ctl.plan.model import RankPlan, SecretSource
from glm53ctl.plan.options import capture_sizes
from glm53ctl.plan.owned import (
    flag_settings,
    owned_env,
    owned_flag,
    owned_flags,
    setting_for,
    whole_flag,
)
from glm53ctl.plan.ranks import plan_pair, plan_rank
from glm53ctl.plan.render import as_data, as_json, as_text

__all__ = [
    "Parsed",
    "RankPlan",
    "SecretSource",
    "as_data",
    "as_json",
    "as_text",
    "capture_sizes",
    "check_argv",
    "engine_env",
    "flag_settings",
    "inherit",
    "launch_env",
    "owned_env",
    "owned_flag",
    "owned_flags",
    "plan_pair",
    "plan_rank",
    "read_secret",
    "read_secrets",
    "setting_for",
    "whole_flag",
]
