"""Import of the shell recipes' settings files."""

from pathlib import Path

import pytest
from config_texts import ACCEPTED, drawn
from hypothesis import strategies as st

from glm53ctl.config.recipes import Imported, Verdict, import_file, import_recipe, render_imported
from glm53ctl.config.recipes.names import NO_COUNTERPART, SAME_NAME, Recipe
from glm53ctl.config.recipes.shell import read_shell
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import load
from glm53ctl.errors import UserError

ENV = """\
# our two machines
HEAD_IP=10.0.9.1
WORKER_IP="10.0.9.2"      # over the cable
export HEAD_CX7_IF=enp1s0f0np0
WORKER_CX7_IF='enp1s0f1np1'
HEAD_CX7_IB=rocep1s0f0,roceP2p1s0f0
WORKER_CX7_IB=rocep1s0f1
NCCL_IB_GID_INDEX=3
WORKER_GID=4

API=9000
PORT=${API}
HOST=0.0.0.0
VLLM_API_KEY=sk-not-for-you
HF_TOKEN="hf_not-for-you"
MAX_MODEL_LEN=${WINDOW:-850000}
MAX_NUM_SEQS=2
MAX_NUM_BATCHED_TOKENS=8192
GPU_MEM_UTIL=0.85
SPEC_METHOD=mtp
MTP_TOKENS=3
DFLASH_TOKENS=7
LIMIT_MM='{"image":8,"video":2}'
SKIP_MM_PROFILING=1
LANGUAGE_MODEL_ONLY=0
ENFORCE_EAGER=1
EXTRA_ARGS="--seed 3 --moe-backend marlin \\
  --kv-cache-memory-bytes 15032385536"
GLM53_EXTRA_ENV="NCCL_IB_TC=106 VLLM_HOST_IP=10.0.9.1"
IMAGE=$(date +x)
MAX_NUM_SEQ=9
"""

LOCAL_SH = """\
#!/bin/bash
WORKER=tux@192.0.2.2
FABRIC_PEER=10.0.9.2
DRAFTER=dflash2
PARALLEL=3
CONTEXT=524288
KV=fp8
DENSE=fp8
VISION=1
VISION_URLS=1
SHARED_PREFIX=0
ABLIT=1
THINKING=0
HF_TOKEN=hf_not-for-you
MEMORY_RESERVE_GIB=20
if hostname | grep -q spark; then
  PORT=9999
fi
"""


def valid(imported: Imported, path: Path) -> Config:
    path.write_text(imported.to_yaml())
    path.with_name("api-key").touch()  # where the notes say to put it
    environ = {"CREDENTIALS_DIRECTORY": str(path.parent)}
    return load(path, overrides=[ACCEPTED], environ=environ).config


def verdicts(imported: Imported) -> dict[str, set[Verdict]]:
    found: dict[str, set[Verdict]] = {}
    for note in imported.notes:
        found.setdefault(note.key, set()).add(note.verdict)
    return found


def test_an_env_file_becomes_a_configuration(tmp_path: Path) -> None:
    imported = import_recipe(ENV, ".env")
    config = valid(imported, tmp_path / "config.yaml")
    head, worker = config.nodes
    assert (str(head.address), head.interface, head.gid_index) == ("10.0.9.1", "enp1s0f0np0", 3)
    assert head.hcas == ("rocep1s0f0", "roceP2p1s0f0")
    assert (str(worker.address), worker.interface, worker.gid_index) == (
        "10.0.9.2",
        "enp1s0f1np1",
        4,
    )
    assert (config.api.host, config.api.port) == ("0.0.0.0", 9000)
    assert config.api.key_file is None
    assert config.weights.token_file is None
    assert config.serve.max_model_len == 850_000
    assert config.serve.max_num_seqs == 2
    assert config.serve.max_num_batched_tokens == 1024
    assert (config.spec.method, config.spec_tokens) == ("mtp", 3)
    assert (config.media.images, config.media.videos, config.media.enable) == (8, 2, True)
    assert config.engine.enforce_eager
    assert config.engine.extra_args == ("--seed", "3")
    assert config.engine.extra_env == {"NCCL_IB_TC": "106"}
    assert config.kv.bytes == 15_032_385_536


