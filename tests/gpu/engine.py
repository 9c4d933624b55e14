"""The whole engine on one GPU: vLLM 0.33.0 with our argv and a small true GLM-5.3 checkpoint.

    ENGINE/bin/python tests/gpu/engine.py --engine ENGINE --exl DIR --out DIR [--state DIR]

ENGINE is an environment that `carry.py install` made, DIR of --exl the unpacked sources
`exllamav3/exllamav3_ext`. Steps that are done are not done again: call it until it prints its
result. `--dry-run` says what would run, and reads its results from what is in --state.
Exit status 1 when something that must hold does not.
"""

import contextlib
import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sitting
from carry import site_packages
from sitting import Server, Steps, compare, logit_error, unpacked

from glm53ctl.config.schema import Config

LAYOUT = "glm5_next_real"
COMMAND = "python tests/gpu/engine.py --engine ENGINE --exl DIR --out DIR"

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "exl3": ("exl3", {}),
    "dense_twin": ("dense", {}),
    "dflash2": ("exl3", {"spec": {"method": "dflash"}}),
    "mtp": ("exl3", {"spec": {"method": "mtp"}}),
    "dense_fp8": ("exl3", {"dense": "fp8"}),
    "dense_q4": ("exl3", {"dense": "q4"}),
}
"""The engine's starts: which checkpoint, and what of the configuration is otherwise."""

MODES = {"bf16": "exl3", "fp8": "dense_fp8", "q4": "dense_q4"}
"""The start that shows each dense mode."""

LOGIT_MARGIN = 1.5
"""How many times what the reference makes of the same weights the error of a mode may be: vLLM
rounds to BF16 everywhere beside, and what is added up in another order may round the other way."""

EXPECTED = "expected"
"""The step that computes the logits of each mode without vLLM."""
BROKEN = "broken"
"""The step that starts an engine without one of the checkpoint's native tensors."""
GONE = "layers.1.self_attn.o_proj.weight"
STEPS = (*RUNS, EXPECTED, BROKEN)


def configured(root: Path, engine: Path, name: str) -> Config:
    """Return the configuration of a start, written below `root`."""
    checkpoint, changes = RUNS.get(name, (name, {}))
    values = sitting.settings(root, engine, checkpoint, STEPS.index(name), **changes)
    values["paths"] = {"state_dir": str(root / "state"), "run_dir": str(root / "run")}
    return sitting.read(root / f"{name}.yaml", values)


def expect(root: Path) -> dict[str, Any]:
    """Compute the first logits of the dense twin, in each mode."""
    import expected

    answers = expected.first_logits(root / "dense", list(MODES), sitting.PROMPTS, "cuda")
    return {
        "logits": {mode: sitting.packed(each) for mode, each in zip(MODES, answers, strict=True)}
    }


def refuse(root: Path, engine: Path) -> dict[str, Any]:
    """Start an engine whose checkpoint lacks GONE, and return the overlay's refusal, if any."""
    sitting.leave_out(root / "exl3", root / BROKEN, GONE)
    server = Server(configured(root, engine, BROKEN), root / f"{BROKEN}.log")
    with contextlib.suppress(SystemExit), sitting.starting(root), server:
        return {"refusal": ""}
    found = re.search(r"EXL3_MISSING: .*", server.log.read_text(errors="replace"))
    return {"refusal": found[0] if found else server.tail()}


