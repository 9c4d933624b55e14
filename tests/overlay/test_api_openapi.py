"""The OpenAPI document: what is closed is not in it, what is refused is."""

import copy
import json

import pytest

from glm53_overlay.api import openapi, requests
from glm53_overlay.api.refusal import RefusedError

FOUND = {"responses": {"200": {"description": "ok"}, "422": {"description": "never sent"}}}


def corrected(*, keyed=True):
    paths = {
        requests.CHAT: {"post": FOUND, "parameters": []},
        "/v1/tokenize": {"post": FOUND},
        requests.MESSAGES: {"post": FOUND},
        "/health": {"get": FOUND},
        "/v1/models": {"get": FOUND},
        "/invocations": {"post": FOUND},
        "/ping": {"get": FOUND, "post": FOUND},
    }
    given = {"openapi": "3.1.0", "paths": copy.deepcopy(paths)}
    return openapi.corrected(given, keyed=keyed)


def statuses(document, path, method="post"):
    return set(document["paths"][path][method]["responses"])


def test_what_is_closed_is_not_described():
    paths = corrected()["paths"]
    assert "/invocations" not in paths
    assert set(paths["/ping"]) == {"get"}
    assert set(paths[requests.CHAT]) == {"post", "parameters"}


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        (requests.CHAT, "post", {"200", "400", "401", "408", "413", "429", "503"}),
        ("/v1/tokenize", "post", {"200", "400", "401", "408", "413", "429"}),
        ("/v1/models", "get", {"200", "401"}),
        ("/health", "get", {"200"}),
    ],
)
def test_every_status_is_described(path, method, expected):
    assert statuses(corrected(), path, method) == expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (requests.CHAT, "Refusal"),
        ("/v1/tokenize", "Refusal"),
        (requests.MESSAGES, "MessagesRefusal"),
    ],
)
def test_a_refusal_is_described_in_the_form_of_its_route(path, name):
    document = corrected()
    content = document["paths"][path]["post"]["responses"]["429"]["content"]["application/json"]
    assert content["schema"]["$ref"] == f"#/components/schemas/{name}"
    described = document["components"]["schemas"][name]
    said = json.loads(RefusedError(429, "server_full", "Full.").body(path))
    assert set(described["required"]) == set(said)
    assert set(described["properties"]["error"]["required"]) == set(said["error"])


def test_who_must_wait_is_told_how_long():
    answers = corrected()["paths"][requests.CHAT]["post"]["responses"]
    assert [code for code, one in answers.items() if "headers" in one] == ["429", "503"]


def test_the_key_is_described_where_one_is_set():
    document = corrected()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    secured = {path for path, item in document["paths"].items() if "security" in _first(item)}
    assert secured == {requests.CHAT, requests.MESSAGES, "/v1/tokenize", "/v1/models", "/ping"}
    document = corrected(keyed=False)
    assert "securitySchemes" not in document["components"]
    assert "401" not in statuses(document, requests.CHAT)


def _first(item):
    return next(value for value in item.values() if isinstance(value, dict))