def test_every_line_of_an_env_file_gets_its_verdict() -> None:
    found = verdicts(import_recipe(ENV, ".env"))
    assert found["MAX_NUM_BATCHED_TOKENS"] == {Verdict.FORBIDDEN}
    assert found["DFLASH_TOKENS"] == {Verdict.NO_COUNTERPART}
    assert found["VLLM_API_KEY"] == {Verdict.SECRET}
    assert found["IMAGE"] == {Verdict.NOT_READ}
    assert found["MAX_NUM_SEQ"] == {Verdict.UNKNOWN}
    assert found["EXTRA_ARGS"] == {Verdict.TAKEN, Verdict.FORBIDDEN}
    assert found["HEAD_IP"] == {Verdict.TAKEN}
    assert {assigned.name for assigned in read_shell(ENV).assigned.values()} <= found.keys()


def test_notes_carry_lines_and_reasons() -> None:
    text, lines = render_imported(import_recipe(ENV, ".env"))
    assert ".env:30: IMAGE: not read: shell code is not executed" in lines
    assert any(line.startswith(".env:31: MAX_NUM_SEQ: unknown:") for line in lines)
    assert any("did it mean MAX_NUM_SEQS?" in line for line in lines)
    assert any("8192 and more overflow" in line for line in lines)
    assert text.startswith("profile: vllm-recipe\n")


def test_a_local_sh_becomes_a_configuration(tmp_path: Path) -> None:
    imported = import_recipe(LOCAL_SH.replace("\n", "\r\n"), "local.sh", head_address="10.0.9.1")
    config = valid(imported, tmp_path / "config.yaml")
    assert [str(node.address) for node in config.nodes] == ["10.0.9.1", "10.0.9.2"]
    assert config.profile == "long"
    assert (config.serve.max_num_seqs, config.serve.max_model_len) == (3, 524_288)
    assert (config.dense, config.media.urls, config.serve.prefix_caching) == ("fp8", True, False)
    assert config.thinking.default_effort == "none"
    assert not config.ablit.enable
    assert config.api.port == 8888
    found = verdicts(imported)
    assert found["PORT"] == {Verdict.NOT_READ}
    assert found["ABLIT"] == found["MEMORY_RESERVE_GIB"] == {Verdict.NO_COUNTERPART}


def test_a_direction_by_name_is_not_taken_and_ablit_does_not_stand_without_one() -> None:
    imported = import_recipe("ABLIT=1\nABLIT_DIRECTION=dealign\n", ".env")
    assert "ablit" not in imported.values
    found = verdicts(imported)
    assert (found["ABLIT"], found["ABLIT_DIRECTION"]) == (
        {Verdict.FORBIDDEN},
        {Verdict.NO_COUNTERPART},
    )
    given_path = import_recipe("ABLIT=1\nABLIT_DIRECTION=/w/d.safetensors\n", ".env")
    assert given_path.values["ablit"] == {"enable": True, "direction": "/w/d.safetensors"}


def test_nodes_are_left_out_when_an_address_is_not_in_the_file() -> None:
    imported = import_recipe("WORKER=tux@spark2.local\nDRAFTER=mtp\n", "local.sh")
    assert "nodes" not in imported.values
    assert verdicts(imported)["nodes"] == {Verdict.NOT_READ}


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("KV=bf16", "only fp8 works"),
        ("KV_CACHE_DTYPE=nvfp4", "only fp8 works"),
        ("DFLASH_DRAFT_TP=1", "shards the draft"),
        ("DFLASH_TOKENS=5", "7 tokens a step"),
        ("HOST=0.0.0.0", "no key"),
        ("SKIP_MM_PROFILING=0", "exhausts"),
        ("TP=4", "one rank"),
        ("PORT=29521", "both 29521"),
        ("EXTRA_ARGS='--host 0.0.0.0'", "api.host says it"),
    ],
)
def test_what_a_rule_forbids_is_kept_out_with_the_reason(
    tmp_path: Path, line: str, part: str
) -> None:
    imported = import_recipe(f"{line}\n", ".env", head_address="10.0.9.1")
    (note,) = [n for n in imported.notes if n.verdict is Verdict.FORBIDDEN]
    assert part in note.reason
    assert note.line == 1
    assert imported.values.keys() <= {"profile", "nodes"}


