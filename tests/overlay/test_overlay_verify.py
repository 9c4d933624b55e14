"""The overlay's look at itself: a report in every case, also of a driver that fails."""

import json
from types import SimpleNamespace

import pytest

from glm53_overlay import verify

UNBUILT = "CUDA error: no kernel image is available"


def fail(*_):
    """Stand in for kernels that were built for another GPU."""
    raise RuntimeError(f"{UNBUILT}\nCompile with TORCH_USE_CUDA_DSA")


@pytest.mark.parametrize("make", [fail, lambda *_: SimpleNamespace(run=fail)])
def test_an_error_of_the_driver_is_a_failed_check(make, monkeypatch, capsys):
    monkeypatch.setattr(verify, "random_experts", lambda device: None)
    monkeypatch.setattr(verify, "make_backend", make)
    monkeypatch.setattr("sys.argv", ["verify", "--device", "cpu"])
    assert verify.main() == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["name"] for check in checks if check["ok"]][:2] == ["vllm", "contract"]
    assert {check["detail"] for check in checks if not check["ok"]} == {UNBUILT}


def test_all_well_on_a_cpu(monkeypatch, capsys):
    monkeypatch.setattr(verify, "TOKENS", {"cpu": (1,)})
    monkeypatch.setattr(verify, "EXPERTS", 2)
    monkeypatch.setattr(verify, "TOP_K", 2)
    monkeypatch.setattr("sys.argv", ["verify", "--device", "cpu"])
    assert verify.main() == 0
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert names == ["vllm", "contract", "backend", "1 tokens", "1 tokens again"]
