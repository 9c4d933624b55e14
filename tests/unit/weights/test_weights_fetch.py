"""Fetching against a fake Hub that breaks: never a bad set accepted, never a good byte twice."""

import contextlib
import errno
import http.client
import io
import os
import random
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence

import pytest
from hub import Asked, Blob, Fault
from huggingface_hub import HfApi
from weight_world import (
    COMMIT,
    IMPATIENT,
    MIRROR,
    ORIGIN,
    ORIGIN_COMMIT,
    QUICK,
    World,
    reap,
    shard,
    wanted_bytes,
)

from glm53ctl.errors import UserError
from glm53ctl.weights import record, transfer, verify, work
from glm53ctl.weights.fetch import Fetch
from glm53ctl.weights.layout import INCOMPLETE, only_one, weight_sets
from glm53ctl.weights.local import quick_digest
from glm53ctl.weights.manifest import read_lock
from glm53ctl.weights.patience import Patience, Rules
from glm53ctl.weights.progress import Meter
from glm53ctl.weights.record import RecordBook
from glm53ctl.weights.state import judge_set, verdict
from glm53ctl.weights.streams import Streams
from glm53ctl.weights.work import fetch_set, lock_set, prune_set, status_of, verify_set

SHARD = "model-00002-of-00004.safetensors"


def refused(world: World, **options) -> UserError:
    with pytest.raises(UserError) as caught:
        world.fetch(**options)
    assert caught.value.fix
    return caught.value


def once(match: str, fault: Fault, times: int = 1, method: str = "GET"):
    """Break the first answers for a file's bytes (behind the redirect), then behave."""
    return lambda asked: (
        fault
        if asked.name == match
        and asked.method == method
        and "resolve" not in asked.path
        and asked.count <= times
        else None
    )


def begin_again(world: World) -> None:
    """Remove the set, but for what is known of it."""
    shutil.rmtree(world.weight_set.home)
    world.weight_set.link.unlink()


def said_without_a_stall(world: World) -> list[str]:
    """Fetch impatiently and return what was said; again where this process itself was held up."""
    for _ in range(3):
        world.ears.told.clear()
        world.fetch(IMPATIENT)
        assert world.is_right()
        if "FETCH_STALLED" not in world.ears.codes:
            break
        begin_again(world)
    return world.ears.codes


# --- what works ----------------------------------------------------------------------------------


def test_a_fetch_brings_the_set_and_nothing_else(world):
    world.fetch()
    assert world.is_right()
    assert os.readlink(world.weight_set.link) == f"model.sets/{COMMIT}"
    assert list(judge_set(world.weight_set)) == []
    assert sum(world.hub.sent.values()) == wanted_bytes(world.hub.repos[(MIRROR, COMMIT)])
    assert world.ears.told == []
    assert world.ears.shown[-1].percent == 100


def test_a_second_fetch_asks_for_no_byte(world):
    world.fetch()
    before = dict(world.hub.sent)
    world.fetch()
    assert dict(world.hub.sent) == before


def test_a_complete_set_needs_no_network(world, monkeypatch):
    world.fetch()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    asked = len(world.hub.asked)
    fetch_set(world.config, world.weight_set, world.ears, threading.Event())
    assert len(world.hub.asked) == asked


@pytest.mark.parametrize("lost", ["times", "record"])
def test_what_is_here_and_locked_is_verified_without_a_network(world, monkeypatch, lost):
    """After a restore of a backup, say, on a head that reaches no Hub."""
    world.fetch()
    if lost == "times":
        os.utime(world.file, (1e9, 1e9))
    else:
        world.weight_set.record_file.unlink()
    asked = len(world.hub.asked)
    with monkeypatch.context() as patch:
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        fetch_set(world.config, world.weight_set, world.ears, threading.Event())
    assert list(judge_set(world.weight_set)) == []
    stop = threading.Event()
    fetch_set(world.config, world.weight_set, world.ears, stop, refresh=True)
    assert len(world.hub.asked) == asked + 1


def test_what_is_here_and_wrong_stays_until_it_can_be_replaced(world):
    world.fetch()
    world.file.write_bytes(b"\0" * world.file.stat().st_size)
    world.hub.fault = lambda a: Fault(status=403)
    assert refused(world).code == "FETCH_GATED"
    assert world.file.exists()
    (found,) = judge_set(world.weight_set)
    assert found.code == "WEIGHTS_UNVERIFIED"
    # The unit is active since it was done, so that a start would do nothing.
    assert "systemctl restart --no-block glm53-weights.service" in found.fix


def test_the_token_does_not_follow_the_redirect(world):
    world.fetch(token="hf_secret")
    with_token = {a.path.split("/")[1] for a in world.hub.asked if "Authorization" in a.headers}
    assert with_token == {"api", MIRROR.split("/")[0]}
    assert any(asked.path.startswith("/storage/") for asked in world.hub.asked)


def test_the_token_follows_a_redirect_on_its_own_host(world):
    """As the Hub sends small files: 307 to a path of its own, which asks for the token as well."""
    place = f"/storage/{MIRROR}/{COMMIT}/config.json"
    world.hub.fault = lambda a: (
        Fault(status=307, headers={"Location": place})
        if a.name == "config.json" and "resolve" in a.path
        else Fault(status=401)
        if a.path == place and "Authorization" not in a.headers
        else None
    )
    world.fetch(token="hf_secret")
    assert world.is_right()
    assert world.ears.codes == []


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://hub/b", True),
        ("https://HUB:443/b", True),
        ("https://hub:8443/b", False),
        ("http://hub/b", False),
        ("https://hub.example/b", False),
        ("https://hub@example/b", False),
    ],
)
def test_one_host_is_scheme_name_and_port(url, kept):
    asked = urllib.request.Request("https://hub/a")
    asked.add_unredirected_header("Authorization", "Bearer hf_secret")
    redirect = transfer.SameHostKeepsToken().redirect_request
    following = redirect(asked, io.BytesIO(), 307, "", http.client.HTTPMessage(), url)
    assert ("Authorization" in following.unredirected_hdrs) is kept
    assert "Authorization" not in following.headers


