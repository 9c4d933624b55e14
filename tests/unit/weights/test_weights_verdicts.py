"""What faults mean: text and numbers in, findings out."""

import ssl

import pytest

from glm53ctl.findings import Severity
from glm53ctl.weights import (
    judge_owner,
    judge_pair,
    judge_reference,
    judge_response,
    judge_space,
    judge_stall,
)
from glm53ctl.weights.transfer import judge_os_error
from glm53ctl.weights.verdicts import pause_seconds

REPO, COMMIT = "org/model", "25a44fdb" + "0" * 32


def response(status: int, headers: dict[str, str] | None = None, **options):
    return judge_response(status, headers or {}, REPO, COMMIT, **options)


@pytest.mark.parametrize(
    ("status", "headers", "had_token", "code", "severity"),
    [
        (429, {}, False, "FETCH_RATE_LIMITED", "warn"),
        (401, {"X-Error-Code": "GatedRepo"}, False, "FETCH_GATED", "fail"),
        (403, {"x-error-code": "GatedRepo"}, True, "FETCH_GATED", "fail"),
        (401, {}, True, "FETCH_BAD_TOKEN", "warn"),
        (401, {"X-Error-Code": "RepoNotFound"}, False, "FETCH_REPO_MISSING", "warn"),
        (404, {"X-Error-Code": "RepoNotFound"}, False, "FETCH_REPO_MISSING", "warn"),
        (404, {"X-Error-Code": "RevisionNotFound"}, False, "FETCH_REVISION_MISSING", "fail"),
        (404, {"X-Error-Code": "EntryNotFound"}, False, "FETCH_FILE_MISSING", "warn"),
        (503, {}, False, "FETCH_FAILED", "warn"),
    ],
)
def test_a_status_means_something(status, headers, had_token, code, severity):
    finding = response(status, headers, had_token=had_token)
    assert (finding.code, finding.severity) == (code, severity)


def test_a_fallback_is_named_where_it_helps():
    assert "other/model" in response(404, fallback="other/model").fix
    assert "MODEL_FALLBACK" in response(404).fix


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after": "100000"}, 300),
        ({"ratelimit": '"resolvers";r=0;t=55'}, 55),
        ({"Retry-After": "never"}, 60),
        ({"Retry-After": "²"}, 60),
        ({}, 60),
        (
            {
                "Retry-After": "Sun, 20 Sep 2026 10:00:09 GMT",
                "Date": "Sun, 20 Sep 2026 10:00:00 GMT",
            },
            9,
        ),
        ({"Retry-After": "Sun, 20 Sep 2026 10:00:09 GMT"}, 60),  # nothing to compare it with
    ],
)
def test_a_pause_is_as_long_as_the_server_says_within_reason(headers, seconds):
    assert pause_seconds(headers) == seconds


def test_a_stall_is_counted_from_the_last_byte():
    samples = [(0.0, 5), (60.0, 9), (120.0, 9), (179.0, 9)]
    assert judge_stall(samples, 0) is None
    finding = judge_stall([*samples, (180.0, 9)], 0)
    assert finding is not None
    assert finding.severity is Severity.WARN
    assert "120 s" in finding.message
    assert judge_stall([*samples, (180.0, 10)], 0) is None
    assert judge_stall([], 0) is None


def test_the_third_stall_fails():
    samples = [(0.0, 9), (200.0, 9)]
    assert [judge_stall(samples, n).severity for n in range(3)] == ["warn", "warn", "fail"]


@pytest.mark.parametrize(
    ("client", "helps"), [("hf-xet==1.5.1", True), ("hf-xet 1.5.3", False), ("", False)]
)
def test_only_an_old_xet_is_told_to_stay_away(client, helps):
    finding = judge_stall([(0.0, 9), (180.0, 9)], 1, client=client)
    assert finding is not None
    assert ("HF_HUB_DISABLE_XET=1" in finding.fix) == helps


