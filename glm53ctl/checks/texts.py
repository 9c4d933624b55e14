"""Checks of settings as text: unit files, command lines, a recipe's `.env`, a flake's options."""

import re
import shlex
from collections.abc import Iterator, Mapping

from glm53ctl.checks.registry import Node, fail, node_check
from glm53ctl.config.masks import names_a_secret
from glm53ctl.config.recipes import Verdict, import_recipe
from glm53ctl.config.rules import RULES, check
from glm53ctl.config.rules.base import Rule
from glm53ctl.config.schema import Config
from glm53ctl.facts.host import known
from glm53ctl.findings import Finding, Severity
from glm53ctl.jsontext import json_or_none

LONGEST_START_SECONDS = 3600
SYSTEMD_START_SECONDS = 90
SPARK_CAPABILITIES = ("12.0", "12.1")
_NOWHERE = re.compile(r"127\.|0\.0\.0\.0$|::1?$|localhost$")
TOOL_PARSER, REASONING_PARSER = "glm47", "glm45"


def _named(node: Node, ending: str) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in node.facts.texts.items() if name.endswith(ending))


# --- units ---------------------------------------------------------------------------------------


def _sections(text: str) -> dict[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = {}
    keys: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            keys = sections.setdefault(line.strip().strip("[]"), {})
        elif "=" in line and not line.lstrip().startswith(("#", ";")):
            name, _, value = line.partition("=")
            keys[name.strip()] = value.strip()
    return sections


@node_check("UNIT_START_LIMIT_MISPLACED")
def start_limit(node: Node) -> Iterator[Finding]:
    """Check that the start limit of a unit is where systemd reads it."""
    for name, text in _named(node, ".service"):
        misplaced = [key for key in _sections(text).get("Service", {}) if key[:10] == "StartLimit"]
        if misplaced:
            yield fail(
                "UNIT_START_LIMIT_MISPLACED",
                f"{' and '.join(misplaced)} stand under [Service], where systemd ignores them: a "
                "start that fails is tried for ever.",
                "Move them to [Unit].",
                where=name,
            )


@node_check("UNIT_TIMEOUT_SHORT")
def start_timeout(node: Node) -> Iterator[Finding]:
    """Check that a unit that says when it is ready has the time to load, or extends it."""
    for name, text in _named(node, ".service"):
        keys = _sections(text).get("Service", {})
        # `glm53ctl rank` extends its time by EXTEND_TIMEOUT_USEC with every tick.
        extends = re.search(r"glm53ctl rank \d", keys.get("ExecStart", ""))
        if keys.get("Type") != "notify" or extends or "TimeoutStartSec" in keys:
            continue
        yield fail(
            "UNIT_TIMEOUT_SHORT",
            f"Type=notify without TimeoutStartSec gets systemd's {SYSTEMD_START_SECONDS} s, and a "
            "load takes minutes.",
            f"Set TimeoutStartSec={LONGEST_START_SECONDS} or send EXTEND_TIMEOUT_USEC, and keep "
            "VLLM_ENGINE_READY_TIMEOUT_S below it.",
            where=name,
        )


# --- command lines -------------------------------------------------------------------------------


def _options(words: list[str]) -> dict[str, str]:
    """Return the options of a command line; a switch has the value ""."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words, "--"][1:], strict=True):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = value if equals else "" if following.startswith("--") else following
    return found


@node_check("NET_MASTER_LOOPBACK", "API_KEY_IN_ARGV", "CFG_TOOL_PARSER", "CFG_FORBIDDEN")
def command_line(node: Node) -> Iterator[Finding]:
    """Check that a recorded command line of the engine holds nothing that is known not to work."""
    text = node.facts.texts.get("argv.txt", "")
    # JSON stands there without a shell's quotes.
    options = _options(text.split())
    nodes, master = options.get("--nnodes", "1"), options.get("--master-addr", "127.0.0.1")
    if nodes != "1" and _NOWHERE.match(master):
        yield fail(
            "NET_MASTER_LOOPBACK",
            f"--master-addr is {master}{'' if '--master-addr' in options else ' (the default)'} "
            f"with --nnodes {nodes}: each rank waits for the others on itself.",
            "Give --master-addr the head's address on the ConnectX-7 link.",
            where="argv",
        )
    if options.get("--api-key"):
        yield fail(
            "API_KEY_IN_ARGV",
            "the API key stands in the command line, for `ps` and the log to show.",
            "Pass it as VLLM_API_KEY from a file of mode 0600 (api.key_file).",
            where="argv",
        )
    yield from _parsers(options)
    draft = json_or_none(options.get("--speculative-config", "{}"))
    if isinstance(draft, dict) and draft.get("attention_backend") == "TRITON_ATTN":
        yield fail(
            "CFG_FORBIDDEN",
            "attention_backend TRITON_ATTN for the draft: it masks the block causally, so later "
            "positions are hardly ever accepted.",
            "Leave attention_backend out.",
            where="--speculative-config",
        )


def _parsers(options: Mapping[str, str]) -> Iterator[Finding]:
    said = (options.get("--tool-call-parser"), options.get("--reasoning-parser"))
    if said != (None, None) and said != (TOOL_PARSER, REASONING_PARSER):
        yield fail(
            "CFG_TOOL_PARSER",
            f"--tool-call-parser {said[0]} with --reasoning-parser {said[1]}: tool calls would "
            "come back as text.",
            f"Use --tool-call-parser {TOOL_PARSER} and --reasoning-parser {REASONING_PARSER}.",
            where="argv",
        )


# --- a recipe's settings -------------------------------------------------------------------------

_OTHER_NAMES = {"MAX_IMAGE_TOKENS": "MM_IMAGE_TOKENS"}
_BESIDE = {
    "licenses": {"accept": ["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"]},
    "nodes": [{"name": "head", "address": "10.0.0.1"}, {"name": "worker", "address": "10.0.0.2"}],
}
"""What a configuration needs to be judged, for settings that do not say it."""


def _quoted(text: str) -> Iterator[tuple[str, str]]:
    """Yield the variables of an env file as systemd and Docker read it: values need no quotes."""
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            plain = value if value[:1] in ("'", '"') else shlex.quote(value)
            yield _OTHER_NAMES.get(name, name), plain


def _rule_of(reason: str) -> Rule | None:
    return next((rule for rule in RULES if reason.endswith(rule.reason)), None)


@node_check(
    "CFG_FORBIDDEN",
    "CFG_GRAPH_SIZES",
    "CFG_MEMORY",
    "CFG_MM_BUDGET",
    "API_NO_KEY",
    "API_KEY_IN_ARGV",
    "API_DEV_MODE",
    "API_LOOPBACK",
)
def recipe_settings(node: Node) -> Iterator[Finding]:
    """Check that a recipe's settings hold nothing that the configuration's rules forbid."""
    caller = dict(_quoted(node.facts.texts.get("caller-env.txt", "")))
    for file, text in _named(node, ".env"):
        said = dict(_quoted(text)) | caller
        lines = "".join(f"{name}={value}\n" for name, value in said.items())
        imported = import_recipe(lines, file)
        for note in imported.notes:
            if note.verdict in (Verdict.FORBIDDEN, Verdict.INVALID):
                rule = _rule_of(note.reason)
                origin = f"the caller's environment over {file}" if note.key in caller else file
                yield fail(
                    rule.code if rule else "CFG_FORBIDDEN",
                    f"{note.key} in {origin}: {note.reason}",
                    (rule.fix if rule else "") or "Remove it.",
                    where=note.key,
                )
        config = Config.model_validate({**_BESIDE, **imported.values})
        if "HOST" in said:
            yield from _on_record(config)
        yield from (f for f in check(config) if f.code in ("CFG_MM_BUDGET", "CFG_GRAPH_SIZES"))


def _on_record(config: Config) -> Iterator[Finding]:
    return (f for f in check(config) if f.severity is Severity.OK and f.code.startswith("API_"))


@node_check("SECRET_FILE_MODE")
def secret_files(node: Node) -> Iterator[Finding]:
    """Check that a file with secrets in it is readable by its owner only."""
    for owner in known(node.facts.owners) or ():
        text = node.facts.texts.get(owner.path.rpartition("/")[2], "")
        names = [name for name, value in _quoted(text) if names_a_secret(name) and value != "''"]
        if names and owner.mode & 0o077:
            yield fail(
                "SECRET_FILE_MODE",
                f"{owner.path} holds {', '.join(names)} and has mode {owner.mode:04o}.",
                f"chmod 0600 {owner.path}, or use LoadCredential=.",
                where=owner.path,
            )


# --- a flake's options ---------------------------------------------------------------------------


@node_check("NIX_CUDA_ARCH", "NIX_UNFREE")
def flake_options(node: Node) -> Iterator[Finding]:
    """Check that a flake builds CUDA packages, and for this GPU."""
    for name, text in _named(node, ".nix"):
        listed = re.search(r"cudaCapabilities\s*=\s*\[([^\]]*)\]", text)
        capabilities = re.findall(r'"([^"]+)"', listed[1]) if listed else []
        wrong = [one for one in capabilities if one not in SPARK_CAPABILITIES]
        if "cudaSupport = true" in text and (wrong or not capabilities):
            yield fail(
                "NIX_CUDA_ARCH",
                f"cudaCapabilities is [ {' '.join(capabilities)} ]: GB10 runs code for 12.0 and "
                "12.1 only.",
                'Set cudaCapabilities = [ "12.0" "12.1" ].',
                where=name,
            )
        refused = re.search(r"Package '([^']+)'.*unfree", node.facts.texts.get("eval.log", ""))
        if "cudaSupport = true" in text and not re.search(r"allowUnfree(Predicate)?\s*=", text):
            yield fail(
                "NIX_UNFREE",
                f"CUDA packages are unfree and allowUnfree is not set: the evaluation stops"
                f" at {refused[1] if refused else 'the first of them'}.",
                "Set nixpkgs.config.allowUnfree = true, or a predicate that lists them.",
                where=name,
            )


@node_check("NIX_WHEEL_MISSING")
def locked_wheels(node: Node) -> Iterator[Finding]:
    """Check that every locked wheel fits the machine."""
    wheels = json_or_none(node.facts.texts.get("wheels.lock.json", "[]"))
    for wheel in wheels if isinstance(wheels, list) else ():
        if not isinstance(wheel, dict) or not isinstance(wheel.get("file"), str):
            continue
        platform = wheel["file"].removesuffix(".whl").rpartition("-")[2]
        if platform != "any" and "aarch64" not in platform:
            yield fail(
                "NIX_WHEEL_MISSING",
                f"{wheel.get('name')} is locked as {wheel['file']} ({platform}); a Spark is "
                "aarch64.",
                "Lock an aarch64 wheel, or build it from source.",
                where="wheels.lock.json",
            )
