"""Combinations that the schema allows and experience forbids, as tables with the reasons.

Every rule has a code, the settings it is about, one sentence of evidence, a way out, and a pure
function that says what is wrong in a configuration (nothing, when all is well).
"""

from collections.abc import Collection, Iterator

from glm53ctl.config.rules import clients, engine, pair, passthrough, speculation, supervision
from glm53ctl.config.rules.base import Rule
from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding

RULES: tuple[Rule, ...] = (
    *pair.RULES,
    *engine.RULES,
    *speculation.RULES,
    *passthrough.RULES,
    *clients.RULES,
    *supervision.RULES,
)
"""Every rule, in the order in which findings are shown."""


def violations(
    config: Config, credentials: Collection[str] = frozenset()
) -> Iterator[tuple[Rule, str]]:
    """Yield each rule that a configuration touches, with what it says about it."""
    for rule in RULES:
        if rule.waived_by and rule.waived_by in credentials:
            continue
        for what in rule.broken(config):
            yield rule, what


def check(config: Config, credentials: Collection[str] = frozenset()) -> list[Finding]:
    """Return what the rules say about a configuration.

    `credentials` are the names of the systemd credentials of this process: an `api-key` among
    them is a key as good as `api.key_file`.
    """
    return [rule.finding(what) for rule, what in violations(config, credentials)]


__all__ = ["RULES", "Rule", "check", "violations"]