def test_space_is_judged_by_what_is_missing():
    gib = 1 << 30
    assert judge_space(0, 0, "/w") is None
    assert judge_space(10 * gib, 20 * gib, "/w") is None
    finding = judge_space(10 * gib, 20 * gib - 1, "/w", {"a.incomplete": gib})
    assert finding is not None
    assert "20.0 GiB are needed" in finding.message
    assert "1.0 GiB" in finding.fix


@pytest.mark.parametrize(
    ("mode", "owner", "group", "writable"),
    [
        (0o755, 990, 990, True),
        (0o555, 990, 990, False),
        (0o755, 0, 0, False),
        (0o775, 0, 990, True),
        (0o777, 0, 0, True),
        (0o077, 990, 990, False),
    ],
)
def test_who_may_write(mode, owner, group, writable):
    finding = judge_owner([("/w", mode, owner, group)], 990, 990)
    assert (finding is None) == writable
    if finding is not None:
        assert finding.fix == "chown -R 990:990 /w"
    assert judge_owner([("/w", mode, owner, group)], 0, 0) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(28, "No space left on device", "/w/x"), "FETCH_DISK_FULL"),
        (OSError(30, "Read-only file system", "/w/x"), "CACHE_NOT_WRITABLE"),
        (OSError(13, "Permission denied", "/w/x"), "CACHE_NOT_WRITABLE"),
        (OSError(5, "Input/output error", "/w/x"), "FETCH_DISK_FAILED"),
        (OSError(122, "Disk quota exceeded"), "FETCH_DISK_FAILED"),
        (OSError("certificate verify failed: certificate is not yet valid"), "TIME_SKEW"),
        (OSError("certificate verify failed: certificate has expired"), "TIME_SKEW"),
        (
            ssl.SSLCertVerificationError(1, "certificate verify failed: certificate has expired"),
            "TIME_SKEW",
        ),
        # OpenSSL's own numbers, which happen to be those of EPERM and EIO.
        (ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed"), None),
        (ssl.SSLError(1, "wrong version number"), None),
        (ssl.SSLSyscallError(5, "Some I/O error occurred"), None),
        (OSError(104, "Connection reset by peer"), None),
        # Without a number it is no error of the disk.
        (OSError("ConnectError: [Errno 13] Permission denied"), None),
        (OSError(), None),
    ],
)
def test_an_error_means_what_the_same_text_means_in_a_log(error, code):
    finding = judge_os_error(error, "/w")
    assert (finding.code if finding else None) == code
    assert finding is None or finding.where in ("/w/x", "/w")


def test_a_full_disk_costs_no_part_that_the_fetch_goes_on_with():
    finding = judge_os_error(OSError(28, "No space left on device", "/w/x"), "/w")
    assert finding is not None
    assert "keep *.incomplete" in finding.fix


def test_a_repository_id_is_no_path():
    tree = [f"models--org--model/snapshots/{COMMIT}/config.json"]
    environ = {"HF_HUB_OFFLINE": "1", "MODEL_REVISION": COMMIT}
    finding = judge_reference(REPO, environ, tree)
    assert finding is not None
    assert "HF_HUB_OFFLINE" in finding.message
    assert f"snapshots/{COMMIT}" in finding.fix
    assert judge_reference("/var/lib/glm53/weights/model", environ, tree) is None


def test_a_moved_main_is_a_warning():
    main = f"models--org--model/refs/main -> {'0badc0de' * 5}"
    path = f"/c/models--org--model/snapshots/{COMMIT}"
    finding = judge_reference(path, {}, [main])
    assert finding is not None
    assert finding.severity is Severity.WARN
    assert judge_reference(path, {}, [main.replace("0badc0de" * 5, COMMIT)]) is None


def test_two_commits_do_not_make_a_pair():
    assert judge_pair("draft", "a", "a") is None
    finding = judge_pair("draft", "dc77", "bf58")
    assert finding is not None
    assert "draft" in finding.message
    assert "dc77" in finding.message
    assert "bf58" in finding.message