def test_no_redirect_is_fine_too(world):
    world.hub.redirect = False
    world.fetch()
    assert world.is_right()


# --- bad lines -----------------------------------------------------------------------------------


def test_a_cut_connection_goes_on_where_it_stopped(world):
    world.hub.fault = once(SHARD, Fault(cut_after=70_000))
    world.fetch()
    assert world.is_right()
    assert world.hub.sent[SHARD] == world.file.stat().st_size


def test_a_chunk_that_is_cut_goes_on_where_it_stopped(world):
    world.hub.fault = once(SHARD, Fault(cut_after=20_000, chunked=True))
    world.fetch()
    assert world.is_right()
    assert world.hub.sent[SHARD] == world.file.stat().st_size


def test_a_line_that_is_cut_again_and_again_gets_there_in_the_end(world):
    world.hub.fault = once(SHARD, Fault(cut_after=9_000), times=12)  # more often than `attempts`
    world.fetch()
    assert world.is_right()
    assert world.hub.sent[SHARD] == world.file.stat().st_size


def test_a_connection_cut_before_the_first_byte_is_tried_a_few_times(world):
    world.hub.fault = once(SHARD, Fault(cut_after=0), times=3)
    world.fetch()
    assert world.is_right()


def test_a_dead_mirror_gives_way_to_the_origin(world):
    world.hub.fault = lambda a: (
        Fault(cut_after=0)
        if f"/{MIRROR}/" in a.path and (a.name == SHARD and a.path.startswith("/storage"))
        else None
    )
    world.fetch()
    assert world.is_right()
    assert "FETCH_FAILED" in world.ears.codes


def test_a_server_that_ignores_ranges_costs_bytes_but_no_trust(world):
    cut = once(SHARD, Fault(cut_after=50_000))
    world.hub.fault = lambda a: (
        cut(a)
        or (Fault(ignore_range=True) if a.name == SHARD and a.path.startswith("/storage") else None)
    )
    world.fetch()
    assert world.is_right()


def test_a_stall_opens_the_connection_anew(world):
    world.hub.fault = once(SHARD, Fault(hang_after=20_000))
    world.fetch(IMPATIENT)
    assert world.is_right()
    assert world.hub.sent[SHARD] == world.file.stat().st_size


def test_two_stalls_change_the_source(world):
    world.hub.fault = lambda a: (
        Fault(hang_after=0) if a.path.startswith(f"/storage/{MIRROR}") and a.name == SHARD else None
    )
    world.fetch(IMPATIENT)
    assert world.is_right()
    assert world.ears.codes[:2] == ["FETCH_STALLED", "FETCH_STALLED"]


def test_three_stalls_are_the_end_and_the_bytes_stay(world):
    world.hub.fault = lambda a: (
        Fault(hang_after=30_000 if a.count == 1 and MIRROR in a.path else 0)
        if a.path.startswith("/storage") and a.name == SHARD
        else None
    )
    error = refused(world, rules=IMPATIENT)
    assert error.code == "FETCH_STALLED"
    part = world.file.with_name(f"{SHARD}.incomplete")
    assert part.stat().st_size == 30_000
    world.hub.released.set()
    world.hub.fault = lambda _: None
    world.fetch()
    assert world.is_right()
    assert world.hub.sent[SHARD] == world.file.stat().st_size


def test_a_slow_line_is_no_stall(world):
    for repo in world.hub.repos.values():
        repo[SHARD] = Blob(shard(2, 2 << 20))
    world.hub.fault = lambda a: Fault(slow=0.1) if a.path.endswith(f"{COMMIT}/{SHARD}") else None
    began = time.monotonic()
    assert "FETCH_STALLED" not in said_without_a_stall(world)
    assert time.monotonic() - began > IMPATIENT.stall_seconds


# --- what the Hub says ---------------------------------------------------------------------------


def test_a_rate_limit_is_waited_for_and_not_counted(world):
    limit = Fault(status=429, headers={"Retry-After": "0"})
    world.hub.fault = once(SHARD, limit, times=10)  # more often than `attempts`
    world.fetch()
    assert world.is_right()
    assert set(world.ears.codes) == {"FETCH_RATE_LIMITED"}


def test_a_rate_limit_longer_than_a_stall_is_no_stall(world):
    limit = Fault(status=429, headers={"Retry-After": "4"})
    world.hub.fault = lambda a: (
        limit if a.path.startswith("/storage") and a.name == SHARD and a.count % 2 else None
    )
    assert set(said_without_a_stall(world)) == {"FETCH_RATE_LIMITED"}


def test_the_metadata_may_be_rate_limited_too(world):
    world.hub.fault = lambda a: (
        Fault(status=429, headers={"ratelimit": '"api";r=0;t=0'})
        if a.path.startswith("/api") and a.count < 3
        else None
    )
    world.fetch()
    assert world.is_right()


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_ill_hub_is_asked_again(world, status):
    world.hub.fault = once(SHARD, Fault(status=status), times=3)
    world.fetch()
    assert world.is_right()


@pytest.mark.parametrize("begin", ["/api", "/"], ids=["metadata", "file"])
@pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
def test_an_ill_hub_says_when_to_come_back(world, begin, name):
    ill = Fault(status=503, headers={name: "2"})
    world.hub.fault = lambda a: ill if a.path.startswith(begin) and a.count < 2 else None
    began = time.monotonic()
    world.fetch()
    assert time.monotonic() - began >= 2
    assert world.is_right()


