"""Wheels in pieces: what comes out is what went in, and what is broken or missing is said."""

import json
import random

import carry
import pytest

LOCKED = """\
nvidia-cublas==13.1.1.3 \\
    --hash=sha256:aa
numpy==2.3.5 \\
    --hash=sha256:bb
torch==2.14.0 ; sys_platform == "linux" \\
    --hash=sha256:cc
nvidia-nccl-cu13==2.30.7 \\
    --hash=sha256:dd
"""


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    draw = random.Random(1)  # noqa: S311 - content, no secret
    for name, size in (("a", 70_000), ("b", 3), ("c", 41_000)):
        (folder / f"{name}-1-py3-none-any.whl").write_bytes(draw.randbytes(size))
    return folder


def test_the_lock_says_what_is_carried():
    assert carry.requirements(LOCKED) == ["torch==2.14.0", "nvidia-nccl-cu13==2.30.7"]


def test_the_real_lock_names_the_engine():
    found = carry.requirements(carry.LOCK.read_text())
    assert {"vllm==0.33.0", "flashinfer-python==0.7.2.post1"} <= set(found)
    assert not any(name.startswith(("nvidia-cudnn-cu13=", "numba=")) for name in found)


def test_pieces_are_joined_to_what_was_cut(wheels, tmp_path):
    pieces = carry.pack(wheels, tmp_path / "pieces", 16_384)
    assert len(pieces) > 5
    assert all(piece.stat().st_size <= 16_384 for piece in pieces)
    store = tmp_path / "store"
    missing = carry.take(store, pieces[:3])
    assert missing == [piece.name for piece in pieces[3:]]
    assert carry.take(store, pieces[2:]) == []
    carry.unpack(store, tmp_path / "out")
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == {
        p.name: p.read_bytes() for p in wheels.iterdir()
    }


def test_a_piece_that_came_broken_is_named(wheels, tmp_path):
    pieces = carry.pack(wheels, tmp_path / "pieces", 16_384)
    content = bytearray(pieces[1].read_bytes())
    content[100] ^= 1
    pieces[1].write_bytes(content)
    with pytest.raises(SystemExit, match=r"wheels.001 is not what pieces.json says"):
        carry.take(tmp_path / "store", pieces)


def test_nothing_is_installed_from_part_of_it(wheels, tmp_path):
    pieces = carry.pack(wheels, tmp_path / "pieces", 16_384)
    carry.take(tmp_path / "store", pieces[:-1])
    with pytest.raises(SystemExit, match="1 pieces are missing"):
        carry.unpack(tmp_path / "store", tmp_path / "out")


def test_the_list_may_come_as_one_of_the_files(wheels, tmp_path):
    pieces = carry.pack(wheels, tmp_path / "pieces", 16_384)
    beside = tmp_path / "pieces" / carry.LISTED
    assert carry.take(tmp_path / "store", [beside, *pieces]) == []
    assert json.loads(beside.read_text()).keys() == {piece.name for piece in pieces}
