"""The README says what the program does: its commands and its configuration are real."""

import os
import re
from pathlib import Path

import typer.main

from glm53ctl.cli import app
from glm53ctl.config.sources import load

README = Path(__file__).parents[2] / "README.md"
START, END = "<!-- commands: generated, see tests/unit/test_readme.py -->\n", "<!-- /commands -->"


def commands(group, prefix=""):
    """Yield (command line, first line of its help) of every command below a group."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
            if not command.invoke_without_command:
                continue
        words = [f"{prefix}{name}"]
        for parameter in command.params:
            if parameter.name in ("help", "config", "set_"):
                continue  # on every command, or nearly
            if parameter.param_type_name == "argument":
                label = "RANK" if parameter.name == "number" else parameter.name.upper()
                words.append(label if parameter.required else f"[{label}]")
            else:
                words.append(f"[{max(parameter.opts, key=len)}]")
        yield " ".join(words), command.help.splitlines()[0]


def table() -> str:
    rows = [f"| `{line}` | {text} |" for line, text in commands(typer.main.get_command(app))]
    return "\n".join(["| `glm53ctl ...` | |", "|---|---|", *rows, ""])


def test_the_table_of_commands_is_the_program_s_own():
    before, rest = README.read_text().split(START)
    current, after = rest.split(END)
    if os.environ.get("GLM53_UPDATE_GOLDEN"):
        README.write_text(before + START + table() + END + after)
        return
    assert current == table()


def test_the_configuration_in_the_readme_is_valid(tmp_path):
    (sample,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    file = tmp_path / "config.yaml"
    file.write_text(sample)
    assert load(file, environ={}).config.profile == "vllm-recipe"


def test_the_line_that_opens_the_api_is_valid_where_there_is_a_key(tmp_path):
    (sample,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    file = tmp_path / "config.yaml"
    file.write_text(sample.replace("# api:", "api:"))
    (tmp_path / "api-key").write_text("k")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert load(file, environ=environ).config.api.host == "0.0.0.0"


def test_a_change_on_nixos_ends_with_the_restart_that_a_switch_leaves_out():
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    (change,) = [block for block in blocks if "nixos-rebuild" in block]
    commands = [line.partition(" #")[0].strip() for line in change.splitlines()]
    switches = [f"nixos-rebuild switch --flake .#spark-{name}" for name in ("head", "worker")]
    assert commands == [*switches, "glm53ctl restart"]
