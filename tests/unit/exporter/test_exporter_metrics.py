"""The metrics: their names, what they say of a view, and their page."""

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.core import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from promql import PROMTOOL, needs_promtool
from unit.status.pictures import NOW, config, report
from unit.view.views import HEAD, WORKER, starting, view

from glm53ctl.exporter import PairCollector, page, render
from glm53ctl.exporter.table import METRICS
from glm53ctl.status.snapshot import assemble
from glm53ctl.view.model import PairView

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
LABELS = {metric.name: metric.labels for metric in METRICS}
UNITS = ("bytes", "celsius", "hertz", "ratio", "seconds", "tokens", "watts")
WITHOUT_UNIT = {
    "glm53_build_info",
    "glm53_engine_preemptions_total",
    "glm53_engine_requests_running",
    "glm53_engine_requests_waiting",
    "glm53_node_gpu_throttled",
    "glm53_node_rail_errors_total",
    "glm53_node_rail_up",
    "glm53_pair_epoch",
    "glm53_pair_finding",
    "glm53_pair_ready",
    "glm53_pair_state",
    "glm53_rank_crashes",
    "glm53_rank_heard",
    "glm53_watchdog_alive",
}
"""States and counts; whatever is measured names its unit."""


def samples(seen: PairView) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what a scrape tells, by name and by the values of the labels in their order."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(render(seen).decode()):
        for sample in family.samples:
            labels = tuple(sample.labels[label] for label in LABELS[sample.name])
            assert labels not in found.setdefault(sample.name, {}), f"{sample} comes twice"
            found[sample.name][labels] = sample.value
    return found


def test_the_page_is_the_table():
    assert PAGE.read_text() == page.render(), "run python -m glm53ctl.exporter.page"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_says_the_unit(metric):
    assert re.fullmatch(r"glm53(_[a-z0-9]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    has_unit = metric.name.removesuffix("_total").endswith(UNITS) or "_per_second" in metric.name
    assert has_unit != (metric.name in WITHOUT_UNIT)
    assert metric.help.endswith(".")


def test_no_name_is_there_twice():
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_each_metric_is_told_by_one_view_or_another():
    told = samples(view()).keys() | samples(starting()).keys()
    assert {metric.name for metric in METRICS} - told == set()


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("glm53_pair_ready", (), 1.0),
        ("glm53_pair_state", ("ready",), 1.0),
        ("glm53_pair_state", ("held",), 0.0),
        ("glm53_pair_last_loss_timestamp_seconds", ("RANK_LOST", "", "1"), 999_950.0),
        ("glm53_watchdog_alive", (), 0.0),
        ("glm53_rank_heard", ("1", "b"), 1.0),
        ("glm53_rank_crashes", ("1", "b"), 1.0),
        ("glm53_rank_start_seconds", ("0", "a"), 500.0),
        ("glm53_engine_kv_pool_tokens", (), 982_612.0),
        ("glm53_engine_kv_pool_used_ratio", (), 0.25),
        ("glm53_engine_ttft_seconds", ("95",), 2.5),
        ("glm53_engine_inter_token_seconds", ("50",), 0.02),
        ("glm53_engine_draft_accepted_ratio", ("2",), 0.5),
        ("glm53_engine_accepted_length_tokens", (), 3.5),
        ("glm53_engine_preemptions_total", (), 4.0),
        ("glm53_node_memory_available_bytes", ("a",), 7.5 * 2**30),
        ("glm53_node_memory_pressure_ratio", ("a", "full"), 0.01),
        ("glm53_node_gpu_clock_hertz", ("a", "0"), 2.1e9),
        ("glm53_node_gpu_busy_ratio", ("a", "0"), 0.97),
        ("glm53_node_gpu_throttled", ("a", "0", "power cap"), 1.0),
        ("glm53_node_rail_up", ("a", "enp1s0f1np1"), 0.0),
        ("glm53_node_rail_speed_bytes_per_second", ("a", "enp1s0f0np0"), 25e9),
        ("glm53_node_rail_errors_total", ("a", "enp1s0f0np0"), 3.0),
        ("glm53_bench_timestamp_seconds", ("decode",), 1_790_856_000.0),
    ],
)
def test_a_value_is_in_base_units(name, labels, value):
    assert samples(view())[name][labels] == pytest.approx(value)


def test_what_is_not_known_has_no_sample():
    told = samples(starting())
    assert not any(name.startswith("glm53_engine") for name in told)
    assert "glm53_node_rail_up" not in told
    assert told["glm53_pair_ready"] == {(): 0.0}
    assert told["glm53_rank_heard"] == {("1", "b"): 1.0}
    assert told["glm53_rank_stage_ratio"] == {("1", "b", "load"): pytest.approx(0.4)}
    assert told["glm53_pair_finding"] == {("MEM_FOREIGN", "fail", "b"): 1.0}


def test_a_host_without_a_supervisor_tells_of_its_own_rank_alone():
    """What the other rank does, nobody there can know: it is heard by its own host."""
    nodes = (HEAD.model_copy(update={"here": False}), WORKER.model_copy(update={"here": True}))
    alone = view(snapshot=assemble(config(), {}, NOW), engine=None, nodes=nodes)
    assert samples(alone)["glm53_rank_heard"] == {("1", "b"): 0.0}
    head = view(snapshot=assemble(config(), {0: report(0)}, NOW))
    assert samples(head)["glm53_rank_heard"] == {("0", "a"): 1.0, ("1", "b"): 0.0}


def test_what_one_rail_does_not_say_is_no_0():
    told = samples(view())
    assert told["glm53_node_rail_speed_bytes_per_second"].keys() == {("a", "enp1s0f0np0")}
    assert told["glm53_node_rail_errors_total"].keys() == {("a", "enp1s0f0np0")}


def test_a_node_tells_of_itself_alone():
    told = samples(view())
    assert told["glm53_node_memory_available_bytes"].keys() == {("a",)}
    both_here = (HEAD, WORKER.model_copy(update={"here": True}))
    assert samples(view(nodes=both_here))["glm53_node_memory_floor_bytes"].keys() == {("a",)}


def test_registering_does_not_look_at_the_pair():
    def looks() -> PairView:
        raise AssertionError("nobody scraped")

    CollectorRegistry().register(PairCollector(looks))


@needs_promtool
def test_promtool_has_nothing_to_say():
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=render(view()), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