def test_a_gated_repository_stops_at_once(world):
    world.hub.fault = lambda a: Fault(
        status=401, headers={"X-Error-Code": "GatedRepo", "X-Error-Message": "restricted"}
    )
    error = refused(world)
    assert error.code == "FETCH_GATED"
    assert MIRROR in error.message
    assert len(world.hub.asked) == 1


def test_a_forbidden_token_is_a_gate(world):
    world.hub.fault = lambda a: Fault(status=403)
    assert refused(world, token="hf_secret").code == "FETCH_GATED"


def test_a_bad_token_is_left_out_once_for_a_public_repository(world):
    world.hub.fault = lambda a: (
        Fault(status=401, headers={"X-Error-Message": "Invalid credentials"})
        if "Authorization" in a.headers
        else None
    )
    world.fetch(token="hf_expired")
    assert world.is_right()
    assert set(world.ears.codes) == {"FETCH_BAD_TOKEN"}
    assert "hf_expired" not in str(world.ears.told)


def test_a_moved_mirror_gives_way_to_the_origin(world):
    del world.hub.repos[(MIRROR, COMMIT)]
    world.fetch()
    assert world.is_right()
    assert world.ears.codes == ["FETCH_REPO_MISSING"]
    assert ORIGIN in world.ears.told[0].fix


def test_another_commit_is_never_taken(world):
    world.hub.repos[(MIRROR, "c" * 40)] = world.hub.repos.pop((MIRROR, COMMIT))
    error = refused(world)
    assert error.code == "FETCH_REVISION_MISSING"
    assert COMMIT in error.message
    assert not world.hub.sent


def test_a_mirror_without_one_shard_gives_way_to_the_origin(world):
    del world.hub.repos[(MIRROR, COMMIT)][SHARD]
    world.fetch()
    assert world.is_right()
    assert world.ears.codes == ["FETCH_REPO_INCOMPLETE"]
    assert "3 of 4" in world.ears.told[0].message


def test_a_file_that_vanishes_after_the_listing_comes_from_the_origin(world):
    world.hub.fault = lambda a: (
        Fault(status=404, headers={"X-Error-Code": "EntryNotFound"})
        if a.path.startswith(f"/{MIRROR}/") and a.name == SHARD
        else None
    )
    world.fetch()
    assert world.is_right()
    assert world.ears.codes == ["FETCH_FILE_MISSING"]


def test_a_signed_address_that_ran_out_is_renewed(world):
    world.hub.fault = once(SHARD, Fault(status=403), times=2)
    world.fetch()
    assert world.is_right()


def test_a_captive_portal_is_not_the_hub(world):
    page = b"<html>please log in</html>"
    world.hub.fault = lambda a: Fault(status=200, headers={"Content-Type": "text/html"}, body=page)
    assert refused(world).code == "FETCH_FAILED"
    assert not world.weight_set.lock_file.exists()


def test_nobody_there_is_said_after_a_few_tries(world):
    for source in (sources := world.sources()):
        source.endpoint = "http://127.0.0.1:9"
    world.sources = lambda token: sources
    assert refused(world).code == "FETCH_FAILED"


# --- wrong bytes ---------------------------------------------------------------------------------


def test_a_flipped_bit_is_fetched_anew(world):
    world.hub.fault = once(SHARD, Fault(flip=True))
    world.fetch()
    assert world.is_right()
    assert world.hub.gets(SHARD) == 4  # twice, each with its redirect


def test_a_mirror_with_a_flipped_bit_gives_way_to_the_origin(world):
    world.hub.fault = lambda a: (
        Fault(flip=True) if a.path.startswith(f"/storage/{MIRROR}") and a.name == SHARD else None
    )
    world.fetch()
    assert world.is_right()
    assert world.ears.codes == ["FETCH_WRONG_BYTES"]


def test_wrong_bytes_everywhere_are_never_accepted(world):
    world.hub.fault = lambda a: (
        Fault(flip=True) if a.path.startswith("/storage") and a.name == SHARD else None
    )
    assert refused(world).code == "FETCH_WRONG_BYTES"
    assert not world.file.exists()
    assert not world.weight_set.link.exists()
    assert list(judge_set(world.weight_set))


@pytest.mark.parametrize("content", [b"x" * 5000, b"", shard(2)[:-1]], ids=["no", "empty", "cut"])
def test_right_bytes_that_are_no_safetensors_are_refused_when_they_come(world, content):
    """The digest says that it is what the Hub has; not that the engine could load it."""
    for repo in world.hub.repos.values():
        repo[SHARD] = Blob(content)
    assert refused(world).code == "FETCH_WRONG_BYTES"
    assert not world.file.exists()


def test_a_wrong_length_is_refused_before_the_first_byte(world):
    world.hub.fault = lambda a: (
        Fault(lie_about_size=7) if a.path.startswith("/storage") and a.name == SHARD else None
    )
    assert refused(world).code == "FETCH_WRONG_BYTES"
    assert not world.file.exists()
    parts = world.weight_set.directory.glob(f"{SHARD}.incomplete")
    assert sum(part.stat().st_size for part in parts) == 0


def test_a_wrong_small_file_is_found_by_git_s_digest(world):
    world.hub.fault = lambda a: (
        Fault(flip=True) if a.name == "config.json" and MIRROR in a.path else None
    )
    world.fetch()
    assert world.is_right()
    assert world.ears.codes == ["FETCH_WRONG_BYTES"]


