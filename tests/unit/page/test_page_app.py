"""What the page answers, to whom, and with which headers."""

import json
import re
from importlib.resources import files

import pytest
from page.views import SECRET_LINE, STATES, ready
from pages import client
from prometheus_client.parser import text_string_to_metric_families

from glm53ctl.errors import UserError
from glm53ctl.page.app import ASSETS
from glm53ctl.supervise.stages import Stage

ROUTES = (*ASSETS, "/api/view", "/metrics", "/healthz")


def refused():
    raise UserError("CFG_FILE", "Cannot read /etc/glm53/config.yaml.", "Mend it.")


def broken():
    raise ZeroDivisionError


@pytest.mark.parametrize("path", [*ROUTES, "/nothing"])
def test_every_answer_has_the_strict_headers(path):
    headers = client().get(path).headers
    policy = headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert not re.search("unsafe|data:|http|[*]", headers["content-security-policy"])
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", [*ROUTES, "/events"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(path, method):
    assert client().request(method, path).status_code == 405


@pytest.mark.parametrize("path", [*ROUTES, "/events"])
def test_head_asks_for_headers_only(path):
    answer = client().head(path)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8890", "[::1]", "[::1]:8890", "spark-head", "SPARK-HEAD:8890"]
)
def test_own_names_are_answered(host):
    assert client().get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8890", "spark-head.evil.example", "10.0.0.7", "", "::1"]
)
def test_a_name_that_another_may_point_here_is_refused(host):
    for path in ("/", "/api/view", "/events"):
        answer = client().get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "spark" not in answer.text


def test_pages_of_other_sites_may_link_here_and_nothing_else():
    site = {"sec-fetch-site": "cross-site"}
    assert client().get("/", headers=site | {"sec-fetch-mode": "navigate"}).status_code == 200
    assert client().get("/events", headers=site | {"sec-fetch-mode": "no-cors"}).status_code == 403
    own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert client().get("/api/view", headers=own).status_code == 200


def test_the_page_asks_for_nothing_elsewhere_and_has_nothing_inline():
    html = client().get("/").text
    asked = re.findall(r"(?:src|href)=\"([^\"#]+)\"", html)
    assert set(asked) <= {*ASSETS, "/metrics", "/api/view"}
    assert not re.search(r"<style|style=|\son\w+=|<script>", html)
    for name, _ in ASSETS.values():
        text = files("glm53ctl.page").joinpath("assets", name).read_text()
        assert re.findall(r"https?://[^\s\"'/]+", text.replace("http://www.w3.org/", "")) == []
        assert not re.search("innerHTML|insertAdjacent|document.write|eval\\(", text)


@pytest.mark.parametrize("state", STATES)
def test_the_view_is_told_without_lines_of_logs(state):
    answer = client(lambda: STATES[state](0)).get("/api/view")
    told = json.loads(answer.text)
    assert told["view"]["snapshot"]["ranks"][0]["node"] == "spark-head"
    assert told["view"]["incidents"][0]["cause"]["fix"]
    assert told["stages"] == [stage.value for stage in Stage][:-1]
    assert SECRET_LINE not in answer.text
    assert '"peers"' not in answer.text


def test_numbers_that_json_lacks_are_unknown():
    view = ready()
    hot = view.engine.model_copy(update={"generation_tokens_per_s": float("inf")})
    text = client(lambda: view.model_copy(update={"engine": hot})).get("/api/view").text
    assert json.loads(text)["view"]["engine"]["generation_tokens_per_s"] is None
    assert "Infinity" not in text


def test_metrics_are_the_exporters():
    answer = client().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert any(name.startswith("glm53_") for name in names)


@pytest.mark.parametrize("source", [refused, broken])
def test_a_pair_that_cannot_be_looked_at_is_said_and_survived(source):
    page = client(source)
    told = page.get("/api/view")
    assert told.status_code == 503
    assert told.json()["headline"]["word"] == "unknown"
    assert told.json()["view"] is None
    assert page.get("/metrics").status_code == 503
    assert page.get("/healthz").text == "ok\n"
    assert page.get("/").status_code == 200
