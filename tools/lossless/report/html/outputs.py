"""Outputs for the page: token ids and scores as short integer columns, each distinct output of a prompt once."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from lossless.analysis import Analysis
from lossless.protocol.redact import redact
from lossless.record.plan import LOGPROBS
from lossless.record.store import RecordedPrompt
from lossless.verdict import Candidate, OutputScores, Transcript

NATS = 100_000  # logprobs are kept as integers in units of 1e-5 nats
BROKEN = "\ufffd"  # what a decoder puts where the bytes are no whole character


class Vocabulary:
    """Tokens of a run in the order they were met: their ids, and their texts once each."""

    def __init__(self, text: Callable[[int], str]) -> None:
        self._text = text
        self._index: dict[int, int] = {}
        self._whole: dict[int, bool] = {}
        self.texts: list[str] = []

    def __getitem__(self, token_id: int) -> int:
        """The token's place in the table, entered on first sight."""
        if token_id not in self._index:
            self._index[token_id] = len(self.texts)
            self.texts.append(self._text(token_id))
        return self._index[token_id]

    def whole(self, token_id: int, decode: Callable[[tuple[int, ...], bool], str]) -> bool:
        """Whether a token is made of whole characters; each is decoded once."""
        if token_id not in self._whole:
            self._whole[token_id] = BROKEN not in decode((token_id,), False)
        return self._whole[token_id]

    @property
    def ids(self) -> list[int]:
        return list(self._index)


class Outputs:
    """The distinct outputs of one prompt: the same tokens and finish reason are stored once."""

    def __init__(self, analysis: Analysis, prompt: RecordedPrompt, vocabulary: Vocabulary) -> None:
        self._analysis, self._prompt, self._vocabulary = analysis, prompt, vocabulary
        self._index: dict[tuple[Any, ...], int] = {}
        self.packed: list[dict[str, Any]] = []

    def add(self, output: Transcript | None) -> int:
        """The place of an output, -1 where there is none."""
        if output is None:
            return -1
        key = (output.ids, output.text, output.finish)
        if key not in self._index:
            self._index[key] = len(self.packed)
            self.packed.append(self._pack(output))
        return self._index[key]

    def _pack(self, output: Transcript) -> dict[str, Any]:
        scores = self._analysis.scores(self._prompt, output)
        entry: dict[str, Any] = {
            "ids": [self._vocabulary[i] for i in output.ids],
            "finish": redact(str(output.finish)),
            **(pack_scores(scores, self._vocabulary) if scores is not None else {}),
        }
        if scores is not None:
            entry["source"] = "re-scored by the baseline"
        elif (decoded := self._decoded(output)) is not None:
            entry |= {**pack_scores(decoded, self._vocabulary), "source": "the baseline's own decode"}
        if joined := self._joined(output.ids):
            entry["texts"] = {t: redact(text) for t, text in joined.items()}
        if self._analysis.tokenizer is None or self._mistold(output):
            entry["text"] = redact(output.text)
        return entry

    def _mistold(self, output: Transcript) -> bool:
        """Whether the text the server sent is not that of the tokens, or differs from another answer's."""
        skip = self._prompt.sampling.skip_special_tokens
        own = self._analysis.detokenize(output.ids, skip)
        return not own.startswith(output.text)  # a stop string or token is cut off the text

    def _decoded(self, output: Transcript) -> OutputScores | None:
        """What the baseline's decode itself reported for these very tokens, where re-scoring has nothing."""
        answer = self._analysis.baseline.answers.get((LOGPROBS, self._prompt.id, 0))
        if answer is None or answer.output_ids != output.ids or not answer.output_logprobs or not answer.output_top:
            return None
        if not len(answer.output_logprobs) == len(answer.output_top) == len(output.ids):
            return None
        return OutputScores(
            output.ids,
            tuple(e.logprob for e in answer.output_logprobs),
            tuple(
                tuple(Candidate(c.token_id, math.nan if c.logprob is None else c.logprob) for c in row)
                for row in answer.output_top
            ),
        )

    def _joined(self, ids: tuple[int, ...]) -> dict[str, str]:
        """Texts by position where characters are made of several tokens: all of it at the last, "" before."""
        found: dict[str, str] = {}
        if self._analysis.tokenizer is None:
            return found
        decode, start = self._analysis.detokenize, 0
        while start < len(ids):
            if self._vocabulary.whole(ids[start], decode):
                start += 1
                continue
            for end in range(start + 2, min(start + 6, len(ids)) + 1):
                text = decode(ids[start:end], False)
                if BROKEN not in text:
                    found |= {str(i): "" for i in range(start, end - 1)} | {str(end - 1): text}
                    start = end
                    break
            else:
                start += 1
        return found


def pack_scores(scores: OutputScores, vocabulary: Vocabulary) -> dict[str, Any]:
    """Scores as columns of integers, in units of 1e-5 nats.

    ``logprob``: of the emitted token, null where unknown. ``second`` and ``second_logprob``: the best token after the
    argmax (-1: none). ``off``: where the emitted token is not the argmax, by position, the argmax and its logprob.
    ``unsound``: positions whose values contradict each other.
    """
    logprob: list[int | None] = []
    second: list[int] = []
    second_logprob: list[int | None] = []
    off: dict[str, list[int | None]] = {}
    unsound: list[int] = []
    for t, emitted in enumerate(scores.ids):
        own = scores.logprobs[t]
        ranked = sorted((c for c in scores.top[t] if not math.isnan(c.logprob)), key=lambda c: -c.logprob)
        logprob.append(units(own))
        if own is None or not scores.sound(t):
            unsound.append(t)
        if ranked and own is not None and own >= ranked[0].logprob:
            ranked = [Candidate(emitted, own), *(c for c in ranked if c.token_id != emitted)]
        if ranked and ranked[0].token_id != emitted:
            off[str(t)] = [vocabulary[ranked[0].token_id], units(ranked[0].logprob)]
        runner = ranked[1] if len(ranked) > 1 else None
        second.append(-1 if runner is None else vocabulary[runner.token_id])
        second_logprob.append(None if runner is None else units(runner.logprob))
    packed: Mapping[str, Any] = {
        "logprob": logprob,
        "second": second,
        "second_logprob": second_logprob,
        "off": off,
        "unsound": unsound,
    }
    return {k: v for k, v in packed.items() if v}


def units(nats: float | None) -> int | None:
    """Nats as an integer in units of 1e-5; None where it is no number."""
    return round(nats * NATS) if nats is not None and math.isfinite(nats) else None
