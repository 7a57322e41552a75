"""The entries of the evidence format: one type an entry, field by field, with units. See ``evidence_format``.

Logprobs, gaps and bounds are natural logarithms (nats); lengths are tokens; times are seconds.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from lossless.verdict.kinds import Kind, Reason

Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts that were asked."""

    name: Annotated[str, Meta(description="quick, standard, full, or the file's name")]
    digest: Annotated[str, Meta(description="digest of prompts and sampling parameters")]
    prompts: Annotated[int, Meta(description="how many prompts", ge=0)]


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server as it came up; null where neither its log nor the server says."""

    name: Annotated[str, Meta(description="baseline or the variant's name")]
    version: Annotated[str | None, Meta(description="the engine's own version")]
    start_s: Annotated[float, Meta(description="start-up time, seconds")]
    target_gb: Annotated[float | None, Meta(description="memory of the target's weights, GB")]
    draft_gb: Annotated[float | None, Meta(description="memory of the draft's weights, GB")]
    kv_pool_tokens: Annotated[int | None, Meta(description="KV pool, tokens")]
    context_length: Annotated[int | None, Meta(description="longest request, tokens")]
    running_requests: Annotated[int | None, Meta(description="requests the server runs at once")]
    mamba_slots: Annotated[int | None, Meta(description="state slots of linear-attention layers")]
    available_gb: Annotated[float | None, Meta(description="memory left on the card after start-up, GB")]
    attention_backend: Annotated[str | None, Meta(description="resolved attention backend")]
    linear_attention_backend: Annotated[str | None, Meta(description="resolved linear-attention backend")]
    warnings: Annotated[list[str], Meta(description="what an operator should know; touches no answer")]


@dataclass(frozen=True, slots=True)
class NoiseFloorEntry:
    """How far the baseline's decode and its own re-scoring disagree."""

    value: Annotated[float | None, Meta(description="the floor, nats")]
    tokens: Annotated[int, Meta(description="positions measured", ge=0)]
    missing: Annotated[int, Meta(description="positions without evidence", ge=0)]
    median_shift: Annotated[float | None, Meta(description="median of |decode - re-scored| logprob, nats")]
    p99_shift: Annotated[float | None, Meta(description="its 99th percentile, nats")]
    max_shift: Annotated[float | None, Meta(description="its maximum, nats")]
    p99_gap_shift: Annotated[float | None, Meta(description="99th percentile of the top-2 gap's shift, nats")]
    max_gap_shift: Annotated[float | None, Meta(description="its maximum, nats")]
    max_regret: Annotated[float | None, Meta(description="largest regret of the baseline's own tokens, nats")]
    regret_count: Annotated[int, Meta(description="own tokens with a regret above 0", ge=0)]


@dataclass(frozen=True, slots=True)
class EpsilonEntry:
    """The near-tie bound: clamp(k * floor, minimum, cap)."""

    value: Annotated[float | None, Meta(description="the bound, nats; null where none could be had")]
    k: Annotated[float, Meta(description="factor on the noise floor")]
    minimum: Annotated[float, Meta(description="lower clamp, nats")]
    cap: Annotated[float, Meta(description="upper clamp, nats")]
    floor: Annotated[NoiseFloorEntry | None, Meta(description="null where the bound was given by hand")]
    problem: Annotated[str | None, Meta(description="why the bound cannot be trusted, or null")]


@dataclass(frozen=True, slots=True)
class ControlEntry:
    """What must hold before any verdict counts."""

    name: Annotated[str, Meta(description="repeatable, noise floor, no speculation, pair, speculation, …")]
    scope: Annotated[str, Meta(description="baseline, or the variant it is about")]
    ok: Annotated[bool, Meta(description="whether it holds")]
    detail: Annotated[str, Meta(description="one sentence with the numbers")]
    reason: Annotated[Reason | None, Meta(description="what a failure makes the verdicts")]
    notes: Annotated[list[str], Meta(description="remarks for a reader")]


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One token."""

    token_id: Annotated[int, Meta(description="id in the target's vocabulary")]
    logprob: Annotated[float | None, Meta(description="under the baseline given the variant's prefix, nats")]


@dataclass(frozen=True, slots=True)
class DifferenceEntry:
    """One aligned hunk between the two outputs. Positions count output tokens from 0; an end is one past the last."""

    baseline_start: Annotated[int, Meta(description="first token of the hunk in the baseline's output", ge=0)]
    baseline_end: Annotated[int, Meta(description="one past its last token there", ge=0)]
    variant_start: Annotated[int, Meta(description="first token of the hunk in the variant's output", ge=0)]
    variant_end: Annotated[int, Meta(description="one past its last token there", ge=0)]
    baseline_token: Annotated[TokenEntry | None, Meta(description="null: no token there")]
    variant_token: Annotated[TokenEntry | None, Meta(description="null: no token there")]
    argmax: Annotated[TokenEntry | None, Meta(description="the baseline's best token given the variant's prefix")]
    gap: Annotated[float | None, Meta(description="the variant's token below the argmax, nats")]
    top2_gap: Annotated[float | None, Meta(description="the argmax above the second candidate, nats")]
    rank: Annotated[int | None, Meta(description="place of the variant's token, 1 is the argmax")]
    ties: Annotated[int, Meta(description="candidates that share the best logprob exactly")]
    candidates: Annotated[list[TokenEntry], Meta(description="the baseline's best candidates, best first")]
    reconverged_for: Annotated[int, Meta(description="equal tokens after the hunk", ge=0)]
    to_end: Annotated[bool, Meta(description="whether these reach the end of both outputs")]


@dataclass(frozen=True, slots=True)
class RegretEntry:
    """logprob(argmax) - logprob(emitted) over one output, under the baseline given the output's own prefix."""

    tokens: Annotated[int, Meta(description="tokens of the output", ge=0)]
    count: Annotated[int, Meta(description="tokens with a regret above 0", ge=0)]
    total: Annotated[float, Meta(description="sum, nats", ge=0)]
    largest: Annotated[float, Meta(description="maximum, nats", ge=0)]
    largest_at: Annotated[int | None, Meta(description="position of the maximum, null where every regret is 0")]


