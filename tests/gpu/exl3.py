"""The EXL3 backend on a GPU: is it right, and how fast. One run, one JSON file.

    PYTHONPATH=overlay python tests/gpu/exl3.py --exl DIR --out DIR [--marlin FILE]

Exit status 1 when something is wrong or a bar is missed. See README.md beside this file.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import correctness
import extension
import layer
import timing
import torch
import triton

from glm53_overlay.exl3.kernels import ExtBackend

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 1024, 4096)
ALSO = (48, 96, 192, 256, 512, 2048)
"""Measured to see where the ways cross; not part of the bars."""


def floor_us(experts: Any, ids: torch.Tensor, gb_per_s: float) -> float:
    """Return how long reading the chosen experts' packed weights takes at the card's best."""
    parts = (experts.gate, experts.up, experts.down)
    each = sum(t[0].numel() * t.element_size() for p in parts for t in (p.trellis, p.suh, p.svh))
    return ids.unique().numel() * each / gb_per_s / 1000


def measure(raw: layer.Raw, ours: ExtBackend, marlin: Any, tokens: int, read: float) -> Any:
    """Return one row of the table; each time is the median of 50 graph replays, microseconds."""
    # Batches that choose other experts, one after the other: the cache holds those of one token.
    batches = [layer.batch(tokens) for _ in range(8 if tokens <= 32 else 2)]

    def us(make: Any) -> float:
        return round(timing.median_us([make(*batch) for batch in batches]), 1)

    direct = tokens * layer.TOP_K <= 256
    row: dict[str, Any] = {
        "tokens": tokens,
        "experts": batches[0][1].unique().numel(),
        "ours_us": us(lambda *batch: lambda: ours.run(*batch)),
        "raw_us": us(raw.moe),
        "coop_us": us(lambda *batch: raw.coop(*batch, slots=256)) if direct else None,
        "marlin_us": us(marlin.call) if marlin else None,
        "floor_us": round(floor_us(raw.experts, batches[0][1], read), 1),
    }
    best = min(row["raw_us"], row["coop_us"] or row["raw_us"])
    row["overhead_percent"] = round((row["ours_us"] / best - 1) * 100, 1)
    ways = {}
    for name in ("_sliced", "_tiled", "_unpacked"):
        limits = {"_sliced": 512, "_tiled": ours.workspace.tiled_tokens}
        unpacks = ours.workspace.block > 0  # not on GB10
        able = name != "_unpacked" or (unpacks and tokens >= 512)
        if 32 <= tokens <= limits.get(name, tokens) and able:
            ways[name[1:]] = us(
                lambda *batch, name=name: lambda: ours._sorted(getattr(ours, name), *batch)
            )
    row["ways_us"] = ways
    return row


def missed(rows: list[dict[str, Any]]) -> list[str]:
    """Return which bars the table does not meet."""
    found = []
    for row in rows:
        if row["tokens"] not in TOKENS:
            continue
        if row["overhead_percent"] > 5:
            found.append(f"{row['tokens']} tokens: {row['overhead_percent']} % over the best raw")
        if row["ours_us"] > row["raw_us"]:
            found.append(f"{row['tokens']} tokens: slower than exl3_moe alone")
    prefill = rows[[row["tokens"] for row in rows].index(4096)]
    if "unpacked" in prefill["ways_us"] and prefill["raw_us"] < 2 * prefill["ours_us"]:
        found.append("4096 tokens: less than twice as fast as exl3_moe")
    return found


def main() -> int:
    """Build, check, measure, write."""
    parser = argparse.ArgumentParser(description="EXL3 kernels: correctness and speed.")
    parser.add_argument("--exl", type=Path, required=True, help="exllamav3_ext of the 1.6.5 wheel")
    parser.add_argument("--out", type=Path, required=True, help="folder for exl3.json, tiles.json")
    parser.add_argument("--marlin", type=Path, help="_moe_C_stable_libtorch.abi3.so of vLLM 0.33.0")
    parser.add_argument("--build", type=Path, default=Path("/tmp/exl3-build"))
    options = parser.parse_args()
    began = time.monotonic()
    ext = extension.build(options.exl.resolve(), options.build)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    torch.manual_seed(0)
    experts, golden = layer.random_experts(), {}
    results = list(correctness.every(ext, experts, golden))
    wrong = [f"{r.name}: {r.detail}" for r in results if not r.ok]
    worst = max(float(r.detail) for r in results if r.detail[0].isdigit())
    print(f"{len(results)} comparisons, {len(wrong)} wrong, worst error {worst}", flush=True)
    print(*wrong, sep="\n", flush=True)

    memory = timing.read_gb_per_s()
    marlin = None
    if options.marlin:
        from marlin import Marlin

        marlin = Marlin(options.marlin, layer.COUNT, layer.HIDDEN, layer.INTERMEDIATE)
    ours = ExtBackend(experts, correctness.DEVICE, max(TOKENS), layer.TOP_K)
    raw, rows = layer.Raw(ext, experts), []
    for tokens in sorted(TOKENS + ALSO):
        rows.append(measure(raw, ours, marlin, tokens, memory["read"]))
        print(json.dumps(rows[-1]), flush=True)
    bars = missed(rows)
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_properties(0)
    written = {
        "device": {"name": device.name, "multiprocessors": device.multi_processor_count},
        "versions": {
            "exllamav3": "1.6.5",
            "vllm (Marlin)": "0.33.0" if marlin else None,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
        "command": "python tests/gpu/exl3.py --exl DIR --out DIR --marlin FILE",
        "bitwise": not any(text.startswith(("decode", "pack")) for text in wrong),
        "comparisons": {"made": len(results), "wrong": wrong, "worst_error": worst},
        "tolerance": correctness.TOLERANCE,
        "memory_gb_per_s": {name: round(value) for name, value in memory.items()},
        "workspace_mib": round(ours.workspace.mib),
        "rows": rows,
        "missed": bars,
    }  # fmt: skip
    (options.out / "exl3.json").write_text(json.dumps(written, indent=1) + "\n")
    (options.out / "tiles.json").write_text(json.dumps(golden, indent=0) + "\n")
    print(*bars, sep="\n")
    return 1 if wrong or bars else 0


if __name__ == "__main__":
    sys.exit(main())
