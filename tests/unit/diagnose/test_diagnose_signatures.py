"""Every signature is reached by a line of its own, and says something whole about it."""

import re
from pathlib import Path

import pytest
from cases.case import read_cases

from glm53ctl.config.rules import RULES
from glm53ctl.config.rules.passthrough import MORE_ENV
from glm53ctl.diagnose import SIGNATURES
from glm53ctl.diagnose.signature import fill, groups_of
from glm53ctl.plan import owned_env

CASES = Path(__file__).parents[2] / "cases"
FURTHER = [
    "glm53-rank0.service: Watchdog timeout (limit 1min)!",
    "glm53-rank0.service: Failed with result 'oom-kill'.",
    "SSL: CERTIFICATE_VERIFY_FAILED: certificate has expired",
    "RuntimeError: No CUDA GPUs are available",
    "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'",
    "ValueError: There is no module or parameter named 'foo' in Glm5NextForCausalLM",
    "vllm serve: error: unrecognized arguments: --no-such-flag",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "TimeoutError: RPC call to sample_tokens timed out.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "WARNING [network_utils.py:50] Failed to get the IP address, using 0.0.0.0 by default. The "
    "value can be set by the environment variable VLLM_HOST_IP.",
    "RuntimeError: Mismatched NCCL version detected",
    "OSError: [Errno 5] Input/output error: '/srv/model/a.safetensors'",
    "HTTP/1.1 401 X-Error-Message: Invalid credentials in Authorization header",
    "huggingface_hub.errors.RevisionNotFoundError: 404 Client Error. Invalid rev id: 25a44fdb",
    "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. Repository Not Found",
    "ValueError: This model's maximum context length is 900000 tokens.",
    "ValueError: At most 4 image(s) may be provided in one prompt.",
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:3690, unhandled system error",
    "EngineCore encountered a fatal error.",
    "ValueError: Free memory on device cuda:0 (70.00/121.69 GiB) on startup is less than desired "
    "GPU memory utilization (0.85, 103.44 GiB).",
    "pydantic_core.ValidationError: 1 validation error for ModelConfig",
    "  Value error, the checkpoint has model type `glm5_next`, which is not known.",
]
"""Lines of signatures that no case holds."""


def all_lines() -> list[str]:
    files = ("failures.yaml", "more.yaml")
    cases = [case for file in files for case in read_cases(CASES / file)]
    texts = [text for case in cases for text in case.files.values()]
    return [line for text in texts for line in text.splitlines()] + FURTHER


LINES = all_lines()


def first(signature):
    """Return the first line that a signature would be tried on and matches."""
    for line in LINES:
        found = signature.main.search(line)
        if found and any(text in line for text in signature.literals):
            groups = groups_of(found)
            if signature.when is None or signature.when(groups):
                return line, groups
    return None


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: f"{s.code}-{s.literals[0]}")
def test_a_signature_matches_a_line_that_holds_one_of_its_texts(signature):
    assert first(signature) is not None


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: f"{s.code}-{s.literals[0]}")
def test_what_it_says_is_whole_whatever_the_line_told(signature):
    found = first(signature)
    assert found is not None
    for template in (signature.message, signature.fix):
        said = fill(template, found[1])
        assert not re.search(r"[{}]|<[^<>]*>", said), said


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: f"{s.code}-{s.literals[0]}")
def test_further_lines_are_found_by_a_text_of_the_signature(signature):
    for pattern in signature.further:
        matching = [line for line in LINES if pattern.search(line)]
        assert matching, pattern.pattern
        assert any(any(text in line for text in signature.literals) for line in matching)


def test_a_part_in_brackets_is_left_out_when_its_group_is_unknown():
    assert fill("lost< on {hca}>.", {}) == "lost."
    assert fill("lost< on {hca}>.", {"hca": "rocep1s0f0"}) == "lost on rocep1s0f0."


def test_sizes_in_kb_are_said_in_gib():
    assert fill("{shmem_gib} GiB", {"shmem_kb": "65011712"}) == "62.0 GiB"


def test_no_fix_sends_to_the_extra_environment_what_is_refused_there():
    fixes = [one.fix for one in (*SIGNATURES, *RULES)]
    refused = owned_env() | MORE_ENV.keys()
    sent = [fix for fix in fixes if "engine.extra_env" in fix and "Remove" not in fix]
    assert [fix for fix in sent if refused & set(re.findall(r"[A-Z][A-Z0-9_]+", fix))] == []
