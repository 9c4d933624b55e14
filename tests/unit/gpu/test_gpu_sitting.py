"""The parts of the GPU runs that need no GPU: comparing, keeping steps, results, command lines."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import deaths
import draft
import engine
import nccl
import psutil
import pytest
import sitting
from sitting import Answer, compare, logit_error

GPU = Path(__file__).parents[2] / "gpu"

LIKELY = {"a": -0.1, "b": -2.5, "c": -4.0}
FLAT = {"a": -0.70, "b": -0.71, "c": -3.0}


def answer(*steps):
    return Answer(tuple(token for token, _ in steps), tuple(logprobs for _, logprobs in steps))


# --- comparing ------------------------------------------------------------------------------------


def test_equal_answers_are_equal_and_their_difference_is_measured():
    other = {token: value - 0.05 for token, value in LIKELY.items()}
    found = compare([answer(("a", LIKELY))], [answer(("a", other))])
    assert found.equal
    assert found.worst == pytest.approx(0.05)


def test_another_token_is_forgiven_only_where_logits_are_flat():
    follows = ("b", LIKELY)
    clear = compare([answer(("a", LIKELY), follows)], [answer(("b", LIKELY), follows)])
    flat = compare([answer(("a", FLAT), follows)], [answer(("b", FLAT), follows)])
    assert (clear.equal, clear.flat) == (False, 0)
    assert (flat.equal, flat.flat) == (True, 1)


def test_nothing_is_compared_after_texts_part():
    strange = {"a": -9.0, "b": -0.1, "c": -5.0}
    found = compare([answer(("a", FLAT), ("a", LIKELY))], [answer(("b", FLAT), ("b", strange))])
    assert found.worst == 0


def test_the_error_of_logits_does_not_see_a_constant():
    shifted = {token: value + 1.5 for token, value in LIKELY.items()}
    assert logit_error([answer(("a", LIKELY))], [answer(("a", shifted))]) == pytest.approx(0)
    scaled = {token: value * 1.1 for token, value in LIKELY.items()}
    assert logit_error([answer(("a", LIKELY))], [answer(("a", scaled))]) == pytest.approx(0.1)


def test_answers_survive_their_file():
    kept = json.loads(json.dumps(sitting.packed([answer(("a", LIKELY))])))
    assert sitting.unpacked(kept) == [answer(("a", LIKELY))]


def test_a_step_is_done_once(tmp_path):
    steps, made = sitting.Steps(tmp_path, log=lambda line: None), []
    for _ in range(2):
        found = steps.run("one", lambda: made.append(1) or {"value": 7})
    assert (found["value"], len(made)) == (7, 1)


def test_a_step_that_fails_is_not_kept(tmp_path):
    steps = sitting.Steps(tmp_path, log=lambda line: None)
    with pytest.raises(ZeroDivisionError):
        steps.run("one", lambda: {"value": 1 // 0})
    assert steps.run("one", lambda: {"value": 7})["value"] == 7


def test_steps_beside_each_other_do_not_stop_one_another(tmp_path, capsys):
    script = tmp_path / "step.py"
    script.write_text(
        "import pathlib, sys\n"
        "out, name = sys.argv[2], sys.argv[4]\n"
        "pathlib.Path(out, name).touch() if name != 'bad' else sys.exit('it broke')\n"
    )
    sitting.together(str(script), ["--out", str(tmp_path)], ["one", "bad", "two"], 2)
    assert (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()
    assert "--- bad (exit status 1)\nit broke" in capsys.readouterr().out


def test_none_measures_while_an_engine_starts(tmp_path):
    measured = threading.Event()

    def measure():
        with sitting.measuring(tmp_path):
            measured.set()

    waiting = threading.Thread(target=measure)
    with sitting.starting(tmp_path), sitting.starting(tmp_path):
        waiting.start()
        assert not measured.wait(0.2)
    assert measured.wait(60)
    waiting.join()


def test_what_the_engine_says_is_read():
    log = "Model loading took 3.21 GiB memory\nGraph capturing finished in 12 secs, took 0.5 GiB"
    assert sitting.loaded_gib(log) == 3.21
    assert sitting.graphs_captured(log)
    assert not sitting.graphs_captured("Capturing CUDA graphs: 40%")
    assert sitting.loaded_gib("") is None


def test_the_proofs_of_the_kernels_are_read():
    log = (
        "(Worker pid=7) INFO 11-30 dense: model.layers.0.self_attn.o_proj (4096, 8192): relative"
        " error 0.0371, where fp8 should make 0.0370\nINFO dense: kda is fp8 (6 projections)\n"
    )
    assert sitting.products_proven(log) == {"o_proj (4096, 8192)": [0.0371, 0.0370]}


# --- the draft ------------------------------------------------------------------------------------


def test_the_draft_fits_its_target_and_sees_its_block_whole():
    target = {
        "hidden_size": 4096, "num_hidden_layers": 4, "vocab_size": 600,
        "max_position_embeddings": 65536,
    }  # fmt: skip
    made = draft.config(target)
    assert made["is_causal"] is False
    assert made["dflash_config"]["mask_token_id"] < 600
    assert max(made["dflash_config"]["target_layer_ids"]) < 4
    shapes = draft.shapes(made)
    assert shapes["fc.weight"] == (4096, 3 * 4096)
    assert shapes["candidate_selector.successor_codebook"] == (600, 64)
    assert shapes["layers.1.self_attn.k_proj.weight"] == (8 * 128, 4096)
    assert shapes["layers.0.mlp_conv.kernel_projection.weight"] == (2 * 4 * 64, 4096)
    assert not any("embed_tokens" in name or "lm_head" in name for name in shapes)


# --- the whole engine -----------------------------------------------------------------------------


def runs(**changes):
    one = {
        "answers": sitting.packed([answer(("a", LIKELY))]),
        "logits": sitting.packed([answer(("a", LIKELY))]),
        "argv": "vllm serve", "step_ms": 4.0, "prefix_hit": True, "drafted": 70.0,
        "weight_gib": 4.0, "graphs": True, "products": {},
    }  # fmt: skip
    rounded = sitting.packed([answer(("a", LIKELY | {"b": -2.4}))])
    as_expected = sitting.packed([answer(("a", LIKELY | {"b": -2.42}))])
    proven = {"o_proj (4096, 8192)": [0.04, 0.04]}
    lighter = {
        "dense_fp8": {"weight_gib": 3.0, "logits": rounded, "products": proven},
        "dense_q4": {"weight_gib": 2.0, "logits": rounded, "products": proven},
    }
    made = {name: one | lighter.get(name, {}) for name in engine.RUNS}
    made["expected"] = {"logits": {"bf16": one["logits"], "fp8": as_expected, "q4": as_expected}}
    made["broken"] = {"refusal": "EXL3_MISSING: model.layers.1.self_attn.o_proj.weight is missing"}
    return {name: run | changes.get(name, {}) for name, run in made.items()}


def test_a_good_sitting_has_the_named_keys_and_passes():
    found = engine.result(runs(dense_q4={"step_ms": 3.0}))
    assert engine.failed(found) == []
    same = ("exl3_equals_dense", "dflash2_lossless", "mtp_lossless")
    for key in (*same, "missing_refused", "graphs", "prefix_hit"):
        assert found[key] is True
    assert set(found["dense"]) == {"bf16", "fp8", "q4"}
    assert found["dense"]["q4"] == {
        "logit_error": pytest.approx(0.029, abs=1e-3),
        "expected_logit_error": pytest.approx(0.023, abs=1e-3),
        "from_expected": pytest.approx(0.006, abs=1e-3),
        "products": {"o_proj (4096, 8192)": [0.04, 0.04]},
        "weight_gb": pytest.approx(2.147, abs=1e-3),
        "step_ratio": 0.75,
    }


OTHER = sitting.packed([answer(("b", LIKELY))])
EXACT = sitting.packed([answer(("a", LIKELY))])
GARBAGE = sitting.packed([answer(("c", {"a": -5.0, "b": -3.0, "c": -0.1}))])


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"dense_twin": {"answers": OTHER}}, "exl3_equals_dense"),
        ({"dflash2": {"answers": OTHER}}, "dflash2_lossless"),
        ({"dflash2": {"drafted": 0.0}}, "dflash2_lossless"),
        ({"mtp": {"answers": OTHER}}, "mtp_lossless"),
        ({"mtp": {"graphs": False}}, "graphs"),
        ({"exl3": {"prefix_hit": False}}, "prefix_hit"),
        ({"broken": {"refusal": ""}}, "missing_refused"),
        ({"dense_q4": {"weight_gib": 3.5}}, "weights of the dense modes"),
        ({"dense_q4": {"logits": GARBAGE}}, "logits of q4"),
        ({"dense_fp8": {"logits": GARBAGE}}, "logits of fp8"),
        ({"dense_fp8": {"logits": EXACT}}, "logits of fp8"),
        ({"dense_q4": {"products": {}}}, "products of q4: none was looked at"),
    ],
)
def test_what_does_not_hold_is_named(changes, wrong):
    assert engine.failed(engine.result(runs(**changes))) == [wrong]


@pytest.mark.parametrize("script", ["engine.py", "pair/nccl.py"])
def test_a_dry_run_says_what_would_run(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(GPU / script), "--dry-run", "--engine", "/opt/engine", "--out",
         str(tmp_path / "out"), "--state", str(tmp_path / "state")],
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    assert "/opt/engine/bin/vllm serve" in done
    assert '"method":"dflash"' in done
    assert "--kv-cache-dtype fp8" in done
    assert "still to" in done
    if script == "pair/nccl.py":
        assert "--nnodes 2" in done
        assert "bare-sockets: freeze worker of rank 1, serving: " in done


# --- the pair -------------------------------------------------------------------------------------


def test_every_fault_is_done_bare_and_supervised():
    names = nccl.plan(["sockets"])
    assert len(set(names)) == len(names) == 2 + 2 + 1 + 2 * len(list(deaths.faults()))
    assert len({fault.name for fault in deaths.faults()}) == 12
    assert len({nccl.filed(name) for name in names}) == len(names)


class Waiting:
    """A client that learns of the fault when the process is gone."""

    def __init__(self, process):
        self.process, self.begun = process, False

    def begin(self):
        self.begun = True

    def failed(self):
        return deaths.is_gone(self.process)


@pytest.fixture
def two_ranks():
    """Stand-ins for the ranks' processes: a main and a worker by title, doing nothing."""
    made = []

    def start(title):
        code = "import time; print(flush=True); time.sleep(600)"
        made.append(subprocess.Popen([sys.executable, "-c", code, title], stdout=subprocess.PIPE))
        made[-1].stdout.readline()  # until it runs, its title is that of the process it came from
        return psutil.Process(made[-1].pid)

    ranks = [[start("main"), start("VllmWorker-0")] for _ in range(2)]
    yield ranks
    for process in made:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def test_the_named_process_is_hurt_and_times_are_taken(two_ranks):
    client = Waiting(two_ranks[1][1])
    pair = deaths.Pair(lambda rank: two_ranks[rank], lambda when: client, lambda: client.begun)
    fault = deaths.Fault("worker", 1, deaths.KILL, "serving")
    found = deaths.suffer(fault, pair, limit=5.0)
    assert found.client_knows is not None
    assert found.back is not None
    assert found.both_gone is None  # the others live on: nobody ends them here
    assert deaths.is_gone(two_ranks[1][1])
    assert not deaths.is_gone(two_ranks[1][0])


