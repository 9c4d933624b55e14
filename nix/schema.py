"""Writes down for Nix what the configuration is: its schema, its profiles and its rules.

    python nix/schema.py > nix/modules/schema.json

The modules make their options, defaults and reasons from this file, so that a setting and a reason
exist once, in glm53ctl/config. tests/nix says when it must be made anew.
"""

import json
from typing import Any

from glm53ctl.config.catalog import LEAVES, Keys, allowed
from glm53ctl.config.docstrings import json_schema
from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.rules import RULES
from glm53ctl.config.rules.passthrough import JUDGED_ELSEWHERE, MORE_ENV
from glm53ctl.config.schema import Node
from glm53ctl.plan.owned import owned_env, owned_flags


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Add to every setting in words what it may hold, as `config check` says it."""
    places: dict[str, Keys] = {path: setting.key for path, setting in LEAVES.items()}
    places |= {f"nodes.0.{name}": ("nodes", 0, name) for name in Node.model_fields}
    for keys in places.values():
        _field(schema, [key for key in keys if key != 0])["allowed"] = allowed(keys)
    return schema


def _field(schema: dict[str, Any], keys: list[str | int]) -> dict[str, Any]:
    """Return the schema of one field, through references and lists."""
    node = schema
    for key in keys:
        target = node.get("items", node).get("$ref")
        section = schema["$defs"][target.rpartition("/")[2]] if target else node
        node = section["properties"][key]
    return node


def document() -> dict[str, Any]:
    """Return everything that Nix needs to know."""
    return {
        "schema": _described(json_schema()),
        "profiles": PROFILES,
        "rules": {
            rule.name: {
                "code": rule.code,
                "path": rule.paths[0],
                "reason": rule.reason,
                "fix": rule.fix,
                "severity": rule.severity,
                "waivedBy": rule.waived_by,
            }
            for rule in RULES
        },
        "owned": {
            "flags": sorted(owned_flags()),
            "elsewhere": sorted(JUDGED_ELSEWHERE),
            "env": sorted(owned_env()),
            "moreEnv": sorted(MORE_ENV),
        },
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=1, ensure_ascii=False))
