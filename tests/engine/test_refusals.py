"""What must not start does not start, and both sides say why. No engine is launched here."""

import socket

import pytest
from waiting import wait_for

REFUSED_WITHIN = 120.0


def finding(bed, rank: int, code: str):
    """The finding of a rank with this code, once it is there."""

    def look():
        reports = {report.rank: report for report in bed.snapshot().ranks}
        found = reports[rank].findings if rank in reports else ()
        return next((f for f in found if f.code == code), None)

    return wait_for(look, f"rank {rank} to say {code}", REFUSED_WITHIN)


def no_engine(bed) -> bool:
    return all(report.engine.pid is None for report in bed.snapshot().ranks)


def test_rank_1_never_comes(bed):
    bed.start_rank(0)
    said = finding(bed, 0, "PEER_ABSENT")
    assert "rank 1 (demo-1 at 127.0.0.1)" in said.message
    assert bed.status("pairing")["missing"] == [1]
    assert no_engine(bed)


def test_the_port_is_taken_and_given_back(bed):
    with socket.create_server(("127.0.0.1", bed.config.api.port)):
        bed.start_rank(0)
        bed.start_rank(1)
        said = finding(bed, 0, "PORT_IN_USE")
        assert str(bed.config.api.port) in said.message
        assert "pid" in said.message
        assert bed.status("blocked")
        assert no_engine(bed)

    def lifted() -> bool:
        head = next((report for report in bed.snapshot().ranks if report.rank == 0), None)
        return head is not None and not head.findings

    wait_for(lifted, "the block to lift", REFUSED_WITHIN)


def test_the_tokens_differ(bed):
    wrong = bed.root / "wrong-token"
    wrong.write_text("0" * 64)
    other = bed.write("other.yaml", link={"token_file": str(wrong)})
    bed.start_rank(0)
    bed.start_rank(1, other)
    for rank in (0, 1):
        assert finding(bed, rank, "PAIR_TOKEN").fix
    assert bed.status("refused")
    assert no_engine(bed)


def test_the_configurations_differ(bed):
    other = bed.write("other.yaml", serve={"max_num_seqs": 2})
    bed.start_rank(0)
    bed.start_rank(1, other)
    for rank in (0, 1):
        said = finding(bed, rank, "PAIR_CONFIG")
        assert "serve.max_num_seqs" in said.message
        assert "2" in said.message
        assert "4" in said.message
    assert no_engine(bed)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_bad_configuration_ends_with_2_and_one_sentence(bed, rank):
    bad = bed.write("bad.yaml", serve={"max_num_seqs": "many"})
    child = bed.start_rank(rank, bad)
    assert child.wait(REFUSED_WITHIN) == 2
    bed.children.remove(child)
    said = (bed.root / f"supervisor{rank}.log").read_text()
    assert "serve.max_num_seqs" in said
    assert "Traceback" not in said
