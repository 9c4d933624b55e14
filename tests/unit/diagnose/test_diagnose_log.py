"""Logs: causes before symptoms, and no cause where there is none."""

import io
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm53ctl.diagnose import Confidence, Exhibit, explain, explain_lines
from glm53ctl.diagnose.diagnosis import EVIDENCE_COLUMNS
from glm53ctl.diagnose.lines import ENOUGH, LONGEST_LINE, PIECE, telling
from glm53ctl.diagnose.log import EVIDENCE_LINES
from glm53ctl.supervise.stages import Stage

KILLED = (
    "ERROR [multiproc_executor.py:381] Worker proc VllmWorker-0 died unexpectedly "
    "(exit code: None), shutting down executor."
)
OOM = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,"
    "task_memcg=/system.slice/glm53-rank0.service,task=VLLM::Worker_TP,pid=15392,uid=990"
)
PORT = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen. port: 29521, "
    "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)
IDLE = (
    "RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation "
    "to complete"
)
MEMORY = (
    "ValueError: Free memory on device cuda:0 (2.00/121.69 GiB) on startup is less than desired "
    "GPU memory utilization (0.85, 103.44 GiB)."
)
QUOTED = (
    "WARNING This can cause fd limit errors like `OSError: [Errno 24] Too many open files`. "
    "Consider increasing with ulimit -n"
)


@pytest.mark.parametrize("name", ["healthy-rank0.log", "healthy-rank1.log"])
def test_a_real_healthy_log_betrays_nothing(logs, name):
    assert explain([Exhibit(name, io.BytesIO((logs / name).read_bytes()))]) == []


def test_a_real_log_of_a_killed_rank_says_so_and_claims_no_cause(logs):
    text = (logs / "killed-rank1.log").read_text()
    (one,) = explain([Exhibit.of("rank1.log", text)])
    assert one.finding.code == "RANK_LOST"
    assert one.confidence is Confidence.SYMPTOM
    assert explain_lines(text.splitlines()) is None


def test_a_real_log_of_the_survivor_points_at_the_other_rank(logs):
    text = (logs / "peer-killed-rank0.log").read_text()
    found = explain([Exhibit.of("rank0.log", text)])
    assert found[0].finding.code == "RANK_LOST"
    assert "other" in found[0].finding.message
    assert all(one.confidence is Confidence.SYMPTOM for one in found)


def test_the_kernel_s_log_explains_the_death_in_the_engine_s(codes_of):
    assert codes_of(KILLED) == ["RANK_LOST"]
    assert codes_of(KILLED, OOM) == ["MEM_HOST_OOM"]


def test_of_two_causes_both_are_named(codes_of):
    assert codes_of(f"{PORT}\n{OOM}") == ["MEM_HOST_OOM", "PORT_IN_USE"]


def test_the_cause_of_a_rank_s_last_lines():
    finding = explain_lines([KILLED, OOM, "(EngineCore pid=1) Shutting down"])
    assert finding is not None
    assert (finding.code, finding.evidence) == ("MEM_HOST_OOM", (OOM,))


@pytest.mark.parametrize("lines", [[], ["INFO: all is well"], [KILLED]])
def test_lines_without_a_cause_give_none(lines):
    assert explain_lines(lines) is None


ROOT = "(Worker_TP0 pid=7) ERROR 11-30 17:40:04 [multiproc_executor.py:812] "
AFTERWARDS = (
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
)


@pytest.mark.parametrize(
    ("lines", "mention"),
    [
        ([f"{ROOT}AttributeError: 'Config' object has no attribute 'mhc'"], "attribute 'mhc'"),
        (["(APIServer pid=1) ModuleNotFoundError: No module named 'glm53_overlay'"], "overlay"),
        (["RuntimeError: The NVIDIA driver on your system is too old"], "driver"),
        (
            ["pydantic_core.ValidationError: 1 validation error", "  Value error, no glm5_next"],
            "1 validation error (no glm5_next)",
        ),
    ],
)
def test_an_error_of_a_start_that_nothing_knows_is_said_itself(lines, mention):
    finding = explain_lines([*lines, AFTERWARDS, f"{ROOT}ValueError: what follows"], Stage.LOAD)
    assert finding.code == "ENGINE_ERROR"
    assert mention in finding.message


def test_an_error_that_is_known_is_not_said_twice():
    known = f"{ROOT}ValueError: No available memory for the cache blocks. Try increasing it."
    finding = explain_lines([known, f"{ROOT}ValueError: what follows"], Stage.KV)
    assert finding.code == "KV_TOO_SMALL"


@pytest.mark.parametrize("line", [AFTERWARDS, f"{ROOT}Exception: WorkerProc initialization failed"])
def test_what_only_follows_from_an_error_is_no_cause(line):
    assert explain_lines([line], Stage.LOAD) is None


