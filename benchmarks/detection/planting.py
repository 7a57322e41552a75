"""Wrong tokens of a chosen size in real outputs: a real server goes on from each, and the real baseline scores all.

This stands for any fault that lets a wrong token through: what matters to a judge is how wrong it was and how many
there were.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random

from benchmarks.detection.rules import RULES, Pair

from lossless.analysis.load import scores, stop_rules, transcript
from lossless.prompts import Tokenizer
from lossless.protocol import Answer, GenerateRequest
from lossless.protocol.answers import TokenLogprob
from lossless.protocol.client import Client
from lossless.record.recorder import scoring_request
from lossless.record.store import RecordedPrompt
from lossless.reference.background import background
from lossless.verdict import Epsilon, Evidence, Finish, OutputScores, Transcript, judge

CANDIDATES = 20
Choose = Callable[[int, tuple[TokenLogprob, ...]], int | None]
"""(position, best candidates there) -> the wrong token to put out, or None"""


@dataclass(frozen=True, slots=True)
class Planted:
    """One corrupted output as each rule sees it. ``regret``: the largest of its planted tokens, in nats, as re-scored;
    ``wrong`` planted tokens of ``tokens``; ``flags``: which rules fail this one pair; ``equal``: the texts are."""

    panel: str
    prompt: str
    regret: float
    wrong: int
    tokens: int
    flags: dict[str, bool]
    reason: str | None
    equal: bool


@dataclass
class Bench:
    """A baseline and an honest variant that are both running, and how their outputs are judged."""

    baseline: Client
    variant: Client
    tokenizer: Tokenizer
    eos_ids: tuple[int, ...]
    epsilon: Epsilon
    own_rate: float
    generated: int = 0
    _said: dict[tuple[int, ...], Answer] = field(default_factory=dict)
    _honest: dict[str, Transcript] = field(default_factory=dict)

    def honest(self, prompt: RecordedPrompt) -> Transcript:
        """The baseline's answer."""
        if prompt.id not in self._honest:
            answer = self.baseline.generate(GenerateRequest(prompt.ids, prompt.sampling))
            self.generated += len(answer.output_ids)
            self._honest[prompt.id] = transcript(answer)
        return self._honest[prompt.id]

    def goes_on(self, prompt: RecordedPrompt, prefix: tuple[int, ...]) -> Answer:
        """What the variant says after the prompt and ``prefix``, with its best candidates at each position."""
        key = (*prompt.ids, -1, *prefix)
        if key not in self._said:
            sampling = replace(prompt.sampling, max_new_tokens=prompt.sampling.max_new_tokens - len(prefix))
            request = GenerateRequest(
                (*prompt.ids, *prefix), sampling, return_logprob=True, top_logprobs_num=CANDIDATES
            )
            answer = self._said[key] = self.variant.generate(request)
            self.generated += len(answer.output_ids)
        return self._said[key]

    def plant(self, prompt: RecordedPrompt, choose: Choose) -> tuple[tuple[int, ...], list[int]]:
        """An output with the tokens that ``choose`` picks, and their positions."""
        prefix: tuple[int, ...] = ()
        wrong: list[int] = []
        while len(prefix) < prompt.sampling.max_new_tokens:
            said = self.goes_on(prompt, prefix)
            for offset, row in enumerate(said.output_top or ()):
                token = None if row is None else choose(len(prefix) + offset, row)
                if token is not None and token not in self.eos_ids:
                    wrong.append(len(prefix) + offset)
                    prefix = (*prefix, *said.output_ids[:offset], token)
                    break
            else:
                return (*prefix, *said.output_ids), wrong
        return prefix, wrong

    def score(self, prompt: RecordedPrompt, ids: tuple[int, ...]) -> OutputScores:
        found = scores(self.baseline.generate(scoring_request(prompt, ids)), ids)
        assert found is not None, "the embedded engine scores every token"
        return found

    def judged(self, panel: str, prompt: RecordedPrompt, ids: tuple[int, ...], wrong: list[int]) -> Planted:
        """What each rule makes of an output with wrong tokens at these positions."""
        scored = self.score(prompt, ids)
        variant = self._transcript(ids)
        verdict = judge(
            Evidence(
                baseline=self.honest(prompt),
                variant=variant,
                rules=stop_rules(prompt, self.eos_ids),
                epsilon=self.epsilon,
                scores=scored,
                own_rate=self.own_rate,
                detokenize=lambda ids, skip: self.tokenizer.decode(ids, skip),
            )
        )
        pair = Pair(self.honest(prompt), variant, scored, verdict)
        return Planted(
            panel=panel,
            prompt=prompt.id,
            regret=max((scored.regret(t) or 0.0 for t in wrong), default=0.0),
            wrong=len(wrong),
            tokens=len(ids),
            flags={name: rule([pair]) for name, rule in RULES.items()},
            reason=None if verdict.reason is None else str(verdict.reason),
            equal=pair.baseline.text == variant.text,
        )

    def _transcript(self, ids: tuple[int, ...]) -> Transcript:
        stopped = bool(ids) and ids[-1] in self.eos_ids
        finish = Finish("stop", ids[-1]) if stopped else Finish("length")
        text = self.tokenizer.decode(ids[:-1] if stopped else ids, True)
        return Transcript(ids, text, finish, len(ids))


