"""The layers that settings come from, and what each of them says."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import JsonValue

from glm53ctl.config import document, messages
from glm53ctl.config.catalog import (
    ENV_NAMES,
    ENV_PREFIX,
    LEAVES,
    SECTIONS,
    Keys,
    allowed,
    dotted,
    env_name,
    leaf_of,
    nearest,
    takes_text,
)
from glm53ctl.config.document import fail
from glm53ctl.config.masks import shown
from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.schema import Config, Paths
from glm53ctl.config.switched import NAME as SWITCHED_NAME
from glm53ctl.config.switched import Switched, read_switched
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity

OVERRIDE_NAME = "override.yaml"
"""File in `paths.run_dir` that holds the settings of one run."""
COMMAND_LINE = "--set"
NOT_SETTINGS = frozenset({"GLM53_CLOSURE", "GLM53_ENGINE", "GLM53_TORCH_INDEX"})
"""Variables of ours that say something about the installation, not about the pair."""


class Layer(StrEnum):
    """The layers that a value can come from."""

    COMMAND_LINE = "command line"
    OVERRIDE = "override"
    SWITCH = "switch"
    ENVIRONMENT = "environment"
    FILE = "file"
    PROFILE = "profile"
    DEFAULT = "default"


@dataclass(frozen=True)
class Origin:
    """Where a value was said: `/etc/glm53/config.yaml:12`, `GLM53_DENSE`, `--set`, a profile."""

    layer: Layer
    place: str

    def __str__(self) -> str:
        return self.place

    def where(self, path: str) -> str:
        """Return the place of a setting as it stands in a finding."""
        if self.layer is Layer.ENVIRONMENT:
            return f"environment {self.place}"
        return f"{self.place} {path}"


DEFAULT = Origin(Layer.DEFAULT, "default")


@dataclass(frozen=True)
class Said:
    """One setting as a layer says it. `inner` places what lies inside a list or mapping."""

    value: JsonValue
    origin: Origin
    inner: Mapping[Keys, Origin] = field(default_factory=dict)


Leaves = dict[str, Said]


@dataclass
class Problems:
    """Findings of all layers; `incomplete` when one could not be read at all."""

    findings: list[Finding] = field(default_factory=list)
    incomplete: bool = False


def _leaves(
    values: JsonValue, places: Mapping[Keys, Origin], problems: Problems, keys: Keys = ()
) -> Iterator[tuple[str, Said]]:
    """Yield the settings in nested values and report keys that are none."""
    path = dotted(keys)
    if path in LEAVES:
        inner = {place: origin for place, origin in places.items() if place[: len(keys)] == keys}
        yield path, Said(values, places[keys], inner)
        return
    if path and path not in SECTIONS:
        message, fix = messages.unknown_key(path, nearest(path))
        if whole := leaf_of(keys):
            fix = f"{whole} is set as a whole, as {allowed((whole,))}."
        problems.findings.append(fail("CFG_UNKNOWN_KEY", places[keys].where(path), message, fix))
        return
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _leaves(value, places, problems, (*keys, key))
    elif values is not None:  # an empty section is a heading with everything commented out
        message = messages.is_section(path, values)
        problems.findings.append(fail("CFG_TYPE", places[keys].where(path), message))


def _read_text(path: Path) -> str | None:
    """Return a file's text, None when there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _of_the_service(path: Path) -> UserError:
    """Say who may read what ranks keep: the file may be right, so it is not to be removed."""
    fix = "Run the command as root (sudo)."
    return UserError("CONTROL_DENIED", f"{path} belongs to the service.", fix)


def _file(path: Path, layer: Layer, problems: Problems, *, required: bool = False) -> Leaves:
    """Return the settings of a YAML file."""
    try:
        text = _read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, PermissionError) and layer is Layer.OVERRIDE:
            raise _of_the_service(path) from error
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fix = "Give a readable YAML file."
        problems.findings.append(fail("CFG_FILE", str(path), f"Cannot read it: {what}.", fix))
        problems.incomplete = True
        return {}
    if text is None:
        if required:
            message = "There is no such file."
            problems.findings.append(fail("CFG_FILE", str(path), message, "Check the path."))
            problems.incomplete = True
        return {}
    found = document.read_mapping(text, str(path))
    problems.findings += found.findings
    problems.incomplete |= bool(found.findings) and not found.values
    places = {keys: Origin(layer, f"{path}:{line}") for keys, line in found.lines.items()}
    return dict(_leaves(found.values, places, problems))


