"""The product's ways in, as a case meets them: files go in, findings come out.

Every way is the command that an operator types, run in this process; only the fetcher, which has
no command for a recorded answer, is asked by its public functions.
"""

import csv
import io
import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from typer.testing import CliRunner

from glm53ctl.cli import app
from glm53ctl.config.catalog import env_name
from glm53ctl.config.recipes import import_file
from glm53ctl.config.recipes.names import SAME_NAME, Recipe
from glm53ctl.config.rules import check
from glm53ctl.config.sources import ConfigError, load
from glm53ctl.diagnose.exhibits import parse_http
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding
from glm53ctl.weights.verdicts import judge_response, judge_stall

Files = Mapping[str, str]

SETTINGS = re.compile(r".*\.(env|nix|service)|(argv|caller-env|env|now|util)\.txt")
"""Files that say what is wanted, not what was seen: `explain` is not for them."""
HUB = re.compile(r"^(x-error-\w+|ratelimit[\w-]*):", re.IGNORECASE | re.MULTILINE)
DRAFT_REPO = "incoai/GLM-5.3-Flash-DFlash2"
RUNNER = CliRunner()


def _run(*words: str) -> str:
    """Run a command of glm53ctl; return what it printed on stdout."""
    return RUNNER.invoke(app, list(words), catch_exceptions=False).stdout


def _findings(printed: str) -> list[Finding]:
    value = json.loads(printed or "[]")
    found = value if isinstance(value, list) else value.get("findings", [])
    known = Finding.model_fields
    return [Finding(**{k: v for k, v in one.items() if k in known}) for one in found]


def _write(folder: Path, files: Files) -> list[Path]:
    paths = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


# --- glm53ctl explain ----------------------------------------------------------------------------


def explain(files: Files) -> list[Finding]:
    """Give `glm53ctl explain` everything that was seen."""
    seen = {
        name: text
        for name, text in files.items()
        if not SETTINGS.fullmatch(name.rpartition("/")[2]) and not _from_hub(name, text)
    }
    if not seen:
        return []
    now = next((text.strip() for name, text in files.items() if name.endswith("now.txt")), None)
    with tempfile.TemporaryDirectory() as folder:
        paths = map(str, _write(Path(folder), seen))
        return _findings(_run("explain", "--json", *(["--now", now] if now else []), *paths))


# --- glm53ctl doctor -----------------------------------------------------------------------------


def doctor(files: Files) -> list[Finding]:
    """Give `glm53ctl doctor` all files as one capture."""
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "capture.txt"
        capture.write_text("".join(f"### {name}\n{text}" for name, text in files.items()))
        try:
            return _findings(_run("doctor", "--json", "--facts", str(capture)))
        except UserError as error:
            if error.code != "FACTS_FILE":
                raise
            return []  # a log alone tells a check nothing


# --- glm53ctl config -----------------------------------------------------------------------------


def config(files: Files) -> list[Finding]:
    """Import a recipe's settings and check what is left of them, under the caller's environment.

    What the import itself refuses is the doctor's to say: it judges the file as it stands.
    """
    return list(_recipe(files))


def _recipe(files: Files) -> Iterator[Finding]:
    for name, text in files.items():
        if not name.endswith(".env"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name.replace("/", "-")
            path.write_text(_quoted(text))
            imported = import_file(path)
            file = Path(folder) / "config.yaml"
            values = {"licenses": {"accept": ["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"]}}
            file.write_text(yaml.safe_dump({**values, **imported.values}))
            yield from _check(file, _caller(files, Path(folder)))


def _quoted(text: str) -> str:
    """Return a `.env` with its values quoted: cases write them as they are, a shell splits them."""
    lines = (line.partition("=") for line in text.splitlines())
    return "".join(f"{name}={shlex.quote(value)}\n" for name, _, value in lines if name)


def _caller(files: Files, folder: Path) -> dict[str, str]:
    """Return what the caller's environment says, under the names that this program reads."""
    said = {}
    for name, text in files.items():
        if not name.endswith("caller-env.txt"):
            continue
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if path := SAME_NAME[Recipe.VLLM].get(key):
                said[env_name(path)] = value
    return said


def _check(file: Path, environ: Mapping[str, str]) -> list[Finding]:
    try:
        loaded = load(file, environ=environ)
    except ConfigError as error:
        return error.findings
    return check(loaded.config)


# --- the fetcher ---------------------------------------------------------------------------------


def _from_hub(name: str, text: str) -> bool:
    return name.endswith(".http") and bool(HUB.search(text))


def fetcher(files: Files) -> list[Finding]:
    """Ask the fetcher what an answer of the Hub or the growth of files means."""
    return [*_responses(files), *_transfers(files)]


def _said(files: Files) -> dict[str, str]:
    """Return the variables of `env.txt`."""
    texts = (text for name, text in files.items() if name.endswith("env.txt"))
    words = (word for text in texts for word in text.split() if "=" in word)
    return dict(word.split("=", 1) for word in words)


def _responses(files: Files) -> Iterator[Finding]:
    said = _said(files)
    for name, text in files.items():
        if _from_hub(name, text):
            answer, headers = parse_http(text)
            yield judge_response(
                answer.status,
                headers,
                said.get("MODEL", DRAFT_REPO),
                said.get("MODEL_REVISION", "the pinned commit"),
                had_token="HF_TOKEN" in said,
                fallback=said.get("MODEL_FALLBACK"),
            )


def _transfers(files: Files) -> Iterator[Finding]:
    stalls = re.search(r"stalls_so_far=(\d+)", files.get("attempts.txt", ""))
    for name, text in files.items():
        if not name.endswith("progress.csv"):
            continue
        rows = list(csv.DictReader(io.StringIO(text)))
        grown = [name for name in rows[0] if name.endswith("_bytes")]
        samples = [(float(row["t"]), sum(int(row[name]) for name in grown)) for row in rows]
        client = files.get("versions.txt", "")
        if finding := judge_stall(samples, int(stalls[1]) if stalls else 0, client=client):
            yield finding


ENTRIES = {"explain": explain, "doctor": doctor, "config": config, "fetcher": fetcher}
"""Every way in, by its name."""