@contextmanager
def running(
    tokenizer: Tokenizer,
    eos_ids: tuple[int, ...],
    epsilon: Epsilon,
    own_rate: float,
    baseline: tuple[str, ...],
    variant: tuple[str, ...],
) -> Iterator[Bench]:
    """Both servers, while the block runs."""
    with background(baseline) as a, background(variant) as b, Client(a) as left, Client(b) as right:
        yield Bench(left, right, tokenizer, eos_ids, epsilon, own_rate)


def one_wrong_token(
    bench: Bench, prompts: tuple[RecordedPrompt, ...], sizes: tuple[float, ...], each: int, random: Random
) -> Iterator[Planted]:
    """Panel ``size``: one wrong token an output; ``each`` outputs with a regret between two neighboring ``sizes``."""
    chances = [
        (prompt, t, entry.token_id, row[0].logprob - entry.logprob)
        for prompt in prompts
        for t, row in enumerate(bench.goes_on(prompt, ()).output_top or ())
        if row and row[0].logprob is not None
        for entry in row[1:]
        if entry.logprob is not None and entry.token_id not in bench.eos_ids
    ]
    for low, high in itertools.pairwise(sizes):
        fitting = [c for c in chances if low <= c[3] < high]
        for prompt, at, token, _ in random.sample(fitting, min(each, len(fitting))):
            ids, wrong = bench.plant(prompt, _only(at, token))
            yield bench.judged("size", prompt, ids, wrong)


def _only(at: int, token: int) -> Choose:
    return lambda t, _row: token if t == at else None


def many_wrong_tokens(
    bench: Bench,
    panel: str,
    prompts: tuple[RecordedPrompt, ...],
    bounds: tuple[float, float],
    shares: tuple[float, ...],
    random: Random,
) -> Iterator[Planted]:
    """A share of the positions gets a wrong token with a regret within ``bounds`` (nats), wherever there is one."""
    for share in shares:
        for prompt in prompts:

            def choose(t: int, row: tuple[TokenLogprob, ...], share: float = share) -> int | None:
                del t
                best = row[0].logprob
                if best is None or random.random() >= share:
                    return None
                fitting = [e for e in row[1:] if e.logprob is not None and bounds[0] <= best - e.logprob < bounds[1]]
                return random.choice(fitting).token_id if fitting else None

            ids, wrong = bench.plant(prompt, choose)
            if wrong:
                yield bench.judged(panel, prompt, ids, wrong)
