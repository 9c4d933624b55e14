"""A node's facts as a bundle that can be shown to strangers."""

from pydantic import JsonValue

from glm53ctl.config.schema import Config
from glm53ctl.facts.node import NodeFacts
from glm53ctl.redact import without_public_addresses, without_secrets


def bundle(facts: NodeFacts, config: Config, *, addresses: bool = False) -> str:
    """Return facts and configuration as JSON without secrets; see `redact`.

    `addresses` keeps public addresses; others are always kept, as nothing can be judged without.
    """
    told = facts.model_copy(update={"config": _without_secrets(config)})
    return redact(told.model_dump_json(indent=1), addresses=addresses)


def _without_secrets(config: Config) -> dict[str, JsonValue]:
    """Return the configuration; what the owner passes through as it is may hold anything."""
    values: dict[str, JsonValue] = config.model_dump(mode="json")
    engine = values["engine"]
    if isinstance(engine, dict):
        engine["extra_env"], engine["extra_args"] = {}, []
    return values


def redact(text: str, *, addresses: bool = False) -> str:
    """Return a text without tokens, and with documentation addresses for public ones."""
    text = without_secrets(text)
    return text if addresses else without_public_addresses(text)