def serve(root: Path, engine: Path, name: str) -> dict[str, Any]:
    """Start one engine, ask it everything, and return what it said."""
    config, log = configured(root, engine, name), root / f"{name}.log"
    os.environ["CUDA_VISIBLE_DEVICES"] = str(list(RUNS).index(name) % len(sitting.devices()))
    with contextlib.ExitStack() as stack:
        with sitting.starting(root):
            server = stack.enter_context(Server(config, log))
            sitting.ask(server.url, sitting.PROMPTS[0])  # compiles what only requests need
        stack.enter_context(sitting.measuring(root))
        result: dict[str, Any] = {
            "answers": sitting.packed(sitting.ask_all(server.url)),
            "logits": sitting.packed(sitting.first_logits(server.url)),
            "argv": sitting.argv_of(config, root),
            "step_ms": round(sitting.step_ms(server.url), 3),
            "prefix_hit": sitting.prefix_hit(server.url),
            "drafted": sitting.counters(server.url).get(
                "vllm:spec_decode_num_draft_tokens_total", 0.0
            ),
        }
    said = log.read_text(errors="replace")
    return result | {
        "weight_gib": sitting.loaded_gib(said),
        "graphs": sitting.graphs_captured(said),
        "products": sitting.products_proven(said),
    }


def do(root: Path, engine: Path, name: str) -> dict[str, Any]:
    """Do one step by its name."""
    if name == EXPECTED:
        return expect(root)
    return refuse(root, engine) if name == BROKEN else serve(root, engine, name)


def prepare(root: Path, engine: Path, sources: Path) -> dict[str, Any]:
    """Build exllamav3's kernels into the engine, and beside that write the checkpoints."""
    import extension

    with ThreadPoolExecutor() as pool:
        written = pool.submit(sitting.make_checkpoints, root, LAYOUT, "cuda")
        built = Path(str(extension.build(sources.resolve(), root / "ext").__file__))
        written.result()
    shutil.copy(built, site_packages(str(engine / "bin/python")))
    as_two_hosts(engine)
    without_every_variant(engine)
    return {"extension": built.name}


def as_two_hosts(engine: Path) -> None:
    """Let `vllm` leave out its own all-reduce through NVLink when there are two ranks.

    vLLM sees that both GPUs are of one host, whatever NCCL is told, and then fails: each rank was
    given one GPU, and it looks for the other's. The product has no such wrapper; between two hosts
    there is nothing to leave out.
    """
    vllm, plain = engine / "bin/vllm", engine / "bin/vllm.plain"
    if plain.exists():
        return
    vllm.rename(plain)
    vllm.write_text(
        "#!/bin/sh\n"
        'case " $* " in *" --nnodes 2 "*) set -- "$@" --disable-custom-all-reduce ;; esac\n'
        f'exec {plain} "$@"\n'
    )
    vllm.chmod(0o755)


def without_every_variant(engine: Path) -> None:
    """Let vLLM compile what is used when it is used, not every variant of every kernel: minutes.

    Its own setting for that, `enable_jit_warmup`, is none for this model: it leaves out the
    warm-up's requests, which reserve FlashKDA's workspace, and the first prompt ends the engine.
    """
    installed = site_packages(str(engine / "bin/python"))
    place = installed / "vllm/model_executor/warmup/kernel_warmup.py"
    asked = "enable_jit_warmup = worker.vllm_config.kernel_config.enable_jit_warmup\n"
    never = "enable_jit_warmup = False\n"
    text = place.read_text()
    if text.count(asked) + text.count(never) != 1:
        raise SystemExit(f"{place}: vLLM's warm-up is not where it was")
    place.write_text(text.replace(asked, never))