@pytest.mark.parametrize("line", ["PORT=abc", "MAX_NUM_SEQS=0", "ENFORCE_EAGER=maybe", "DENSE=x"])
def test_a_value_that_no_setting_takes_is_kept_out(line: str) -> None:
    imported = import_recipe(line, ".env")
    (note,) = [n for n in imported.notes if n.verdict is Verdict.INVALID]
    assert "must be" in note.reason


def test_nothing_is_ever_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'A=$(touch X)\nB=`touch X`\nC="$(touch X)"\ntouch X\nD=${E:-$(touch X)}\nF=<(touch X)\n'
    imported = import_recipe(text, ".env")
    assert list(tmp_path.iterdir()) == []
    assert {note.verdict for note in imported.notes if note.line} == {Verdict.NOT_READ}


def test_a_secret_is_put_where_systemd_takes_it_from() -> None:
    """The service's user cannot read a file of root; a credential needs no setting."""
    text, lines = render_imported(import_recipe(ENV, ".env"))
    assert "_file" not in text
    for name, file in (("VLLM_API_KEY", "glm53.api-key"), ("HF_TOKEN", "glm53.hf-token")):
        (said,) = (line for line in lines if f": {name}: " in line)
        assert said.endswith(f"secret: put it into /etc/credstore/{file} (mode 0600) on the head")


@pytest.mark.parametrize(("key", "stays"), [("VLLM_API_KEY=x\n", True), ("", False)])
def test_an_open_address_stays_with_a_key_alone(key: str, stays: bool) -> None:
    imported = import_recipe(f"{NODE_LINES}HOST=0.0.0.0\n{key}", ".env")
    assert ("host" in imported.to_yaml()) is stays
    assert (Verdict.FORBIDDEN in verdicts(imported)["HOST"]) is not stays


def test_how_to_say_an_address_that_the_file_lacks() -> None:
    told = {note.key: note.reason for note in import_recipe(LOCAL_SH, "local.sh").notes}
    assert told["nodes"].endswith("say it with --head-address ADDRESS, or write `nodes` yourself")


def test_secrets_are_never_printed() -> None:
    extra = (
        "GHCR_TOKEN=ghp_not-for-you\nMY_PASSWORD=not-for-you\nEXTRA_ARGS='--api-key not-for-you'\n"
    )
    for text in (ENV, LOCAL_SH, extra, "MAX_NUM_SEQS=hf_not-for-you\n"):
        out, lines = render_imported(import_recipe(text, "file"))
        assert "not-for-you" not in out
        assert "not-for-you" not in "\n".join(lines)


def test_a_file_that_cannot_be_read_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="CFG_FILE"):
        import_file(tmp_path / "none.env")


NAMES = sorted({*SAME_NAME[Recipe.VLLM], *SAME_NAME[Recipe.TENSORFOLD], *NO_COUNTERPART})
NODE_LINES = (
    "HEAD_IP=10.0.9.1\nWORKER_IP=10.0.9.2\nMAX_MODEL_LEN=4096\nMODEL=a/b\nGPU_MEM_UTIL=0.8\n"
)
VALUES = st.sampled_from(
    ["0", "1", "2", "7", "8192", "0.85", "fp8", "bf16", "none", "mtp", "low", "x", "15-45", "''"]
) | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12).map(
    lambda text: "'" + text.replace("'", "") + "'"
)