@pytest.fixture
def no_tls() -> Iterator[str]:
    """An address of https behind which nobody speaks TLS, as behind a captive portal."""

    class Plain(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"https://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_a_fault_of_tls_is_the_networks_and_the_fallback_completes_the_set(world, no_tls):
    away = Fault(status=302, headers={"Location": no_tls})
    world.hub.fault = lambda asked: away if asked.path.startswith(f"/{MIRROR}/resolve") else None
    world.fetch()
    assert world.is_right()
    assert "FETCH_FAILED" in world.ears.codes


def test_a_fallback_with_other_bytes_is_not_used(world):
    world.hub.repos[(ORIGIN, ORIGIN_COMMIT)] = {
        **world.hub.repos[(MIRROR, COMMIT)],
        SHARD: Blob(b"x" * 10),
    }
    world.hub.fault = lambda a: (
        Fault(flip=True) if a.path.startswith(f"/storage/{MIRROR}") and a.name == SHARD else None
    )
    assert refused(world).code == "FETCH_REPO_DIFFERS"
    assert not world.file.exists()


def test_bytes_of_an_earlier_fetch_are_no_rate(world):
    """Said to be left at it, a fetch of three hours would be over in seconds."""
    world.fetch()
    manifest = read_lock(world.weight_set.lock_file, COMMIT)
    assert manifest is not None
    entry = manifest.entry(SHARD)
    assert entry is not None
    world.file.unlink()
    world.file.with_name(f"{SHARD}{INCOMPLETE}").write_bytes(shard(2)[:50_000])
    meter = Meter("fetch", "model", manifest.total_bytes, len(manifest.files))
    book = RecordBook(world.weight_set.record_file, manifest)
    patience = Patience(QUICK, world.weight_set.directory, world.ears)
    source, stop = world.sources()[0], threading.Event()
    streams = Streams(patience, source, [entry], book, meter, stop, may_switch=False)
    assert meter.progress(now=0.0).done_bytes == 50_000
    streams.receiver.receive(entry, source.request(SHARD))
    assert meter.progress(now=1.0).rate == entry.size - 50_000


def test_rubbish_in_the_partial_file_costs_one_more_fetch(world):
    world.weight_set.directory.mkdir(parents=True)
    world.file.with_name(f"{SHARD}.incomplete").write_bytes(b"\0" * 50_000)
    world.fetch()
    assert world.is_right()


def test_a_partial_file_that_is_too_long_is_begun_anew(world):
    world.weight_set.directory.mkdir(parents=True)
    world.file.with_name(f"{SHARD}.incomplete").write_bytes(b"\0" * 500_000)
    world.fetch()
    assert world.is_right()
    assert world.hub.sent[SHARD] == world.file.stat().st_size


# --- what lies here ------------------------------------------------------------------------------


def test_a_bit_that_flipped_on_the_disk_is_found_and_only_that_file_fetched(world):
    world.fetch()
    before = dict(world.hub.sent)
    stat = world.file.stat()
    content = bytearray(world.file.read_bytes())
    content[60_000] ^= 4
    world.file.write_bytes(content)
    os.utime(world.file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same time
    stop = threading.Event()
    (finding,) = verify_set(world.weight_set, world.ears, stop)
    assert (finding.code, finding.where) == ("WEIGHTS_DAMAGED", str(world.file))
    assert [f.code for f in judge_set(world.weight_set)] == ["WEIGHTS_UNVERIFIED"]
    world.fetch()
    assert world.is_right()
    assert world.hub.sent[SHARD] == 2 * before[SHARD]
    assert {n: s for n, s in world.hub.sent.items() if n != SHARD} == {
        n: s for n, s in before.items() if n != SHARD
    }


def put_by_hand(world: World) -> None:
    """Fill the directory that the engine is given, as somebody does who has the files."""
    link = world.weight_set.link
    link.mkdir(parents=True)
    for name, blob in world.hub.repos[(MIRROR, COMMIT)].items():
        if "/" not in name and not name.startswith("."):
            (link / name).write_bytes(blob.content)


def test_files_that_were_put_here_by_hand_are_kept_when_they_are_right(world):
    link = world.weight_set.link
    put_by_hand(world)
    (link / SHARD).write_bytes(b"not this")
    assert [f.code for f in judge_set(world.weight_set)] == ["WEIGHTS_UNVERIFIED"]
    world.fetch()
    assert world.is_right()
    assert link.is_symlink()
    assert set(world.hub.sent) == {SHARD}


@pytest.mark.parametrize("status", [500, 404])
def test_files_put_here_by_hand_after_a_fetch_that_failed_are_taken_over(world, status):
    world.hub.fault = lambda a: Fault(status=status)
    refused(world)
    world.hub.fault = lambda _: None
    (world.weight_set.directory / f"{SHARD}{INCOMPLETE}").write_bytes(shard(2)[:50_000])
    put_by_hand(world)
    assert [f.code for f in judge_set(world.weight_set)] == ["WEIGHTS_UNVERIFIED"]
    stop = threading.Event()
    fetch_set(world.config, world.weight_set, world.ears, stop)
    assert world.is_right()
    assert list(judge_set(world.weight_set)) == []
    assert not world.hub.sent


def test_a_file_that_the_disk_cannot_read_back_is_fetched_anew(world, monkeypatch):
    world.fetch()
    world.weight_set.record_file.unlink()
    world.hub.sent.clear()
    real = verify.absorb

    def absorb(digests, path, *more):
        if path == world.file:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(digests, path, *more)

    monkeypatch.setattr(verify, "absorb", absorb)
    world.fetch()
    assert world.is_right()
    assert world.ears.codes == ["WEIGHTS_DAMAGED"]
    assert set(world.hub.sent) == {SHARD}


def test_a_part_that_came_before_files_were_put_here_by_hand_is_gone_on_with(world):
    directory = world.weight_set.directory
    directory.mkdir(parents=True)
    (directory / f"{SHARD}{INCOMPLETE}").write_bytes(shard(2)[:50_000])
    put_by_hand(world)
    (world.weight_set.link / SHARD).unlink()
    world.fetch()
    assert world.is_right()
    assert dict(world.hub.sent) == {SHARD: len(shard(2)) - 50_000}


@pytest.mark.parametrize("whole", [True, False])
def test_two_directories_with_files_are_not_mixed_and_no_byte_is_fetched(world, whole):
    world.fetch()
    world.weight_set.link.unlink()
    if not whole:
        world.file.unlink()
    put_by_hand(world)
    world.hub.sent.clear()
    with pytest.raises(UserError) as caught:
        fetch_set(world.config, world.weight_set, world.ears, threading.Event())
    assert caught.value.code == "WEIGHTS_TWICE"
    assert str(world.weight_set.link) in caught.value.message
    assert not world.hub.sent
    assert world.file.exists() == whole
    assert (world.weight_set.link / SHARD).exists()


def test_an_empty_directory_in_the_links_place_is_no_obstacle(world):
    world.fetch()
    world.weight_set.link.unlink()
    world.weight_set.link.mkdir()
    fetch_set(world.config, world.weight_set, world.ears, threading.Event())
    assert list(judge_set(world.weight_set)) == []


def test_without_a_lock_a_verification_leaves_what_was_put_here_by_hand(world):
    put_by_hand(world)
    (finding,) = verify_set(world.weight_set, world.ears, threading.Event())
    assert finding.code == "WEIGHTS_UNVERIFIED"
    assert world.weight_set.link.is_dir()
    assert not world.weight_set.link.is_symlink()


def test_a_file_of_the_record_that_was_replaced_is_hashed_again(world):
    world.fetch()
    world.file.write_bytes(b"\0" * world.file.stat().st_size)
    assert [f.code for f in judge_set(world.weight_set)] == ["WEIGHTS_UNVERIFIED"]
    world.fetch()
    assert world.is_right()


@pytest.mark.parametrize("damage", ["flip", "text", "other", "short"])
def test_a_lock_that_was_tampered_with_is_refused(world, damage):
    world.fetch()
    lock = world.weight_set.lock_file
    text = lock.read_text()
    manifest = read_lock(lock, COMMIT)
    lock.write_text(
        {
            "flip": text.replace(manifest.files[1].sha256, "0" * 64),
            "text": "{",
            "other": text.replace(COMMIT, "d" * 40),
            "short": text.replace('"sha256"', '"sha257"', 1),
        }[damage]
    )
    assert refused(world).code == "WEIGHTS_MANIFEST"
    with pytest.raises(UserError, match="WEIGHTS_MANIFEST"):
        list(judge_set(world.weight_set))


def test_a_lock_never_changes_silently(world):
    manifest, new = lock_set(world.config, world.weight_set)
    assert new
    assert lock_set(world.config, world.weight_set) == (manifest, False)
    before = world.weight_set.lock_file.read_bytes()
    world.hub.repos[(MIRROR, COMMIT)] = {
        **world.hub.repos[(MIRROR, COMMIT)],
        SHARD: Blob(b"y" * 10),
    }
    with pytest.raises(UserError, match="WEIGHTS_LOCKED"):
        lock_set(world.config, world.weight_set)
    assert world.weight_set.lock_file.read_bytes() == before


def test_a_record_of_another_manifest_is_worth_nothing(world):
    world.fetch()
    record = world.weight_set.record_file
    record.write_text(record.read_text().replace('"manifest":"', '"manifest":"0', 1))
    assert [f.code for f in judge_set(world.weight_set)] == ["WEIGHTS_UNVERIFIED"]


# --- disk, rights, clocks ------------------------------------------------------------------------


def test_the_licence_comes_before_the_first_request(world):
    config = world.config.model_copy(
        update={"licenses": world.config.licenses.model_copy(update={"accept": ()})}
    )
    with pytest.raises(UserError, match="LICENSE_NOT_ACCEPTED"):
        fetch_set(config, world.weight_set, world.ears, threading.Event())
    assert world.hub.asked == []


def test_too_little_room_is_said_before_the_first_byte(world):
    rules = Rules(**{**vars(QUICK), "reserve_bytes": 1 << 60})
    world.weight_set.directory.mkdir(parents=True)
    (world.weight_set.directory / "old.aa01.incomplete").write_bytes(b"\0" * 4096)
    error = refused(world, rules=rules)
    assert error.code == "FETCH_DISK_FULL"
    assert "old.aa01.incomplete" in error.fix
    assert not world.hub.sent


def test_room_is_needed_for_what_is_missing_only(world, monkeypatch):
    world.fetch()
    world.file.unlink()
    size = wanted_bytes(world.hub.repos[(MIRROR, COMMIT)])
    usage = shutil.disk_usage(world.root)._replace(free=size // 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    world.fetch()
    assert world.is_right()


def disk_error(number: int, after: int):
    """An os.write that fails like a disk after so many bytes."""
    real, written = os.write, 0

    def write(fd: int, data: bytes) -> int:
        nonlocal written
        written += len(data)
        if written > after:
            raise OSError(number, os.strerror(number))
        return real(fd, data)

    return write


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "FETCH_DISK_FULL"),
        (errno.EROFS, "CACHE_NOT_WRITABLE"),
        (errno.EIO, "FETCH_DISK_FAILED"),
    ],
)
def test_a_disk_that_refuses_ends_the_fetch_and_the_rest_stays(world, monkeypatch, number, code):
    with monkeypatch.context() as patch:
        patch.setattr(transfer.os, "write", disk_error(number, 200_000))
        assert refused(world).code == code
    assert not world.weight_set.link.exists()
    sent = sum(world.hub.sent.values())
    world.fetch()
    assert world.is_right()
    assert sum(world.hub.sent.values()) - sent < wanted_bytes(world.hub.repos[(MIRROR, COMMIT)])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("options", ["size=300k", "ro"])
