"""Times calls by CUDA events around replays of a CUDA graph."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

Call = Callable[[], Any]


def capture(calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
    """Run the calls once, then record them one after the other into a graph."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def median_us(calls: Sequence[Call], repeats: int = 50, warm: int = 5) -> float:
    """Return the median time of one call in microseconds, over `repeats` replays of all of them.

    Give several calls that read other weights: one alone would find its experts in the cache.
    """
    graph = capture(calls)
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for _ in range(warm):
        graph.replay()
    for start, end in pairs:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    times = [start.elapsed_time(end) for start, end in pairs]
    graph.reset()
    return statistics.median(times) * 1000 / len(calls)


def read_gb_per_s(gib: int = 8) -> dict[str, float]:
    """Measure what the card's memory gives: reading alone, and copying (bytes read and written)."""
    source = torch.randint(-(1 << 31), 1 << 31, (gib << 28,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    size = source.numel() * source.element_size()
    rows = source.view(torch.float32).view(-1, 1 << 14)
    result = torch.empty(len(rows), device="cuda")
    read = median_us([lambda: torch.amax(rows, 1, out=result)], repeats=20)
    copy = median_us([lambda: target.copy_(source)], repeats=20)
    return {"read": size / read / 1000, "copy": 2 * size / copy / 1000}