@drawn(
    lines=st.lists(
        st.tuples(
            st.sampled_from(
                [n for n in NAMES if "." not in n]
                + ["CONTEXT", "THINKING", "LIMIT_MM", "MTP_TOKENS"]
            ),
            VALUES,
        ),
        max_size=12,
    )
)
def test_whatever_is_imported_loads_again(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]]
) -> None:
    text = NODE_LINES + "".join(f"{name}={value}\n" for name, value in lines)
    imported = import_recipe(text, ".env")
    valid(imported, tmp_path_factory.mktemp("import") / "config.yaml")
    noted = {note.key for note in imported.notes}
    assert {name for name, _ in lines} <= noted


def test_an_address_that_was_assumed_is_said() -> None:
    found = verdicts(import_recipe("HEAD_IP=10.0.9.1\n", ".env"))
    assert found["HEAD_IP"] == {Verdict.TAKEN}
    assert found["WORKER_IP"] == {Verdict.CHANGED}


def test_arguments_are_judged_beside_the_other_lines() -> None:
    text = "EXTRA_ARGS='--cudagraph-capture-sizes 3 6 9 12'\n"
    assert "engine" not in import_recipe(text, ".env").values
    assert "engine" in import_recipe(text + "SPEC_METHOD=mtp\n", ".env").values


@pytest.mark.parametrize(
    ("line", "section", "values"),
    [
        ("PARALLEL=4\nMAX_QUEUED=9", "api", {"max_waiting": 9}),
        ("PARALLEL=4\nTENSORFOLD_GLM_IMAGE_TOKENS=1024", "media", {"image_tokens": 1024}),
        ("PARALLEL=4\nNCCL_RAILS=1", "fabric", {"rails": "1"}),
        ("MM_IMAGE_TOKENS=1024", "media", {"image_tokens": 1024}),
        ("CHAT_TEMPLATE_HOST=/t.jinja", "thinking", {"chat_template": "/t.jinja"}),
        ("GLM53_WARMUP_REQ_TIMEOUT=300", "supervise", {"limits": {"warmup": 300}}),
        ("EXTRA_ARGS=--no-enable-prefix-caching", "serve", {"prefix_caching": False}),
        (
            "CG_ESTIMATE=0\nGLM53_EXTRA_ENV=A=1",
            "engine",
            {"extra_env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0", "A": "1"}},
        ),
    ],
)
def test_a_name_with_a_counterpart_is_taken(
    line: str, section: str, values: dict[str, object]
) -> None:
    imported = import_recipe(f"{line}\n", ".env")
    assert imported.values[section].items() >= values.items()  # type: ignore[union-attr]
    assert {Verdict.TAKEN} in verdicts(imported).values()
    assert not [n for n in imported.notes if n.line and n.verdict is not Verdict.TAKEN]


@pytest.mark.parametrize(
    "name",
    ["RSYNC_OPTS", "TAIL", "EXPECTED_SHARDS", "SPILL_DIR", "KV_TIER_DIR", "STOP_TIMEOUT"],
)
def test_a_name_without_a_counterpart_is_known(name: str) -> None:
    assert verdicts(import_recipe(f"{name}=1\n", ".env"))[name] == {Verdict.NO_COUNTERPART}


def test_a_variable_of_the_plan_is_not_sent_to_the_extra_environment() -> None:
    notes = {n.key: n.reason for n in import_recipe("NCCL_CROSS_NIC=1\nNCCL_X=1\n", "x").notes}
    assert "the plan sets it itself" in notes["NCCL_CROSS_NIC"]
    assert "more goes into engine.extra_env" in notes["NCCL_X"]


def test_arguments_keep_the_quotes_of_their_json() -> None:
    words = ["--override-generation-config", '{"temperature":0.6}']
    imported = import_recipe(f"EXTRA_ARGS='{' '.join(words)}'\n", ".env")
    assert imported.values["engine"] == {"extra_args": words}