def test_a_frozen_process_is_let_go_afterwards(two_ranks):
    hit = two_ranks[0][0]
    pair = deaths.Pair(lambda rank: two_ranks[rank], lambda when: Waiting(hit))
    fault = deaths.Fault("main", 0, deaths.STOP, "idle")
    began = time.monotonic()
    found = deaths.suffer(fault, pair, limit=0.3)
    assert (found.client_knows, found.both_gone, found.back) == (None, None, None)
    assert time.monotonic() - began >= 0.3
    assert hit.status() != psutil.STATUS_STOPPED


def test_a_rank_without_a_worker_is_said(two_ranks):
    with pytest.raises(LookupError, match="no worker"):
        deaths.victim(two_ranks[0][:1], "worker")


def test_what_the_pair_shows_is_put_together():
    served = {
        "answers": sitting.packed([answer(("a", LIKELY))]), "step_ms": 4.0, "weight_gib": [2.0],
        "gpu_mib": [10], "graphs": True, "status": None,
    }  # fmt: skip
    row = {"client_knows": 1.0, "both_gone": 2.0, "back": 3.0}
    done = {name: served if name.startswith("tp") else row for name in nccl.plan(["sockets"])}
    done["tp2-sockets-none"] = served | {"step_ms": 3.0}
    found = nccl.result(done, ["sockets"])
    assert nccl.failed(found) == []
    assert found["links"]["sockets none"]["step_ratio"] == 0.75
    in_turns = nccl.result(done, ["sockets"], own_gpus=False)
    assert in_turns["links"]["sockets none"]["step_ratio"] is None
    done["supervised-sockets: kill main of rank 0, idle"] = row | {"back": None}
    done["tp2-sockets-none"] = served | {"answers": OTHER}
    assert nccl.failed(nccl.result(done, ["sockets"])) == [
        "sockets none: other tokens",
        "kill main of rank 0, idle: the pair did not come back",
    ]


@pytest.mark.parametrize(("when", "waits"), [("serving", True), ("idle", False)])
def test_only_a_client_of_a_serving_pair_waits_for_its_first_token(when, waits):
    """Who comes after the fault gets none, and the watch must begin at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = nccl.client_of(f"http://127.0.0.1:{silent.getsockname()[1]}", when)
        begun = threading.Thread(target=client.begin, daemon=True)
        begun.start()
        begun.join(0.5 if waits else 30)
        assert begun.is_alive() == waits
    begun.join(30)  # the server is gone: the request has failed
    assert not begun.is_alive()


@pytest.mark.parametrize(("gpus", "seen"), [(2, ["0", "1"]), (1, ["0", "0"])])
def test_ranks_share_a_gpu_only_where_there_is_one(gpus, seen, monkeypatch):
    monkeypatch.setattr(sitting, "devices", lambda: ["NVIDIA H200"] * gpus)
    assert [nccl.gpu_of(rank) for rank in (0, 1)] == seen
