"""What may be shown of a value: enough to find a mistake, never a secret."""

import json
import re

from pydantic import JsonValue

_SECRET_NAME = re.compile(  # `tokens` are counted
    r"(TOKEN|(SECRET|PASSW(OR)?D|API_?KEY|CREDENTIAL)S?)(_FILE)?$", re.IGNORECASE
)
MORE_SECRET_NAMES = re.compile(
    r"PASSPHRASE$|(SECRET|ACCESS|PRIVATE|SIGNING|ENCRYPTION|MASTER|AUTH)_?KEY$", re.IGNORECASE
)
"""Beside those of a configuration (`names_a_secret`), what other programs call theirs."""
KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_KEY")
TOKEN_PREFIXES = (
    *("sk-", "hf_", "nvapi-", "glpat-", "xox"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
)
_SECRET_VALUE = re.compile("|".join((*TOKEN_PREFIXES, "Bearer ")))
_HIDDEN_PATHS = ("engine.extra_env", "engine.extra_args")
_LONGEST = 60

NOT_SHOWN = "(not shown)"


def names_a_secret(name: str) -> bool:
    """Say whether a variable or key of this name would hold a secret (`HF_TOKEN`, `api_key`)."""
    return _SECRET_NAME.search(name) is not None


def names_any_secret(name: str) -> bool:
    """Say so of other programs' names as well (`AWS_SECRET_ACCESS_KEY`)."""
    more = MORE_SECRET_NAMES.search(name) or KEY_VARIABLE.fullmatch(name)
    return names_a_secret(name) or more is not None


def shown(path: str, value: JsonValue) -> str:
    """Return a value as it may stand in a message about `path`, shortened, secrets left out.

    A path of a secret's file is hidden as well: who pastes the secret itself there must not read
    it again in a log.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    last = path.rsplit(".", 1)[-1]
    hidden = path.startswith(_HIDDEN_PATHS) or names_a_secret(last) or last.endswith("key_file")
    if value is not None and (hidden or _SECRET_VALUE.search(text)):
        return NOT_SHOWN
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