# --- the shell file ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=1\n", {"A": "1"}),
        ("export A=1 B='x y'\n", {"A": "1", "B": "x y"}),
        ("A=1; B=2\n", {"A": "1", "B": "2"}),
        ('A="say \\"hi\\" \\$5" # why\n', {"A": 'say "hi" $5'}),
        ("A=a#b\n", {"A": "a#b"}),
        ("A=one\\\ntwo\n", {"A": "onetwo"}),
        ('A="one \\\ntwo"\n', {"A": "one two"}),
        ("A='$HOME'\n", {"A": "$HOME"}),
        ("A=x\nB=$A/y\nC=${A}z\n", {"A": "x", "B": "x/y", "C": "xz"}),
        ("A=\nB=${A:-d}\nC=${A-d}\nD=${X:-${B}}\n", {"A": "", "B": "d", "C": "", "D": "d"}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ('LIMIT={"image":4}\n', {"LIMIT": "{image:4}"}),
        ("export A\n", {}),
        ("export A=1 \\\n  B=2\n", {"A": "1", "B": "2"}),
        ("A=1 \\\n B=2\n", {"A": "1", "B": "2"}),
        ("A='~/x'\nB=a~b\n", {"A": "~/x", "B": "a~b"}),
        ("X='unclosed\nB=2\n", {"B": "2"}),
        ("# it's a comment\nA=1\n", {"A": "1"}),
    ],
)
def test_plain_assignments_are_read_as_a_shell_would(text: str, values: dict[str, str]) -> None:
    assert {n: a.value for n, a in read_shell(text).assigned.items()} == values


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("A=$(id)\n", 1, "not executed"),
        ("A=$((1+1))\n", 1, "not executed"),
        ("A=(1\n2)\n", 1, "not executed"),
        ("A+=1\n", 1, "not executed"),
        ("A=1|tee\n", 1, "not executed"),
        ("A=x>y\n", 1, "not executed"),
        ("A=`id`\n", 1, "not executed"),
        ("A=$HOME/x\n", 1, "HOME"),
        ("A=1 ./start.sh\n", 1, "needs quotes"),
        ("A=~/x\n", 1, "home directory"),
        ("A=/x:~/y\n", 1, "home directory"),
        ("A=${B:-~/x}\n", 1, "home directory"),
        ("\nsource other.sh\n", 2, "not executed"),
        ("A=${B##x}\n", 1, "not executed"),
        ("[ -z x ] && A=1\n", 1, "not executed"),
        ("f() {\n  A=1\n}\n", 2, "not executed"),
        ("cat > x <<'EOF'\nA=1\nEOF\n", 1, "not executed"),
        ("while read x; do\n  A=$x\ndone < list\n", 2, "not executed"),
    ],
)
def test_code_is_left_alone(text: str, line: int, part: str) -> None:
    found = read_shell(text + "Z=1\n")
    assert list(found.assigned) == ["Z"]
    assert [u for u in found.unread if u.line == line and part in u.reason]
    assert found.assigned["Z"].line == text.count("\n") + 1


@pytest.mark.parametrize(
    "code",
    [
        "PORT=$(free_port)",
        "readonly PORT=2",
        "typeset -i PORT=2",
        "local PORT=2",
        "unset PORT",
        "unset -v A PORT",
        "A=$(id -u) PORT=2",
        "true && PORT=2",
    ],
)
def test_a_value_that_code_sets_again_is_not_trusted(code: str) -> None:
    found = read_shell(f"PORT=1\n{code}\n")
    assert "PORT" not in found.assigned
    assert "PORT" in {unread.name for unread in found.unread}


def test_the_argument_of_a_command_sets_nothing() -> None:
    assert "PORT" in read_shell("PORT=1\nA=2 docker run -e PORT=3 'x; PORT=4' # PORT=5\n").assigned


SHELL_VALUES = ["1", "", "'a b'", '"a; b"', "$(id -u)", "~/x", "`id`", "${X:-a b}", "a\\ b", "x>y"]


