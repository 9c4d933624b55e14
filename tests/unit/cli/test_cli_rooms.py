"""What `status` does not pay for, and that every command of another room is there all the same."""

import subprocess
import sys

import pytest
import typer

from glm53ctl.cli import app
from glm53ctl.rooms import ROOMS

LOOK = """
import sys
from glm53ctl.__main__ import main
sys.argv = ["glm53ctl", "status", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    print(ended.code, file=sys.stderr)
print(*sorted(sys.modules), file=sys.stderr)
"""
HEAVY = {
    "asyncio",
    "httpx",
    "huggingface_hub",
    "matplotlib",
    "numpy",
    "psutil",
    "ssl",
    "starlette",
    "uvicorn",
    "glm53ctl.config.rules",
    "glm53ctl.facts.node",
    "glm53ctl.plan",
    "glm53ctl.status.screen",
}
"""What `status` has no use for: most of it costs as much as a tenth of what it may take."""


def modules_of(*words):
    """What a program has loaded when `status` is done."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *words], capture_output=True, text=True, check=True
    )
    code, modules = done.stderr.strip().splitlines()[-2:]
    assert code == "3"
    return set(modules.split())


def test_a_start_looks_for_neither_garbage_nor_plugins():
    """A daemon has its own garbage collected all the same."""
    code = (
        "import gc, os, glm53ctl.cli\n"
        "glm53ctl.cli.main = lambda: print(gc.isenabled(), gc.get_freeze_count() > 1000,"
        " os.environ['PYDANTIC_DISABLE_PLUGINS'])\n"
        "from glm53ctl.__main__ import main\n"
        "main()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "True", "__all__"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_status_imports_nothing_heavy(config, options):
    """A time would be true on one machine alone; what takes it is the same on all."""
    modules = modules_of("--config", str(config), *options)
    assert HEAVY & modules == set()
    rooms = {room.place.partition(":")[0] for room in ROOMS.values()}
    assert rooms & modules == set()


def test_status_as_json_draws_nothing(config):
    modules = modules_of("--config", str(config), "--json")
    assert "rich" not in {name.partition(".")[0] for name in modules}
    assert "glm53ctl.status.text" not in modules


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_s_command_has_help_and_no_options_of_a_program(run, name):
    said = run(name, "--help")
    assert said.code == 0
    assert "completion" not in said.out


def test_all_commands_are_listed_hidden_ones_only_where_asked_for(run):
    listed = run("--help").out
    commands = typer.main.get_command(app).commands
    assert {*ROOMS, "status", "config", "plan"} <= set(commands)
    for name in commands:
        assert (name in listed) is not commands[name].hidden


def test_a_command_that_is_none_is_2(run):
    said = run("swtich")
    assert said.code == 2
    assert said.err.startswith("USAGE")