@dataclass(frozen=True, slots=True)
class BudgetEntry:
    """What rounding explains for an output of this length."""

    tokens: Annotated[int, Meta(description="tokens of the output", ge=0)]
    count: Annotated[int, Meta(description="tokens off the argmax", ge=0)]
    total: Annotated[float, Meta(description="sum of regrets, nats", ge=0)]


@dataclass(frozen=True, slots=True)
class HintEntry:
    """A likely kind of fault: a guess that touches no verdict."""

    kind: Annotated[str, Meta(description="kind of fault")]
    sentence: Annotated[str, Meta(description="worded as a guess")]
    evidence: Annotated[str, Meta(description="what the guess rests on")]
    reports: Annotated[list[str], Meta(description="public reports of the same kind")]


@dataclass(frozen=True, slots=True)
class FinishEntry:
    """Why an answer ended."""

    type: Annotated[str, Meta(description="stop, length or abort")]
    matched: Annotated[int | str | None, Meta(description="stop token or stop string")]


@dataclass(frozen=True, slots=True)
class FinishPair:
    """Why the two answers ended; null where there is no answer."""

    baseline: Annotated[FinishEntry | None, Meta(description="why the baseline's answer ended")]
    variant: Annotated[FinishEntry | None, Meta(description="why the variant's answer ended")]


@dataclass(frozen=True, slots=True)
class GoldenEntry:
    """One verdict: one answer against the answer it has to equal."""

    prompt: Annotated[str, Meta(description="prompt id")]
    category: Annotated[str, Meta(description="kind of task")]
    group: Annotated[str, Meta(description="which stages the prompt belongs to")]
    variant: Annotated[str, Meta(description="the judged server; baseline where a golden is compared")]
    stage: Annotated[str, Meta(description="how it was asked: plain, together, hit, order, logprobs, golden, …")]
    turn: Annotated[int, Meta(description="which of the stage's requests for this prompt, from 0", ge=0)]
    verdict: Annotated[Kind, Meta(description="the verdict")]
    label: Annotated[str, Meta(description="the verdict with what matters about it, such as near-tie (forked)")]
    reason: Annotated[Reason | None, Meta(description="why it is divergent or inconclusive")]
    detail: Annotated[str, Meta(description="one sentence with the numbers")]
    baseline_tokens: Annotated[int, Meta(description="output tokens of the baseline", ge=0)]
    variant_tokens: Annotated[int, Meta(description="output tokens of the variant", ge=0)]
    differences: Annotated[list[DifferenceEntry], Meta(description="empty where the outputs are equal")]
    reconverged: Annotated[bool | None, Meta(description="null where nothing differs, false for a fork")]
    regret: Annotated[RegretEntry | None, Meta(description="null where the output was not re-scored")]
    budget: Annotated[BudgetEntry | None, Meta(description="null where the output was not re-scored")]
    notes: Annotated[list[str], Meta(description="remarks for a reader")]
    finish: Annotated[FinishPair, Meta(description="finish reasons")]


@dataclass(frozen=True, slots=True)
class VerdictEntry(GoldenEntry):
    """A variant's verdict, with guesses at the fault where it did not pass."""

    hints: Annotated[list[HintEntry], Meta(description="at most three, best first")]


@dataclass(frozen=True, slots=True)
class BrokenRuleEntry:
    """A stop, length, text or logprob rule that the variant breaks in some stage and the baseline keeps."""

    variant: Annotated[str, Meta(description="the variant that breaks it")]
    prompt: Annotated[str, Meta(description="prompt id")]
    reason: Annotated[Reason, Meta(description="which kind of rule")]
    message: Annotated[str, Meta(description="stage and numbers")]