@drawn(
    prefix=st.sampled_from(["", "", "export ", "readonly ", "declare -x ", "typeset ", "local "]),
    words=st.lists(st.sampled_from(SHELL_VALUES), min_size=1, max_size=5),
    between=st.sampled_from([" ", "  \\\n  ", " \t"]),
    around=st.sampled_from(["{}", "{}", "{} # why", "{};", "if true; then\n {}\nfi", "x && {}"]),
)
def test_every_name_that_is_assigned_has_a_value_or_a_note(
    prefix: str, words: list[str], between: str, around: str
) -> None:
    line = prefix + between.join(f"N{number}={word}" for number, word in enumerate(words))
    found = read_shell(f"{around.format(line)}\nZ=1\n")
    told = found.assigned.keys() | {unread.name for unread in found.unread}
    assert {f"N{number}" for number in range(len(words))} | {"Z"} <= told


@drawn(st.text(st.sampled_from("A=1 \n'\"\\${}()#;&|<`if fi:-"), max_size=60))
def test_any_text_is_read_without_a_traceback(text: str) -> None:
    read_shell(text)


@pytest.mark.parametrize(
    ("said", "modes"),
    [
        ("all", {"kda": "fp8", "mla": "fp8", "shared": "fp8", "mlp": "fp8"}),
        ("1", {"kda": "fp8", "mla": "fp8", "shared": "fp8", "mlp": "fp8"}),
        ("shared,dense", {"kda": "bf16", "mla": "bf16", "shared": "fp8", "mlp": "fp8"}),
        ("kda", {"kda": "fp8", "mla": "bf16", "shared": "bf16", "mlp": "bf16"}),
        ("kda, dense,", {"kda": "fp8", "mla": "bf16", "shared": "bf16", "mlp": "fp8"}),
        ("ON", {"kda": "fp8", "mla": "fp8", "shared": "fp8", "mlp": "fp8"}),
        ("off", {"kda": "bf16", "mla": "bf16", "shared": "bf16", "mlp": "bf16"}),
        ("no", {"kda": "bf16", "mla": "bf16", "shared": "bf16", "mlp": "bf16"}),
        ("", {"kda": "bf16", "mla": "bf16", "shared": "bf16", "mlp": "bf16"}),
    ],
)
def test_the_recipe_s_groups_of_dense_projections_are_ours(said, modes, tmp_path: Path) -> None:
    text = ENV + f"\nGLM53_DENSE_FP8='{said}'\n"
    config = valid(import_recipe(text, ".env"), tmp_path / "config.yaml")
    assert config.dense_modes == modes


@pytest.mark.parametrize("said", ["kda,experts", "all,kda", "yes", "kda;mla"])
def test_a_group_of_dense_projections_that_is_none_is_invalid(said: str) -> None:
    imported = import_recipe(f"DENSE=q4\nGLM53_DENSE_FP8='{said}'\n", ".env")
    assert verdicts(imported)["GLM53_DENSE_FP8"] == {Verdict.INVALID}
    assert "dense_groups" not in imported.values


def test_no_groups_of_dense_projections_leave_what_is_said_elsewhere() -> None:
    imported = import_recipe("GLM53_DENSE_FP8=\nDENSE=q4\n", ".env")
    assert imported.values["dense"] == "q4"


@pytest.mark.parametrize(
    ("line", "section", "values"),
    [
        ("MAX_NUM_BATCHED_TOKENS=01024", "serve", {"max_num_batched_tokens": 1024}),
        ("SERVED_MODEL_NAME='GLM #1'", "serve", {"model_name": "GLM #1"}),
        ("SERVED_MODEL_NAME='a: b'", "serve", {"model_name": "a: b"}),
        ("SERVED_MODEL_NAME='[x]'", "serve", {"model_name": "[x]"}),
        ("GPU_MEM_UTIL=8e-1", "kv", {"gpu_memory_utilization": 0.8}),
        ("EXTRA_ARGS='--max-num-seqs 02'", "serve", {"max_num_seqs": 2}),
    ],
)
def test_a_value_is_the_shell_s_text_and_no_yaml(
    line: str, section: str, values: dict[str, object]
) -> None:
    assert import_recipe(f"{line}\n", ".env").values[section] == values


