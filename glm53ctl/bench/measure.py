"""The benches: each asks a server and returns cases."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from uuid import uuid4

from glm53ctl.bench import baselines, metrics, texts
from glm53ctl.bench.client import Answer, Client, Server, ask
from glm53ctl.bench.result import Acceptance, Case
from glm53ctl.bench.stats import percentiles
from glm53ctl.errors import UserError

PREFILL_TOKENS, NEEDLE_TOKENS, PREFIX_TOKENS = 1, 32, 8
"""Lengths of the answers."""
PREFIX_ROOM = 128
"""Tokens beyond the prompt of `prefix`: what it goes on with, and the answer."""
Report = Callable[[str], None]
_SAMPLE_WORDS = 200
"""Words of the filler whose tokens are counted, to make prompts of a wanted length."""
_SAMPLE_SHARE = 200
"""One word of so many wanted tokens is counted at least."""


@dataclass
class Measured:
    """What a bench found: its cases, what is wrong with answers, and what could not be measured."""

    cases: list[Case] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    case: str = ""
    """What is being measured."""
    cut: str = ""
    """Why it ended before its last case; empty when it did not."""

    def look_at(self, name: str, answer: Answer) -> None:
        """Note an answer that is no language."""
        if texts.degenerate(answer.text):
            self.faults.append(f"{name}: the answer repeats itself: {answer.text[:40]!r}")


@asynccontextmanager
async def _asking(server: Server, found: Measured) -> AsyncIterator[Client]:
    """Yield a client. When a case is refused, or the pair is lost, the cases before it are kept.

    Raises the UserError where there are none.
    """
    async with server.client() as client:
        try:
            yield client
        except UserError as error:
            if not found.cases:
                raise
            found.cut = f"{found.case}: {error.message}"


@asynccontextmanager
async def _watched(client: Client) -> AsyncIterator[list[Acceptance | None]]:
    """Yield a list that holds what was accepted meanwhile, when it is over."""
    found: list[Acceptance | None] = []
    before = await metrics.read(client)
    yield found
    found.append(metrics.acceptance(before, await metrics.read(client)))


def _timings(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    return {
        "ttft_seconds": percentiles([answer.ttft for answer in answers]),
        "gap_seconds": percentiles([gap for answer in answers for gap in answer.gaps]),
    }


def rate_together(answers: Sequence[Answer]) -> float:
    """Return the tokens/s of requests that ran together: all tokens after each one's first.

    Over the time from the first token of any to the last of all; for one request its own rate.
    """
    first = min(answer.arrivals[0] for answer in answers)
    last = max(answer.arrivals[-1] for answer in answers)
    return sum(answer.tokens - 1 for answer in answers) / (last - first) if last > first else 0.0


async def decode(
    server: Server,
    kinds: Sequence[str],
    streams: Sequence[int],
    runs: int,
    max_tokens: int,
    report: Report,
    *,
    coherence: bool = True,
) -> Measured:
    """Measure decode: each text, each concurrency, `runs` times after one that warms up."""
    found = Measured()
    async with _asking(server, found) as client:
        if coherence:
            answer = await ask(client, texts.COHERENCE, 40)
            if not texts.COHERENT.search(answer.text):
                found.faults.append(f"coherence: not the first five primes: {answer.text[:60]!r}")
        for kind in kinds:
            for count in streams:
                name = found.case = f"{kind} x{count}"
                await _together(client, kind, count, max_tokens)
                answers: list[Answer] = []
                values = []
                async with _watched(client) as accepted:
                    for run in range(runs):
                        batch = await _together(client, kind, count, max_tokens)
                        values.append(rate_together(batch))
                        answers += batch
                        report(f"{name} run {run + 1}: {values[-1]:.1f} tok/s")
                for answer in answers:
                    found.look_at(name, answer)
                case = Case(
                    name=name,
                    unit="tok/s",
                    values=tuple(values),
                    acceptance=accepted[0],
                    baseline=baselines.decode(kind, count, max_tokens, think=server.think),
                    extra={"tokens": median(answer.tokens for answer in answers)},
                    **_timings(answers),
                )
                found.cases.append(case)
    return found


async def _together(client: Client, kind: str, count: int, max_tokens: int) -> list[Answer]:
    asked = (ask(client, texts.PROMPTS[kind], max_tokens) for _ in range(count))
    return list(await asyncio.gather(*asked))


async def words_for(client: Client, tokens: int) -> int:
    """Return how many words of filler make a prompt of `tokens` tokens, template included.

    A long prompt is told from a longer sample, as words differ in their tokens.
    """
    sample = max(_SAMPLE_WORDS, tokens // _SAMPLE_SHARE)
    salt = uuid4().hex  # the same: it is no word, and has as many tokens as a line of them
    counted = [
        (await ask(client, texts.filler(words, salt), 1)).prompt_tokens
        for words in (sample, 2 * sample)
    ]
    each = (counted[1] - counted[0]) / sample
    return max(round(sample + (tokens - counted[0]) / each), 1)


async def prefill(server: Server, ladder: Sequence[int], runs: int, report: Report) -> Measured:
    """Measure prefill: prompts of each length that nothing has seen, one token of answer."""
    found = Measured()
    async with _asking(server, found) as client:
        for tokens in ladder:
            found.case = f"prefill {tokens}"
            words = await words_for(client, tokens)
            answers = []
            before = await metrics.read(client)
            for run in range(runs):
                answers.append(await ask(client, texts.filler(words, uuid4().hex), PREFILL_TOKENS))
                rate = answers[-1].prompt_tokens / answers[-1].ttft
                report(f"prefill {tokens} run {run + 1}: {rate:.0f} tok/s")
            said = sum(answer.cached_tokens for answer in answers)
            if metrics.reused(before, await metrics.read(client), said):
                found.faults.append(f"prefill {tokens}: a part came from the cache")
            case = Case(
                name=f"prefill {tokens}",
                unit="tok/s",
                values=tuple(answer.prompt_tokens / answer.ttft for answer in answers),
                baseline=baselines.PREFILL.get(tokens, {}),
                extra={"prompt_tokens": median(answer.prompt_tokens for answer in answers)},
                ttft_seconds=percentiles([answer.ttft for answer in answers]),
            )
            found.cases.append(case)
    return found


async def needle(
    server: Server, ladder: Sequence[int], depths: Sequence[float], report: Report
) -> Measured:
    """Hide a code in prompts of each length, at each depth, and ask for it."""
    found = Measured()
    async with _asking(server, found) as client:
        for tokens in ladder:
            found.case = f"needle {tokens}"
            words = await words_for(client, tokens)
            hits, answers = [], []
            for depth in depths:
                prompt, code = texts.haystack(words, uuid4().hex, depth)
                answers.append(await ask(client, prompt, NEEDLE_TOKENS))
                hits.append(float(code in answers[-1].text))
                report(f"needle {tokens} at {depth:.0%}: {'found' if hits[-1] else 'lost'}")
            case = Case(
                name=f"needle {tokens}",
                unit="found",
                values=tuple(hits),
                extra={"prompt_tokens": median(answer.prompt_tokens for answer in answers)},
                ttft_seconds=percentiles([answer.ttft for answer in answers]),
            )
            found.cases.append(case)
    return found


async def prefix(server: Server, ladder: Sequence[int], runs: int, report: Report) -> Measured:
    """Measure reuse: a prompt, the same again, and one that goes on from it."""
    found = Measured()
    async with _asking(server, found) as client:
        for tokens in ladder:
            found.case = f"prefix {tokens}"
            words = await words_for(client, tokens)
            again, onward, reuse = [], [], []
            for _ in range(runs):
                text = texts.filler(words, uuid4().hex)
                cold = await ask(client, text, PREFIX_TOKENS)
                again.append((await ask(client, text, PREFIX_TOKENS)).ttft)
                before = await metrics.read(client)
                onward_text = f"{text}\n{texts.filler(50, uuid4().hex)}"
                more = await ask(client, onward_text, PREFIX_TOKENS)
                hits = metrics.reused(before, await metrics.read(client), more.cached_tokens)
                onward.append(more.ttft)
                reuse.append(hits / more.prompt_tokens)
                report(f"prefix {tokens}: {cold.ttft:.3f} s, then {again[-1]:.3f} s")
            found.cases += [
                Case(
                    name=f"prefix {tokens}: again",
                    unit="s to first token",
                    lower_is_better=True,
                    values=tuple(again),
                    baseline=baselines.PREFIX_TTFT.get(tokens, {}),
                    extra={"cold_seconds": cold.ttft},
                ),
                Case(
                    name=f"prefix {tokens}: continued",
                    unit="share reused",
                    values=tuple(reuse),
                    baseline=baselines.PREFIX_REUSE.get(tokens, {}),
                    ttft_seconds=percentiles(onward),
                ),
            ]
    return found


async def agents(
    server: Server,
    count: int,
    tokens: int,
    newcomer: int,
    runs: int,
    max_tokens: int,
    report: Report,
) -> Measured:
    """Measure a mix: `count` agents write at once, and one with a long prompt joins them.

    What matters is how long the newcomer waits and what of their pace the others keep.
    """
    found = Measured()
    mixes = []
    async with server.client() as client:
        words, long_words = [await words_for(client, n) for n in (tokens, newcomer)]
        for _ in range(runs):
            mix = await _mix(client, count, words, long_words, max_tokens)
            mixes.append(mix)
            kept = "?" if mix.kept is None else f"{mix.kept:.0%}"
            report(f"newcomer waits {mix.late.ttft:.2f} s; the others keep {kept}")
    for mix in mixes:
        for answer in (*mix.alone, *mix.joined, mix.late):
            found.look_at("agents", answer)
    late = [mix.late for mix in mixes]
    shares = tuple(mix.kept for mix in mixes if mix.kept is not None)
    if len(shares) < len(mixes):
        found.notes.append("agents: some ended before all wrote; --max-tokens lets them write on")
    found.cases = [
        Case(
            name=f"agents x{count}",
            unit="tok/s",
            values=tuple(rate_together(mix.alone) for mix in mixes),
            **_timings([answer for mix in mixes for answer in mix.alone]),
        ),
        Case(
            name="newcomer",
            unit="s to first token",
            lower_is_better=True,
            values=tuple(answer.ttft for answer in late),
            extra={"prompt_tokens": median(answer.prompt_tokens for answer in late)},
        ),
    ]
    if shares:
        case = Case(
            name="agents while a newcomer is read",
            unit="share of pace kept",
            values=shares,
            **_timings([answer for mix in mixes for answer in mix.joined]),
        )
        found.cases.append(case)
    return found


@dataclass(frozen=True)
class _Mix:
    """One round: agents alone, the same with a newcomer that was sent at `sent`."""

    alone: list[Answer]
    joined: list[Answer]
    late: Answer
    sent: float

    @property
    def kept(self) -> float | None:
        """What share of their pace the agents keep while the newcomer is read.

        Of the times in which all of them write: not while they are read one after the other, and
        not when some are done. None where there was no such time.
        """
        before = _rate_between(
            self.alone, max(answer.arrivals[0] for answer in self.alone), _first_end(self.alone)
        )
        until = min(self.late.arrivals[0], _first_end(self.joined))
        during = _rate_between(self.joined, self.sent, until)
        return during / before if before and during is not None else None


def _first_end(answers: Sequence[Answer]) -> float:
    return min(answer.arrivals[-1] for answer in answers)


async def _mix(client: Client, count: int, words: int, late: int, max_tokens: int) -> _Mix:
    def question(size: int) -> str:
        return texts.filler(size, uuid4().hex) + "\n\n" + texts.PROSE

    alone = await asyncio.gather(*(ask(client, question(words), max_tokens) for _ in range(count)))
    writing = [asyncio.Event() for _ in range(count)]
    try:
        async with asyncio.TaskGroup() as tasks:
            agents = [
                tasks.create_task(ask(client, question(words), max_tokens, event))
                for event in writing
            ]
            for event in writing:
                await event.wait()
            sent = time.monotonic()
            newcomer = await ask(client, question(late), max_tokens)
    except ExceptionGroup as group:
        raise group.exceptions[0] from group  # one is enough to say, and none is a group itself
    return _Mix(list(alone), [task.result() for task in agents], newcomer, sent)


def _rate_between(answers: Sequence[Answer], start: float, end: float) -> float | None:
    """Return the tokens/s of all within a time, an event counting as its answer's mean."""
    if end <= start:
        return None
    tokens = sum(
        sum(start < when <= end for when in answer.arrivals)
        * (answer.tokens / len(answer.arrivals))
        for answer in answers
    )
    return tokens / (end - start)