def _scalar_or_flow(text: str, where: str, keys: Keys, problems: Problems) -> JsonValue:
    """Return a value given in one word: a YAML scalar, or a YAML flow list or mapping."""
    value, found = document.read(text, where, keys)
    if takes_text(keys) and (found.findings or isinstance(value, dict | list)):
        return text  # `Reply: OK` is a text here, whatever YAML would make of it
    problems.findings += found.findings
    return value


def _said(path: str, text: str, origin: Origin, problems: Problems) -> Leaves:
    """Return the settings that one `path=text` says."""
    if not document.is_text(text):
        message = "The value is not UTF-8 text."
        problems.findings.append(fail("CFG_SYNTAX", origin.where(path), message))
        return {}
    keys: Keys = tuple(path.split("."))
    before = len(problems.findings)
    value = _scalar_or_flow(text, origin.where(path), keys, problems)
    if len(problems.findings) > before:
        return {}
    places = _everywhere(keys, value, origin)
    return dict(_leaves(value, places, problems, keys))


def _everywhere(keys: Keys, value: JsonValue, origin: Origin) -> dict[Keys, Origin]:
    """Return the same origin for a value and everything inside it."""
    places = {keys: origin}
    members: Iterable[tuple[str | int, JsonValue]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, inner in members:
        places.update(_everywhere((*keys, key), inner, origin))
    return places


def command_line(overrides: Sequence[str], problems: Problems) -> Leaves:
    """Return the settings of `--set path=value`; the last word about a setting counts."""
    return _words(overrides, Origin(Layer.COMMAND_LINE, COMMAND_LINE), problems)


def _words(words: Sequence[str], origin: Origin, problems: Problems) -> Leaves:
    """Return the settings of `path=value` words."""
    leaves: Leaves = {}
    for override in words:
        path, equals, text = override.partition("=")
        if not equals or not path.strip():
            missing = "a value" if not equals else "a name"
            message = f"A setting on the command line needs {missing}."
            fix = "Write it as --set serve.max_model_len=4096."
            problems.findings.append(fail("CFG_SYNTAX", origin.place, message, fix))
            continue
        leaves.update(_said(path.strip(), text, origin, problems))
    return leaves


def _environment(environ: Mapping[str, str], problems: Problems) -> Leaves:
    """Return the settings of `GLM53_SECTION__KEY` variables.

    A name with a double underscore can only be meant as a setting, so an unknown one is an
    error; another `GLM53_` name may belong to something else and only draws a warning.
    """
    leaves: Leaves = {}
    for name in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
        origin = Origin(Layer.ENVIRONMENT, name)
        if path := ENV_NAMES.get(name):
            leaves.update(_said(path, environ[name], origin, problems))
            continue
        if name not in NOT_SETTINGS:
            problems.findings.append(_unknown_variable(name))
    return leaves


def _unknown_variable(name: str) -> Finding:
    path = name.removeprefix(ENV_PREFIX).replace("__", ".").lower()
    close = nearest(path) or nearest(name)
    fix = f"Did you mean {env_name(close)}?" if close and close in LEAVES else ""
    where = f"environment {name}"
    if "__" in name:
        return fail("CFG_UNKNOWN_KEY", where, "No setting has this name.", fix or "Unset it.")
    message = "No setting has this name; it is ignored."
    return Finding(
        code="CFG_UNKNOWN_KEY", severity=Severity.WARN, where=where, message=message, fix=fix
    )


def one_run(run_dir: str, problems: Problems) -> Leaves:
    """Return the settings of the one-run override; it cannot say where it lies itself."""
    leaves = _file(Path(run_dir) / OVERRIDE_NAME, Layer.OVERRIDE, problems, required=False)
    if moved := leaves.pop("paths.run_dir", None):
        message = "The override lies in paths.run_dir and so cannot set it."
        where = moved.origin.where("paths.run_dir")
        problems.findings.append(fail("CFG_FORBIDDEN", where, message, "Remove the line."))
    return leaves


def of_switch(state_dir: str, configured: JsonValue, problems: Problems) -> Leaves:
    """Return the settings that `glm53ctl switch` chose in place of the `configured` profile."""
    path = Path(state_dir) / SWITCHED_NAME
    try:
        switched = read_switched(path.parent)
    except PermissionError as error:
        raise _of_the_service(path) from error
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        fix = "Remove it: the configuration then holds as it is written."
        problems.findings.append(fail("CFG_FILE", str(path), f"Cannot read it: {what}.", fix))
        problems.incomplete = True
        return {}
    return _of_switched(switched, configured, problems, str(path))


def _of_switched(
    switched: Switched, configured: JsonValue, problems: Problems, place: str
) -> Leaves:
    """Return the settings of a switch while it holds; either way it is worth a warning."""
    if not switched.settings:
        return {}
    if switched.instead_of != configured:
        code, fix = "CFG_SWITCH_OVER", "Switch again if that is not what you want."
        message = (
            f"The switch to {switched} no longer holds: it was made in place of profile "
            f"{switched.instead_of}, and the configuration says {configured} now."
        )
        problems.findings.append(_doubtful(code, place, message, fix))
        return {}
    message = f"The pair was switched to {switched}, in place of profile {configured}."
    fix = f"`glm53ctl switch {configured}` goes back to what the configuration says."
    problems.findings.append(_doubtful("CFG_SWITCHED", place, message, fix))
    return _words(switched.settings, Origin(Layer.SWITCH, place), problems)


def _doubtful(code: str, where: str, message: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.WARN, where=where, message=message, fix=fix)


def of_profile(name: str) -> Leaves:
    """Return the settings of a profile; none for an unknown one."""
    tree = next((tree for known, tree in PROFILES.items() if known == name), {})
    origin = Origin(Layer.PROFILE, f"profile {name}")
    values: JsonValue = dict(tree)
    return dict(_leaves(values, _everywhere((), values, origin), Problems()))


def _profile(layers: Sequence[Leaves], problems: Problems) -> Leaves:
    """Return the settings of the profile that the highest layer names."""
    said = next((layer["profile"] for layer in layers if "profile" in layer), None)
    name = said.value if said else Config.model_fields["profile"].default
    if said and name not in list(PROFILES):
        message = f"There is no profile {shown('profile', name)}."
        fix = f"Choose one of {', '.join(PROFILES)}."
        problems.findings.append(fail("CFG_PROFILE", said.origin.where("profile"), message, fix))
    return of_profile(str(name))


def _merged(layers: Sequence[Leaves]) -> Leaves:
    """Return every setting as the highest layer says it."""
    merged: Leaves = {}
    for layer in reversed(layers):
        merged.update(layer)
    return merged


def _text_of(leaves: Leaves, path: str, default: str) -> str | None:
    """Return a setting that says where further settings lie; None when it is said wrongly."""
    said = leaves.get(path)
    value = said.value if said else default
    return value if isinstance(value, str) else None


def configured_profile(file: Path, environ: Mapping[str, str]) -> JsonValue:
    """Return the profile that environment and file name, whatever was switched to."""
    ignored = Problems()
    return _configured([_environment(environ, ignored), _file(file, Layer.FILE, ignored)])


def _configured(layers: Sequence[Leaves]) -> JsonValue:
    said = _merged(layers).get("profile")
    return said.value if said else str(Config.model_fields["profile"].default)


def gather(
    file_path: Path,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    problems: Problems,
    *,
    required: bool,
    with_run: bool = True,
    switched: Switched | None = None,
) -> Leaves:
    """Return every setting that any layer says, as the highest one says it.

    `with_run` counts the settings of one run and the profile that was switched to, which only the
    ranks' user and root may read. With `switched` these settings are what a switch would make.
    """
    line = command_line(overrides, problems)
    env = _environment(environ, problems)
    file = _file(file_path, Layer.FILE, problems, required=required)
    places = _merged([line, env, file])
    run_dir = _text_of(places, "paths.run_dir", Paths().run_dir)
    state_dir = _text_of(places, "paths.state_dir", Paths().state_dir)
    override: Leaves = {}
    switch: Leaves = {}
    if switched is not None:
        switch = _words(switched.settings, Origin(Layer.SWITCH, "switch"), problems)
    elif with_run and run_dir is not None and state_dir is not None:
        override = one_run(run_dir, problems)
        switch = of_switch(state_dir, _configured([env, file]), problems)
    said = [line, override, switch, env, file]
    leaves = _merged([*said, _profile(said, problems)])
    if leaves.get("profile") and str(leaves["profile"].value) not in PROFILES:
        del leaves["profile"]  # reported already; the rest is judged without it
    return leaves