@pytest.mark.parametrize("text", ["1:30", "0x10", "null", "1e999", "nan", "9" * 5000])
def test_a_number_is_what_python_reads_as_one(text: str) -> None:
    found = verdicts(import_recipe(f"MAX_NUM_SEQS={text}\nGPU_MEM_UTIL={text}\n", ".env"))
    assert found["MAX_NUM_SEQS"] == found["GPU_MEM_UTIL"] == {Verdict.INVALID}


def test_extra_variables_are_apart_by_blanks_alone() -> None:
    text = "GLM53_EXTRA_ENV='TORCH_LOGS=recompiles,graph_breaks  BAR A=\"x y\"'\n"
    imported = import_recipe(text, ".env")
    variables = {"TORCH_LOGS": "recompiles,graph_breaks", "A": "x y"}
    assert imported.values["engine"] == {"extra_env": variables}
    (note,) = [n for n in imported.notes if n.verdict is Verdict.INVALID]
    assert note.key == "GLM53_EXTRA_ENV"
    assert "word 2 " in note.reason
    assert "NAME=VALUE" in note.reason


def test_a_conflict_costs_the_setting_that_it_names_and_no_other() -> None:
    imported = import_recipe(f"{NODE_LINES}MASTER_PORT=29600\nPORT=8890\n", ".env")
    assert imported.values["fabric"] == {"master_port": 29600}
    assert "api" not in imported.values
    found = verdicts(imported)
    assert (found["MASTER_PORT"], found["PORT"]) == ({Verdict.TAKEN}, {Verdict.FORBIDDEN})


@pytest.mark.parametrize(
    ("flag", "verdict"),
    [
        ("--max-num-batched-tokens 8192", Verdict.FORBIDDEN),
        ("--max-num-batched-tokens many", Verdict.INVALID),
    ],
)
def test_an_argument_that_cannot_stay_leaves_what_was_taken(flag: str, verdict: Verdict) -> None:
    text = f"{NODE_LINES}MAX_NUM_BATCHED_TOKENS=2048\nEXTRA_ARGS='{flag}'\n"
    imported = import_recipe(text, ".env")
    assert imported.values["serve"]["max_num_batched_tokens"] == 2048  # type: ignore[index,call-overload]
    found = verdicts(imported)
    assert found["MAX_NUM_BATCHED_TOKENS"] == {Verdict.TAKEN}
    assert found["EXTRA_ARGS"] == {verdict}


def test_as_many_workers_are_taken_as_tp_has_ranks() -> None:
    text = "WORKER=a@192.0.2.2\nWORKER2=a@192.0.2.3\nWORKER3=a@192.0.2.4\nDRAFTER=mtp\n"
    for ranks in (2, 3, 4):
        imported = import_recipe(f"{text}TP={ranks}\n", "tf.sh", head_address="192.0.2.1")
        assert len(imported.values["nodes"]) == ranks  # type: ignore[arg-type]
        found = verdicts(imported)
        assert found["TP"] == {Verdict.TAKEN}
        left = {name for name in ("WORKER2", "WORKER3") if found[name] != {Verdict.TAKEN}}
        assert left == set(("WORKER2", "WORKER3")[ranks - 2 :])
        assert all(found[name] == {Verdict.NO_COUNTERPART} for name in left)


def test_a_head_s_address_that_is_none_is_a_users_error() -> None:
    with pytest.raises(UserError, match="--head-address banana") as caught:
        import_recipe(LOCAL_SH, "local.sh", head_address="banana")
    assert caught.value.exit_code == 2


def test_a_digit_that_is_no_number_is_kept_out_with_its_nodes() -> None:
    assert verdicts(import_recipe("HEAD_GID=\u00b2\n", ".env"))["HEAD_GID"] == {Verdict.INVALID}