def result(done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the runs show. Pure: their results in, the file's content out."""
    runs = {name: done[name] for name in RUNS}
    answers = {name: unpacked(run["answers"]) for name, run in runs.items()}
    logits = {name: unpacked(run["logits"]) for name, run in runs.items()}
    base = done["exl3"]
    pairs = {name: compare(answers["exl3"], answers[name]) for name in answers if name != "exl3"}

    def error(name: str) -> float:
        return round(logit_error(logits["exl3"], logits[name]), 5)

    def mode(name: str) -> dict[str, Any]:
        run, expected = done[MODES[name]], done[EXPECTED]["logits"]
        exact, rounded = unpacked(expected["bf16"]), unpacked(expected[name])
        return {
            "logit_error": error(MODES[name]),
            "expected_logit_error": round(logit_error(exact, rounded), 5),
            "from_expected": round(logit_error(rounded, logits[MODES[name]]), 5),
            "products": run["products"],
            "weight_gb": round(run["weight_gib"] * 1.073741824, 3) if run["weight_gib"] else None,
            "step_ratio": ratio(MODES[name]),
        }

    def ratio(name: str) -> float:
        return sitting.step_ratio(done[name], base)

    twin = pairs["dense_twin"]
    return {
        "exl3_equals_dense": twin.equal and twin.worst <= sitting.WITHIN,
        "dflash2_lossless": pairs["dflash2"].equal and done["dflash2"]["drafted"] > 0,
        "mtp_lossless": pairs["mtp"].equal and done["mtp"]["drafted"] > 0,
        "missing_refused": GONE in done[BROKEN]["refusal"],
        "refusal": done[BROKEN]["refusal"],
        "graphs": all(run["graphs"] for run in runs.values()),
        "prefix_hit": base["prefix_hit"],
        "dense": {name: mode(name) for name in MODES},
        "step_ms": {name: run["step_ms"] for name, run in runs.items()},
        "step_ratio": {name: ratio(name) for name in ("dflash2", "mtp")},
        "drafted": {name: done[name]["drafted"] for name in ("dflash2", "mtp")},
        "logit_error": {name: error(name) for name in ("dense_twin", "dflash2", "mtp")},
        "parted_where_flat": {name: pair.flat for name, pair in pairs.items()},
        "worst_logprob": {name: round(pairs[name].worst, 4) for name in ("dense_twin",)},
        "bounds": {"flat": sitting.FLAT, "logprob": sitting.WITHIN},
        "argv": {name: run["argv"] for name, run in runs.items()},
    }


def failed(found: dict[str, Any]) -> list[str]:
    """Return what must hold and does not."""
    must = (
        "exl3_equals_dense",
        "dflash2_lossless",
        "mtp_lossless",
        "missing_refused",
        "graphs",
        "prefix_hit",
    )
    wrong = [name for name in must if not found[name]]
    dense = found["dense"]
    for name in ("fp8", "q4"):
        if not 0 < dense[name]["logit_error"] <= LOGIT_MARGIN * dense[name]["expected_logit_error"]:
            wrong.append(f"logits of {name}")
        if not dense[name]["products"]:
            wrong.append(f"products of {name}: none was looked at")
    lighter = [each["weight_gb"] for each in dense.values()]
    if None in lighter or lighter != sorted(lighter, reverse=True):
        wrong.append("weights of the dense modes")
    return wrong


def main() -> int:
    """Run what is left to run; write the result when all of it is there."""
    parser = sitting.parser("The whole engine on one GPU.")
    parser.add_argument("--only", choices=STEPS, nargs="*", help="these steps alone")
    given = parser.parse_args()
    root, steps = given.state, Steps(given.state / "steps")
    if given.dry_run:
        for name in RUNS:
            print(f"{name}: {sitting.argv_of(configured(root, given.engine, name), root)}")
    else:
        steps.run("prepare", lambda: prepare(root, given.engine, given.exl))
        asked = list(STEPS) if given.only is None else given.only
        if given.together:
            sitting.together(__file__, sitting.shared(given), asked, given.together)
        else:
            for name in asked:
                steps.run(name, lambda name=name: do(root, given.engine, name))
    kept = {name: steps.folder / f"{name}.json" for name in STEPS}
    if missing := [name for name, path in kept.items() if not path.exists()]:
        print(f"still to run: {' '.join(missing)}")
        return 0
    found = result({name: json.loads(path.read_text()) for name, path in kept.items()})
    given.out.mkdir(parents=True, exist_ok=True)
    written = sitting.described(COMMAND) | found
    (given.out / "engine.json").write_text(json.dumps(written, indent=1) + "\n")
    print(json.dumps({key: written[key] for key in ("exl3_equals_dense", "dense", "graphs")}))
    wrong = failed(found)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