def test_an_error_while_serving_may_be_a_client_s():
    assert explain_lines([f"{ROOT}ValueError: bad request"], Stage.SERVING) is None


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=1) INFO:     Application startup complete.",
        "(APIServer pid=1) INFO 11-30 18:30:55 [loggers.py:335] Engine 000: Avg prompt throughput: "
        "0.0 tokens/s, Avg generation throughput: 13.0 tokens/s",
    ],
)
def test_an_engine_that_goes_on_did_not_fail(codes_of, line):
    error = f"{ROOT}ImportError: cannot import name 'what_is_not_needed'"
    assert codes_of(f"{error}\n{line}") == []
    assert codes_of(f"{line}\n{error}") == ["ENGINE_ERROR"]


def test_another_log_does_not_unsay_it():
    error, goes_on = f"{ROOT}ImportError: no", "INFO:     Application startup complete."
    found = explain([Exhibit.of("rank1.log", error), Exhibit.of("rank0.log", goes_on)])
    assert [one.finding.code for one in found] == ["ENGINE_ERROR"]


def test_a_verdict_that_all_is_well_is_no_cause():
    assert explain_lines(["head:1:1 [0] NCCL INFO Using network IB"]) is None


def test_a_warning_is_named_when_there_is_no_failure():
    line = "HfHubHTTPError: 429 Client Error: Too Many Requests for url"
    finding = explain_lines([line])
    assert finding is not None
    assert finding.code == "FETCH_RATE_LIMITED"


@pytest.mark.parametrize(
    ("stage", "code"), [(Stage.SERVING, "RANK_IDLE_ABORT"), (Stage.NCCL, "ENGINE_ERROR")]
)
def test_a_line_means_what_it_means_in_its_stage(stage, code):
    finding = explain_lines([IDLE], stage)
    assert finding.code == code


def test_the_stage_is_read_off_the_log(codes_of):
    start = "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:1 backend=nccl"
    assert codes_of(f"{start}\n{IDLE}") == ["ENGINE_ERROR"]
    assert codes_of(f"{start}\nLoading weights took 3 seconds\n{IDLE}") == ["RANK_IDLE_ABORT"]


def test_the_start_limit_shows_the_failure_behind_it():
    limit = "systemd[1]: glm53-rank0.service: Failed with result 'start-limit-hit'."
    found = explain([Exhibit.of("journal.txt", f"{MEMORY}\n{limit}\n")])
    assert [one.finding.code for one in found] == ["UNIT_START_LIMIT", "MEM_PAGECACHE"]
    assert found[0].finding.evidence == (limit, MEMORY)


@pytest.mark.parametrize(
    ("available_kb", "code"), [(122_683_392, "MEM_PAGECACHE"), (90_177_536, "MEM_FOREIGN")]
)
def test_meminfo_tells_the_page_cache_from_a_process(available_kb, code):
    meminfo = f"MemTotal: 127601213 kB\nMemFree: 2167040 kB\nMemAvailable: {available_kb} kB\n"
    log, facts = Exhibit.of("rank0.log", MEMORY), Exhibit.of("meminfo", meminfo)
    (one,) = explain([log, facts])
    assert (one.finding.code, one.confidence) == (code, Confidence.CERTAIN)


def test_quoted_errors_are_no_errors(codes_of):
    assert codes_of(QUOTED) == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/var/lib/glm53/hf/hub/x", "CACHE_NOT_WRITABLE"),
        ("/dev/infiniband/uverbs0", "ENGINE_ERROR"),
    ],
)
def test_a_device_is_no_cache(codes_of, path, code):
    line = f"PermissionError: [Errno 13] Permission denied: '{path}'"
    assert codes_of(line) == [code]


def test_secrets_in_evidence_are_hidden():
    (one,) = explain(
        [Exhibit.of("a.log", f"--api-key hunter2secret hf_abcdefgh sk-abcdefgh {PORT}")]
    )
    printed = one.render()
    assert "(not shown)" in printed
    for secret in ("hunter2", "hf_abc", "sk-abc"):
        assert secret not in printed


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (f"{ROOT}ValueError: cannot reach https://bob:hunter2secret@10.0.0.1/x", "bob"),
        (f"{ROOT}ValueError: bad field hf_token: 'hunter2secret'", "ValueError"),
        ("vllm serve: error: unrecognized arguments: --apikey=sk-hunter2secret", "--apikey"),
        ("vllm serve: error: argument --api-key: hunter2secret is too short", "argument"),
        ("OverlayError: API_KEY_BAD: --api-key hunter2secret is short", "API_KEY_BAD"),
    ],
)
def test_secrets_that_a_line_puts_into_the_verdict_are_hidden(line, kept):
    finding = explain_lines([line], Stage.BOOT)
    assert "hunter2" not in finding.model_dump_json()
    assert kept in finding.message


def test_hiding_secrets_leaves_the_table_s_own_words_alone():
    finding = explain_lines(["HTTP/1.1 401 X-Error-Message: Invalid user token"])
    assert "HF_TOKEN" in finding.message


def test_a_flood_stays_short():
    (one,) = explain([Exhibit.of("a.log", "".join(f"{PORT} {n}\n" for n in range(3000)))])
    assert len(one.finding.evidence) == EVIDENCE_LINES
    assert all(len(line) <= EVIDENCE_COLUMNS for line in one.finding.evidence)