@dataclass(frozen=True, slots=True)
class KnownIssueEntry:
    """A public fault of the SGLang version, and the prompts it covers: they are expected to diverge."""

    id: Annotated[str, Meta(description="name of the issue")]
    versions: Annotated[str, Meta(description="PEP 440 specifier")]
    algorithms: Annotated[list[str], Meta(description="speculative algorithms it touches")]
    parameter: Annotated[str, Meta(description="the sampling parameter that does it")]
    what: Annotated[str, Meta(description="what goes wrong")]
    reference: Annotated[str, Meta(description="where it was reported")]
    prompts: Annotated[list[str], Meta(description="prompt ids it covers")]


@dataclass(frozen=True, slots=True)
class AcceptanceEntry:
    """How well drafts were accepted."""

    accept_length: Annotated[float | None, Meta(description="completion tokens a verify step, bonus token included")]
    verify_steps: Annotated[int, Meta(description="verify steps", ge=0)]
    prompts: Annotated[int, Meta(description="answers with a verify step", ge=0)]


@dataclass(frozen=True, slots=True)
class SpeedEntry:
    """Decode speed, one request at a time, client wall time."""

    tokens_per_s: Annotated[float | None, Meta(description="completion tokens a second")]
    tokens: Annotated[int, Meta(description="completion tokens", ge=0)]


@dataclass(frozen=True, slots=True)
class ContextAcceptance(AcceptanceEntry):
    """Accept length at one context length."""

    prompt_tokens: Annotated[int, Meta(description="prompt length, tokens", ge=0)]


@dataclass(frozen=True, slots=True)
class ContextSpeed:
    """Speed at one context length, one request at a time, prefill included."""

    prompt_tokens: Annotated[int, Meta(description="prompt length, tokens", ge=0)]
    tokens_per_s: Annotated[float | None, Meta(description="completion tokens by client wall seconds")]
    seconds: Annotated[float | None, Meta(description="mean wall time of one prompt, seconds")]
    prompts: Annotated[int, Meta(description="answers", ge=0)]


@dataclass(frozen=True, slots=True)
class NeedleEntry:
    """Hidden facts that a server found; no part of any verdict."""

    asked: Annotated[int, Meta(description="prompts with a known answer that it answered", ge=0)]
    found: Annotated[list[str], Meta(description="ids of those it answered rightly")]


@dataclass(frozen=True, slots=True)
class SurvivalEntry:
    """How one server came through the stress test. Counts are requests."""

    server: Annotated[str, Meta(description="baseline or the variant's name")]
    ok: Annotated[bool, Meta(description="whether it lives, is well, and says what it said before")]
    detail: Annotated[str, Meta(description="one sentence with the numbers")]
    longest_tokens: Annotated[int, Meta(description="prompt tokens of each of the long requests at once", ge=0)]
    pair: Annotated[int, Meta(description="long requests at once", ge=0)]
    burst: Annotated[int, Meta(description="short requests at once", ge=0)]
    aborts: Annotated[int, Meta(description="requests ended by /abort_request in mid-answer", ge=0)]
    aborted: Annotated[int, Meta(description="those that then said so", ge=0)]
    disconnects: Annotated[int, Meta(description="requests ended by closing the connection", ge=0)]
    retractions: Annotated[int, Meta(description="retractions that the server counted", ge=0)]
    retraction_note: Annotated[str | None, Meta(description="why none was provoked, or null")]
    failed: Annotated[list[str], Meta(description="what went wrong with requests that nobody ended")]
    healthy: Annotated[bool, Meta(description="/health afterwards")]
    flushed: Annotated[bool, Meta(description="whether the cache could be flushed: nothing is left running")]
    leaks: Annotated[list[str], Meta(description="memory or slots that did not come back")]
    problem: Annotated[str | None, Meta(description="diagnosis of a server that died")]
    drain_s: Annotated[float, Meta(description="seconds until nothing ran any more", ge=0)]
    ran_on: Annotated[int, Meta(description="abandoned requests the server went on with, by its log", ge=0)]
    answers: Annotated[dict[str, dict[str, Count]], Meta(description="answers by stage (stress, after) and label")]


@dataclass(frozen=True, slots=True)
class TimingsEntry:
    """Wall time of recording one server; empty where it never started."""

    start_s: Annotated[float | UnsetType, Meta(description="start-up, seconds")] = UNSET
    generate_s: Annotated[float | UnsetType, Meta(description="all generating stages, seconds")] = UNSET
    score_s: Annotated[float | UnsetType, Meta(description="re-scoring, seconds")] = UNSET
    stage_s: Annotated[dict[str, float] | UnsetType, Meta(description="seconds by stage")] = UNSET
