"""Stop, length and text rules that one transcript must keep, whoever produced it.

Speculation emits several tokens a step, so an end of sequence, a stop string or the token cap can lie inside a step;
what is emitted after it is the fault these rules find (sglang #31599 and others).
"""

from collections.abc import Callable
from dataclasses import dataclass

from lossless.verdict.kinds import Reason
from lossless.verdict.transcript import StopRules, Transcript

Detokenize = Callable[[tuple[int, ...], bool], str]
"""(token ids, skip special tokens) -> text"""

REPLACEMENT = "\ufffd"  # what an unfinished multi-byte character decodes to


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, with the reason it stands for in a verdict."""

    reason: Reason
    message: str


def violations(transcript: Transcript, rules: StopRules, detokenize: Detokenize | None) -> tuple[Violation, ...]:
    """Every rule the transcript breaks. Without ``detokenize`` the text and stop-string rules are not looked at."""
    found = [*_counts(transcript, rules), *_stop_tokens(transcript, rules)]
    if detokenize is not None:
        found += _stop_strings(transcript, rules, detokenize)
        found += _text(transcript, rules, detokenize)
    return tuple(found)


def _counts(transcript: Transcript, rules: StopRules) -> list[Violation]:
    n, found = len(transcript.ids), []
    if n > rules.max_new_tokens:
        found.append(Violation(Reason.STOP, f"{n} tokens, but max_new_tokens is {rules.max_new_tokens}"))
    if transcript.completion_tokens != n:
        found.append(
            Violation(Reason.LENGTH, f"completion_tokens says {transcript.completion_tokens}, but there are {n} ids")
        )
    if transcript.finish.type == "length" and n < rules.max_new_tokens:
        found.append(Violation(Reason.LENGTH, f"finish reason is length after {n} of {rules.max_new_tokens} tokens"))
    if transcript.finish.type not in ("stop", "length"):
        found.append(Violation(Reason.STOP, f"finish reason is {transcript.finish}"))
    return found


def _stop_tokens(transcript: Transcript, rules: StopRules) -> list[Violation]:
    found: list[Violation] = []
    stopping = rules.stopping_ids
    at = next((t for t, token in enumerate(transcript.ids) if token in stopping), None)
    last = len(transcript.ids) - 1
    if at is not None and at < last:
        found.append(
            Violation(Reason.STOP, f"{last - at} tokens follow the stop token {transcript.ids[at]} at position {at}")
        )
    if at is not None and at < min(rules.min_new_tokens, rules.max_new_tokens):
        found.append(
            Violation(
                Reason.STOP,
                f"stop token {transcript.ids[at]} at position {at}, but min_new_tokens is {rules.min_new_tokens}",
            )
        )
    finish = transcript.finish
    if finish.type == "length" and at is not None and at == last:
        found.append(
            Violation(Reason.STOP, f"the last token {transcript.ids[last]} is a stop token, but finish is {finish}")
        )
    if finish.type == "stop" and not isinstance(finish.matched, str):
        if not transcript.ids:
            found.append(Violation(Reason.STOP, f"finish is {finish} without any token"))
        elif finish.matched is not None and transcript.ids[-1] != finish.matched:
            found.append(Violation(Reason.STOP, f"finish is {finish}, but the last token is {transcript.ids[-1]}"))
        elif at is None:
            found.append(Violation(Reason.STOP, f"finish is {finish}, but no stop token was emitted"))
    return found


def _stop_strings(transcript: Transcript, rules: StopRules, detokenize: Detokenize) -> list[Violation]:
    found: list[Violation] = []
    finish = transcript.finish
    whole = detokenize(transcript.ids, rules.skip_special_tokens)
    if isinstance(finish.matched, str):
        if finish.matched not in rules.stop:
            found.append(Violation(Reason.STOP, f"finish is {finish}, but the stop strings are {list(rules.stop)}"))
        elif finish.matched not in whole:
            found.append(Violation(Reason.STOP, f"finish is {finish}, but the tokens do not spell it"))
    before = detokenize(transcript.ids[:-1], rules.skip_special_tokens)
    for stop in rules.stop:
        if stop in before:
            found.append(Violation(Reason.STOP, f"tokens follow the stop string {stop!r}"))
        elif stop in whole and not isinstance(finish.matched, str):
            found.append(Violation(Reason.STOP, f"the output spells the stop string {stop!r}, but finish is {finish}"))
    return found


def _text(transcript: Transcript, rules: StopRules, detokenize: Detokenize) -> list[Violation]:
    expected = expected_text(transcript, rules, detokenize)
    if transcript.text == expected:
        return []
    # An unfinished character at the end may be held back or shown as a replacement mark; both are true to the ids.
    if transcript.text.rstrip(REPLACEMENT) == expected.rstrip(REPLACEMENT):
        return []
    at = next(
        (i for i, (x, y) in enumerate(zip(transcript.text, expected, strict=False)) if x != y),
        min(len(transcript.text), len(expected)),
    )
    lo = max(0, at - 20)
    return [
        Violation(
            Reason.TEXT,
            f"the text is not the detokenized ids; first difference at character {at}: "
            f"server {transcript.text[lo : at + 20]!r}, ids {expected[lo : at + 20]!r}",
        )
    ]


def expected_text(transcript: Transcript, rules: StopRules, detokenize: Detokenize) -> str:
    """The text SGLang promises for these ids: the stop token or string is cut off unless ``no_stop_trim``."""
    ids, matched = transcript.ids, transcript.finish.matched
    if not rules.no_stop_trim and ids and isinstance(matched, int) and ids[-1] == matched:
        ids = ids[:-1]
    text = detokenize(ids, rules.skip_special_tokens)
    if not rules.no_stop_trim and isinstance(matched, str) and matched in text:
        text = text[: text.index(matched)]
    return text
