"""Every bench, small, against the real pair: two ranks on the CPU."""

import json

from conftest import START_SECONDS
from waiting import wait_for

from glm53ctl.bench.result import Result
from glm53ctl.errors import EXIT_NOT_READY

SMALL = {
    "decode": "--runs 2 --max-tokens 24 --streams 1 --streams 2 --no-coherence",
    "prefill": "--tokens 512",
    "needle": "--tokens 512 --depth 0.5",
    "prefix": "--tokens 1024 --runs 1",
    "agents": "--count 2 --tokens 256 --newcomer 1024 --runs 1 --max-tokens 60",
    "load": "--streams 6 --tokens 256 --runs 1 --max-tokens 16",
}


def measured(bed, kind: str, words: str) -> Result:
    """Measure; a server that is held up for seconds gives no answer, and is asked again."""

    def said():
        done = bed.command("bench", kind, "--json", *words.split())
        print(done.stderr)
        return None if done.returncode == EXIT_NOT_READY else done

    done = wait_for(said, f"a server for {kind}", START_SECONDS)
    assert done.returncode == 0, done.stderr
    return Result.model_validate_json(done.stdout)


def test_each_bench_measures_the_pair_and_is_kept(bed):
    for rank in (1, 0):
        bed.start_rank(rank)
    wait_for(lambda: bed.snapshot().ready, "the pair to serve", START_SECONDS)
    for kind, words in SMALL.items():
        result = measured(bed, kind, words)
        assert (result.kind, result.ok) == (kind, True)
        assert result.identity.config_digest
        assert result.identity.engine
        if kind == "prefix":  # counted by the engine, which leaves it out of an answer's usage
            assert result.cases[1].values[0] > 0.3
    kept = (bed.root / "state/bench.jsonl").read_text().splitlines()
    kinds = dict.fromkeys(json.loads(line)["kind"] for line in kept)  # one cut short is kept, too
    assert list(kinds) == list(SMALL)