def test_what_is_not_text_is_read(codes_of):
    data = b"\xff\xfe\x00 " + PORT.encode() + b" \xff\r\n"
    (one,) = explain([Exhibit("a.log", io.BytesIO(data))])
    assert one.finding.code == "PORT_IN_USE"


def test_progress_bars_end_lines(codes_of):
    assert codes_of(f"50%|###\r{PORT}\r100%|") == ["PORT_IN_USE"]


KINDS = st.sampled_from(
    [
        "",
        '{"t": 1, "event": "exit", ',
        '{"choices": [',
        "HTTP/1.1 ",
        "hca_id: ",
        "t,running,generation_tokens,prompt_tokens,a_watt\n",
        "SpecDecoding metrics: Drafted: 9 tokens, Per-position acceptance rate: ",
        "world_size=2 rank=0 distributed_init_method=x\n",
        OOM,
    ]
)


@given(start=KINDS, text=st.text(), name=st.sampled_from(["a.log", "a.json"]))
def test_no_text_breaks_it(start, text, name):
    explain([Exhibit.of(name, start + text)], "09-20 10:00:00")


@given(
    records=st.lists(
        st.dictionaries(
            st.sampled_from(["t", "unit", "event", "generation", "stage", "shard", "code"]),
            st.sampled_from(["exit", "start", "load", "glm53-rank1", 1, 2.5, None, [], True]),
        )
    )
)
def test_no_record_breaks_it(records):
    text = "\n".join(json.dumps({"t": 0, **record}) for record in records)
    explain([Exhibit.of("events.jsonl", text)])


# --- finding the lines ---------------------------------------------------------------------------


class Stream:
    """Yields `count` times the same bytes, and never holds them all."""

    def __init__(self, part: bytes, count: int) -> None:
        self.part, self.left = part, count

    def read(self, size: int = -1, /) -> bytes:
        self.left -= 1
        return self.part if self.left >= 0 else b""


def test_lines_across_pieces_are_whole():
    line = b"x" * (PIECE // 2) + b" NEEDLE " + b"y" * 100
    got = list(telling(io.BytesIO((line + b"\n") * 5), {b"NEEDLE"}))
    assert len(got) == 5
    assert all(len(one) == LONGEST_LINE for one in got)


def test_lines_come_in_order_and_once():
    text = b"b A\nnothing\na B A\nB"
    assert list(telling(io.BytesIO(text), {b"A", b"B"})) == ["b A", "a B A", "B"]


def test_a_flood_of_one_text_is_let_go_and_milestones_are_not():
    part = b"FLOOD\n" * 1000
    flood = sum(1 for _ in telling(Stream(part, 50), {b"FLOOD"}))
    assert ENOUGH <= flood <= 1000
    assert sum(1 for _ in telling(Stream(part, 50), {b"FLOOD"}, {b"FLOOD"})) == 50_000


@pytest.mark.parametrize(
    "part", [b"INFO all is well and long\n" * 2000, b"no line end at all " * 2000]
)
def test_memory_stays_flat(part):
    tracemalloc.start()
    for _ in telling(Stream(part, 600), {b"NEEDLE"}):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20  # of 24 MB read


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        (("Out of memory: Killed process 15392 (VLLM::Worker_TP) total-vm:9kB",), "MEM_HOST_OOM",
         "VLLM::Worker_TP (pid 15392)"),
        (("Memory cgroup out of memory: Killed process 7 (python3) total-vm:9kB",),
         "MEM_CGROUP_LIMIT", "python3"),
        (("glm53-rank0.service: Failed with result 'oom-kill'.",), "MEM_HOST_OOM",
         "glm53-rank0.service"),
    ],
)  # fmt: skip
def test_a_kill_for_memory_is_known_by_each_of_its_lines(lines, code, said):
    (one,) = explain([Exhibit.of("kernel.log", "\n".join(lines))])
    assert one.finding.code == code
    assert said in one.finding.message


def test_our_own_server_s_429_is_not_the_hub_s():
    full = 'INFO: 10.0.0.9:1 - "POST /v1/chat/completions HTTP/1.1" 429 Too Many Requests'
    assert explain_lines([full]) is None
    hub = "HTTPError: 429 Client Error: Too Many Requests for url: https://h/x"
    assert explain_lines([hub]).code == "FETCH_RATE_LIMITED"


@pytest.mark.parametrize(
    "line",
    [
        "No valid attention backend found for cuda with kv_cache_dtype=fp8, head_size=576: "
        "[compute capability not supported]",
        "PermissionError: [Errno 13] Permission denied: '/etc/glm53/template.jinja'",
    ],
)
def test_a_cause_that_a_line_does_not_name_is_not_given(line):
    found = explain_lines([line], Stage.BOOT)
    assert found is None or found.code == "ENGINE_ERROR"


def test_an_expired_certificate_may_be_the_server_s():
    (one,) = explain([Exhibit.of("a.log", "certificate verify failed: certificate has expired")])
    assert one.confidence is Confidence.LIKELY
    assert "run out" in one.finding.message