async def load(
    server: Server,
    streams: Sequence[int],
    tokens: int,
    runs: int,
    max_tokens: int,
    report: Report,
) -> Measured:
    """Measure the server full: so many requests at once, each with a prompt of its own."""
    found = Measured()
    async with _asking(server, found) as client:
        words = await words_for(client, tokens)
        for count in streams:
            found.case = f"load x{count}"
            answers: list[Answer] = []
            rates, asked_rates = [], []
            async with _watched(client) as accepted:
                for _ in range(runs):
                    prompts = [texts.filler(words, uuid4().hex) for _ in range(count)]
                    began = time.monotonic()
                    asked = (ask(client, prompt, max_tokens) for prompt in prompts)
                    batch = await asyncio.gather(*asked)
                    seconds = time.monotonic() - began
                    rates.append(sum(answer.tokens for answer in batch) / seconds)
                    asked_rates.append(count / seconds)
                    answers += batch
                    report(f"load x{count}: {rates[-1]:.1f} tok/s")
            for answer in answers:
                found.look_at(f"load x{count}", answer)
            case = Case(
                name=f"load x{count}",
                unit="tok/s",
                values=tuple(rates),
                acceptance=accepted[0],
                extra={"requests_per_second": median(asked_rates)},
                **_timings(answers),
            )
            found.cases.append(case)
    return found
