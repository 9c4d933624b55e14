"""docs/reliability.md and its picture: made of the measurements, never by hand."""

from pair import picture, table


def test_the_page_is_what_was_measured():
    made = table.page(table.read())
    assert table.PAGE.read_text() == made, "run python -m tests.pair.table --page"


def test_a_median_is_never_where_most_runs_were():
    assert table.middle([1.0, None, 3.0]) == 3.0
    assert table.middle([None, 2.0, None]) is None


def test_the_picture_has_the_faults_that_both_sides_had(tmp_path):
    results = {"faults": []}
    for fault in ("kill_main_0", "power_loss_both", "spare_rail"):
        for side in picture.SIDES:
            run = {"detect_s": None, "stopped_s": None, "serving_s": 40.0}
            table.entry(results, fault, side).update(run, runs=[run])
    table.entry(results, "kill_worker_0", "glm53").update(run, runs=[run])
    picture.draw(results, tmp_path / "it.svg")
    drawn = (tmp_path / "it.svg").read_text()
    assert "SIGKILL to the main process of the engine on the head" in drawn
    assert "power loss of both hosts" in drawn
    assert "second rail pulled" not in drawn  # which nothing has to follow
    assert "SIGKILL to the worker process on the head" not in drawn  # one side alone


def test_what_never_came_stands_apart_in_the_picture():
    for panel in picture.PANELS:
        begins, stands = panel.never
        assert panel.place(panel.ticks[-1]) < begins < panel.place(None) == stands
        assert panel.place(panel.ticks[0] / 2) == panel.ticks[0]
