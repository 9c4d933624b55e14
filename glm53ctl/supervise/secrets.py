"""The secret that both supervisors share."""

from collections.abc import Mapping

from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.plan import SecretSource
from glm53ctl.plan.credentials import read_secret

MIN_LENGTH = 16
MAKE = "od -An -N32 -tx1 -w32 /dev/urandom | tr -d ' '"
"""Makes a secret with coreutils alone: NixOS and a small Debian have no openssl."""


def pair_token(config: Config, environ: Mapping[str, str]) -> bytes:
    """Read the pair token. A pair of one needs none."""
    if config.world_size == 1:
        return b""
    source = SecretSource("pair-token", config.link.token_file, "link.token_file")
    token = read_secret(source, environ)
    if token is None or len(token) < MIN_LENGTH:
        what = "is missing" if token is None else f"is shorter than {MIN_LENGTH} characters"
        raise UserError(
            "PAIR_TOKEN",
            f"the pair token {what} ({source}).",
            f"Make one with `{MAKE}`, put the same on both nodes, start again. Under systemd it is "
            "/etc/credstore/glm53.pair-token, read when the unit starts.",
        )
    return token.encode()