def test_a_real_disk_that_is_full_or_read_only(world, options):
    place = world.root / "weights"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no tmpfs here: {done.stderr!r}")
    try:
        error = refused(world)
    finally:
        subprocess.run(["umount", place], check=True)
    assert error.code == {"size=300k": "FETCH_DISK_FULL", "ro": "CACHE_NOT_WRITABLE"}[options]


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_directory_of_root_is_named_with_the_chown_that_helps(open_world):
    world = open_world
    world.fetch()
    world.file.unlink()
    code, _, fix = as_service_user(world.fetch).partition(" ")
    assert code == "CACHE_NOT_WRITABLE"
    assert "chown -R 990:990" in fix


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("closed", ["state", "weights", "state/weights/model.busy", "nothing"])
def test_what_root_fetched_for_itself_blocks_with_a_reason(open_world, closed):
    """With umask 077, the service's user may not read it; with another, it may not write."""
    world = open_world
    world.fetch()
    with only_one(world.weight_set):
        pass
    if closed != "nothing":
        (world.root / closed).chmod(0o600)

    def look() -> None:
        found = verdict(world.config)
        with contextlib.suppress(UserError):
            found += verify_set(world.weight_set, world.ears, threading.Event(), quick=True)
        status_of(world.config)
        quick_digest(world.weight_set.link)
        raise UserError(",".join(finding.code for finding in found), "", "")

    expected = "WEIGHTS_UNREADABLE" if closed in ("state", "weights") else ""
    assert as_service_user(look).split(",")[0].strip() == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_right_files_that_the_service_may_not_read_are_named_and_kept(open_world):
    """As root's `cp` with umask 077 leaves them: good bytes, of which none may be lost."""
    world = open_world
    world.weight_set.directory.mkdir(parents=True)
    lock_set(world.config, world.weight_set)
    for path in [world.root, *world.root.rglob("*")]:
        os.chown(path, 990, 990)
    for name in world.wrong_files():
        file = world.weight_set.directory / name
        file.write_bytes(world.hub.repos[(MIRROR, COMMIT)][name].content)
        file.chmod(0o600)

    def verify() -> None:
        found = verify_set(world.weight_set, world.ears, threading.Event())
        raise UserError(",".join(sorted({f"{f.code} {f.fix}" for f in found})), "", "")

    def fetch_unlocked() -> None:
        world.weight_set.lock_file.unlink()
        world.fetch()

    for action in (verify, world.fetch, fetch_unlocked):
        said = as_service_user(action)
        assert said.startswith("WEIGHTS_UNREADABLE ")
        assert "chown" in said
        assert "DAMAGED" not in said
    assert world.is_right()
    assert not world.hub.sent


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("what", ["lock", "prune", "switch", "refresh"])
def test_what_the_user_may_not_change_is_said_and_no_traceback(open_world, what):
    world = open_world
    world.fetch()
    with only_one(world.weight_set):
        pass
    (world.weight_set.home / ("c" * 40)).mkdir()
    (world.weight_set.home / ("c" * 40) / "x").write_text("x")
    if what == "lock":
        world.weight_set.lock_file.unlink()
    if what == "switch":
        world.weight_set.link.unlink()
    config, stop = world.config, threading.Event()
    actions = {
        "lock": lambda: lock_set(config, world.weight_set),
        "prune": lambda: prune_set(world.weight_set),
        "switch": lambda: fetch_set(config, world.weight_set, world.ears, stop),
        "refresh": lambda: fetch_set(config, world.weight_set, world.ears, stop, refresh=True),
    }
    assert as_service_user(actions[what]).startswith("CACHE_NOT_WRITABLE ")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[]", b'"x"', b"null", b"[" * 100_000])
def test_a_damaged_lock_is_said_wherever_it_is_read(world, content):
    world.fetch()
    world.weight_set.lock_file.write_bytes(content)
    assert [finding.code for finding in verdict(world.config)] == ["WEIGHTS_MANIFEST"]
    assert refused(world).code == "WEIGHTS_MANIFEST"
    with pytest.raises(UserError, match="WEIGHTS_MANIFEST"):
        lock_set(world.config, world.weight_set)
    assert prune_set(world.weight_set) == []


def test_a_lock_is_not_written_while_another_process_works(world):
    world.weight_set.state.mkdir(parents=True)
    with only_one(world.weight_set), pytest.raises(UserError, match="FETCH_BUSY"):
        lock_set(world.config, world.weight_set)


def test_a_disk_that_dies_blocks_and_ends_no_process(world, monkeypatch):
    world.fetch()
    real = os.stat

    def stat(path, **options):
        if str(path) == str(world.file):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    (finding,) = verdict(world.config)
    assert (finding.code, finding.where) == ("WEIGHTS_UNREADABLE", str(world.file))
    found = verify_set(world.weight_set, world.ears, threading.Event(), quick=True)
    assert [f.code for f in found] == ["WEIGHTS_UNREADABLE"]
    assert quick_digest(world.weight_set.directory) == ""


def test_a_record_that_cannot_be_written_is_a_reason(world, monkeypatch):
    world.fetch()
    world.file.write_bytes(b"short")

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(record, "replace_durably", refuse)
    with pytest.raises(UserError, match="CACHE_NOT_WRITABLE"):
        verify_set(world.weight_set, world.ears, threading.Event(), quick=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_further_group_of_the_user_that_may_write_is_enough(open_world):
    world = open_world
    world.weight_set.directory.mkdir(parents=True)
    world.weight_set.state.mkdir(parents=True)
    for path in [world.root, *world.root.rglob("*")]:
        os.chown(path, 0, 991)
        path.chmod(0o2770)
    assert as_service_user(world.fetch, groups=[991]) == "nothing"
    assert world.is_right()


def as_service_user(action: Callable[[], object], groups: Sequence[int] = ()) -> str:
    """Do something as another user; return the code and the fix."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "nothing"
        try:
            os.setgroups(groups)
            os.setgid(990)
            os.setuid(990)
            action()
        except UserError as error:
            said = f"{error.code} {error.fix}"
        except BaseException as error:
            said = repr(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    reap(pid)
    with os.fdopen(reader) as pipe:
        return pipe.read()


def test_a_wrong_clock_here_does_not_change_what_retry_after_means(world, monkeypatch):
    # A date in Retry-After, with this machine's clock in 1970: compared with the server's Date.
    date = "Sun, 20 Sep 2026 10:00:00 GMT"
    limit = Fault(status=429, headers={"Retry-After": date, "Date": date})
    world.hub.fault = once(SHARD, limit, times=2)
    monkeypatch.setattr(time, "time", lambda: 12.0)
    world.fetch()
    assert world.is_right()


def test_files_from_the_future_are_no_problem(world):
    world.fetch()
    os.utime(world.file, (4e9, 4e9))
    assert [f.code for f in judge_set(world.weight_set)] == ["WEIGHTS_UNVERIFIED"]
    assert verify_set(world.weight_set, world.ears, threading.Event()) == []
    assert list(judge_set(world.weight_set)) == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_stop_never_switches_to_half_a_set(world, by_hand):
    """Also when it comes between two files, or before what lies here was hashed."""
    if by_hand:
        world.weight_set.directory.mkdir(parents=True)
        for name, blob in world.hub.repos[(MIRROR, COMMIT)].items():
            if "/" not in name and not name.startswith("."):
                (world.weight_set.directory / name).write_bytes(blob.content)
    stop = threading.Event()
    stop.set()
    world.hub.fault = lambda a: Fault(slow=0.5) if a.path.startswith("/storage") else None
    with pytest.raises(UserError):
        fetch_set(world.config, world.weight_set, world.ears, stop)
    assert not world.weight_set.link.exists()
    world.hub.fault = lambda _: None
    world.fetch()
    assert world.is_right()


def test_names_that_no_set_may_hold_are_left_out(world):
    for repo in world.hub.repos.values():
        repo["Model card (1).md"] = Blob(b"# A card", lfs=False)
    world.fetch()
    del world.hub.repos[(ORIGIN, ORIGIN_COMMIT)]["Model card (1).md"]
    assert world.is_right()


def test_a_listing_that_is_none_gives_way_to_the_origin(world, monkeypatch):
    real = Blob.sha256.fget
    broken = world.hub.repos[(MIRROR, COMMIT)][SHARD]
    monkeypatch.setattr(
        Blob, "sha256", property(lambda blob: "?" if blob is broken else real(blob))
    )
    world.hub.repos[(ORIGIN, ORIGIN_COMMIT)][SHARD] = Blob(broken.content)
    world.fetch()
    assert world.is_right()
    assert world.ears.codes == ["FETCH_FAILED"]
    assert world.ears.told[0].message == f"{MIRROR}: its answer is no manifest."


@pytest.mark.parametrize(
    "headers", [{"Content-Length": "abc"}, {"Content-Length": "1" * 5000}], ids=["word", "digits"]
)
def test_a_length_that_is_no_number_is_not_this_file(world, headers):
    world.hub.fault = once(SHARD, Fault(status=200, headers=headers))
    world.fetch()
    assert world.is_right()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
@pytest.mark.parametrize("what", ["listing", "file"])
def test_a_connection_that_a_firewall_forbids_is_the_networks(world, monkeypatch, number, what):
    mirror, origin = world.sources()
    forbidden = PermissionError(number, os.strerror(number))

    def no_listing(*_, **__):
        raise RuntimeError(str(forbidden))  # as an error of the Hub's client, which is no OSError

    def no_file(*_, **__):
        raise urllib.error.URLError(forbidden)

    if what == "file":
        monkeypatch.setattr(mirror.opener, "open", no_file)
    else:
        real = HfApi.model_info
        monkeypatch.setattr(
            HfApi,
            "model_info",
            lambda api, repo, **more: (no_listing if repo == MIRROR else real)(api, repo, **more),
        )
    Fetch(world.weight_set, [mirror, origin], world.ears, QUICK).run()
    assert world.is_right()
    assert world.ears.codes == ["FETCH_FAILED"]


# --- two at once, and kills ----------------------------------------------------------------------


def test_a_second_fetcher_is_told_who_is_at_work(world):
    with (
        only_one(world.weight_set),
        pytest.raises(UserError, match=f"process {os.getpid()} works on the model"),
    ):
        fetch_set(world.config, world.weight_set, world.ears, threading.Event())
    assert world.hub.asked == []


def test_a_dead_fetcher_blocks_nobody(world):
    pid = os.fork()
    if pid == 0:
        held = only_one(world.weight_set)  # kept: a generator that is collected lets go
        held.__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    reap(pid)
    with only_one(world.weight_set):
        pass


CHILD = """
import sys, threading
from pathlib import Path
sys.path[:0] = {path!r}
from weight_world import World
from hub import Hub
world = World(Path({root!r}), Hub(url={url!r}))
print("go", flush=True)
for line in sys.stdin:
    import os
    pid = os.fork()
    if pid == 0:
        try:
            world.fetch()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def bytes_here(world) -> dict[str, int]:
    """Return how much of each file is on the disk."""
    found = world.weight_set.directory.rglob("*")
    return {f.name.removesuffix(".incomplete"): f.stat().st_size for f in found if f.is_file()}


def goes_on_where_it_was(asked: list[Asked], kept: dict[str, int]) -> None:
    """Check that the first request for each file asks for the first byte that is not here."""
    seen = set()
    for one in asked:
        if one.method == "GET" and one.path.startswith("/storage") and one.name not in seen:
            seen.add(one.name)
            words = one.headers.get("Range", "bytes=0-")
            assert words == f"bytes={kept.get(one.name, 0)}-", (one.name, words, kept)


def test_fifty_kills_at_random_points_lose_no_byte_and_accept_no_bad_set(world):
    """One process forks a fetcher for each kill, so that fifty starts of Python are not waited for.

    The Hub sends slowly, in pieces, so that the kills fall into all stages of the transfer.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)  # noqa: S311
    kills = 50
    world.hub.fault = lambda a: Fault(slow=0.02) if a.path.startswith("/storage") else None
    program = CHILD.format(path=sys.path, root=str(world.root), url=world.hub.url)
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout
        assert parent.stdin
        assert parent.stdout.readline() == "go\n"
        codes = []
        kept: dict[str, int] = {}
        for _ in range(kills):
            mark = len(world.hub.asked)
            print("fetch", file=parent.stdin, flush=True)
            pid = int(parent.stdout.readline())
            time.sleep(dice.uniform(0.0, 0.12))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            codes.append(int(parent.stdout.readline()))
            goes_on_where_it_was(world.hub.asked[mark:], kept)
            kept = bytes_here(world)
            if list(judge_set(world.weight_set)) == []:
                assert world.is_right()
                begin_again(world)
                kept = {}
        parent.stdin.close()
    assert codes.count(-signal.SIGKILL) > kills // 2
    assert set(codes) <= {0, -signal.SIGKILL}
    world.fetch()
    assert world.is_right()


def test_after_a_kill_the_next_byte_is_the_first_that_is_asked_for(world):
    big = 3 << 20
    for repo in world.hub.repos.values():
        repo[SHARD] = Blob(shard(2, big))
    world.hub.fault = lambda a: Fault(slow=0.01) if a.name == SHARD else None
    part = world.file.with_name(f"{SHARD}.incomplete")
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            world.fetch()
        os._exit(0)
    limit = time.monotonic() + 120
    while not part.exists() or part.stat().st_size < big // 3:
        assert time.monotonic() < limit
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    kept = part.stat().st_size
    world.hub.fault = lambda _: None
    world.fetch()
    assert world.is_right()
    last = [a for a in world.hub.asked if a.name == SHARD and a.method == "GET"][-1]
    assert last.headers["Range"] == f"bytes={kept}-"


# --- revisions -----------------------------------------------------------------------------------


def test_a_new_commit_comes_beside_the_old_and_the_way_back_needs_no_byte(world):
    world.fetch()
    old = world.weight_set
    new_commit = "e" * 40
    changed = {**world.hub.repos[(MIRROR, COMMIT)], "config.json": Blob(b'{"new": 1}', lfs=False)}
    world.hub.repos[(MIRROR, new_commit)] = changed
    weights = world.config.weights.model_copy(update={"revision": new_commit})
    config = world.config.model_copy(update={"weights": weights})
    (new,) = weight_sets(config)
    assert [f.code for f in judge_set(new)] == ["WEIGHTS_MISSING"]
    assert list(judge_set(old)) == []
    fetch_set(config, new, world.ears, threading.Event())
    assert list(judge_set(new)) == []
    assert [f.code for f in judge_set(old)] == ["CACHE_REVISION"]
    sent = dict(world.hub.sent)
    assert prune_set(new, dry_run=True)[0].path == old.directory
    fetch_set(world.config, old, world.ears, threading.Event())  # back
    assert list(judge_set(old)) == []
    assert dict(world.hub.sent) == sent
    (gone,) = prune_set(old)
    assert gone.path == new.directory
    assert not new.directory.exists()
    assert list(judge_set(old)) == []


def test_a_refresh_trusts_no_record(world):
    world.fetch()
    stat = world.file.stat()
    content = bytearray(world.file.read_bytes())
    content[60_000] ^= 4
    world.file.write_bytes(content)
    os.utime(world.file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    stop = threading.Event()
    fetch_set(world.config, world.weight_set, world.ears, stop)
    assert not world.is_right()  # size and time say nothing of a flipped bit
    fetch_set(world.config, world.weight_set, world.ears, stop, refresh=True)
    assert world.is_right()


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refresh_that_nobody_answers_leaves_the_record(world, monkeypatch, status):
    monkeypatch.setattr(work, "rules_of", lambda _: QUICK)
    world.fetch()
    world.hub.fault = lambda _: Fault(status=status)
    stop = threading.Event()
    with pytest.raises(UserError):
        fetch_set(world.config, world.weight_set, world.ears, stop, refresh=True)
    assert list(judge_set(world.weight_set)) == []


def test_a_refresh_that_changes_the_source_hashes_every_file_once(world, monkeypatch):
    world.fetch()
    manifest = read_lock(world.weight_set.lock_file, COMMIT)
    assert manifest is not None
    world.file.unlink()
    hashed, real = [], verify.absorb
    monkeypatch.setattr(verify, "absorb", lambda *args: hashed.append(args[1].name) or real(*args))
    world.hub.fault = lambda a: Fault(status=404) if a.path.startswith(f"/{MIRROR}/") else None
    stop = threading.Event()
    fetch_set(world.config, world.weight_set, world.ears, stop, refresh=True)
    assert list(judge_set(world.weight_set)) == []
    assert world.ears.codes == ["FETCH_REPO_MISSING"]
    assert sorted(hashed) == sorted(e.path for e in manifest.files if e.path != SHARD)


def test_only_commits_are_pruned_and_of_a_link_only_the_link(world, tmp_path):
    world.fetch()
    home = world.weight_set.home
    (home / "notes.txt").write_text("mine")
    (home / "lost+found").mkdir()
    far = tmp_path / "far"
    far.mkdir()
    (far / "x").write_bytes(b"x" * 1000)
    (home / ("c" * 40)).symlink_to(far)
    (home / ("d" * 40)).mkdir()
    assert status_of(world.config).sets[0].kept == ("c" * 40, "d" * 40)
    gone = prune_set(world.weight_set)
    assert [one.path.name for one in gone] == ["c" * 40, "d" * 40]
    assert gone[0].size < 1000
    assert (far / "x").exists()
    assert {path.name for path in home.iterdir()} == {COMMIT, "notes.txt", "lost+found"}
