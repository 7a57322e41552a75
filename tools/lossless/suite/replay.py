"""Sends one recorded prompt to both servers again, and makes the request smaller while the answers still differ."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lossless.analysis import Analysis, Judged
from lossless.analysis.analysis import BASELINE, REFERENCE
from lossless.analysis.load import prompt_scores, stop_rules, transcript
from lossless.analysis.reduce import Replayed, shorten
from lossless.errors import LosslessError, ServerDied, ServerError, UsageError
from lossless.profiles import Profile, load_profile, with_overrides
from lossless.profiles.profile import Baseline, Variant
from lossless.protocol import Answer, Client, GenerateRequest
from lossless.record.plan import HIT, ORDER, PLAIN, TOGETHER, not_scorable
from lossless.record.recorder import scoring_request
from lossless.record.store import RecordedPrompt, output_digest
from lossless.servers import Server, make_server
from lossless.servers.diagnosis import explain
from lossless.servers.pair import ServerFacts, compare_pair, config_problems
from lossless.servers.pair_arguments import MATTER
from lossless.suite.cards import lease, lock_folder, visible_cards
from lossless.verdict import Evidence, Failure, Kind, OutputScores, Reason, StopRules, judge

STAGES = (HIT, TOGETHER, ORDER)  # what can be sent again beside or after the other requests of the stage
TOKEN_REASONS = frozenset({Reason.GAP, Reason.REGRET, Reason.BUDGET, Reason.UNPROVEN_FORK})
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Pair:
    """Two running servers, and why they cannot be compared, if so."""

    baseline: Client
    variant: Client
    overlapped: bool
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the run a prompt is sent again: stage and turn, and the requests that go ``before`` it or ``beside`` it
    to both servers. The prompt itself may be among those before."""

    stage: str = PLAIN
    turn: int = 0
    before: tuple[RecordedPrompt, ...] = ()
    beside: tuple[RecordedPrompt, ...] = ()


def choose_place(analysis: Analysis, prompt_id: str, variant: str) -> Place:
    """Where a prompt's difference shows: alone on an empty cache if it does there; else as a prefix-cache hit, beside
    others, or after others.

    Raises:
        UsageError: the run has no such prompt or variant.
    """
    if variant not in analysis.manifest.variants:
        raise UsageError(f"this run has no variant {variant!r}; it has: {', '.join(analysis.manifest.variants)}")
    if prompt_id not in analysis.prompts:
        raise UsageError(
            f"this run has no prompt {prompt_id!r}", hint=f"lossless verify {analysis.store.path} --json lists them"
        )
    if analysis.verdict(variant, prompt_id).verdict.kind is Kind.DIVERGENT:
        return Place()
    for stage in STAGES:
        for turn in (1, 0):
            if stage in _differs_in(analysis, prompt_id, variant, turn):
                return _place(analysis, prompt_id, stage, turn)
    return Place()


def _differs_in(analysis: Analysis, prompt_id: str, variant: str, turn: int) -> tuple[str, ...]:
    """The stages in whose turn this prompt is divergent, the plain one aside."""
    return tuple(
        stage
        for stage, asked, asked_turn in analysis.staged()
        if (asked, asked_turn) == (prompt_id, turn)
        and analysis.verdict(variant, asked, stage, turn).verdict.kind is Kind.DIVERGENT
    )


def _place(analysis: Analysis, prompt_id: str, stage: str, turn: int) -> Place:
    asked = [(p, n) for s, p, n in analysis.staged() if s == stage]
    at = asked.index((prompt_id, turn))
    if stage == TOGETHER:
        others = [analysis.prompts[p] for k, (p, _) in enumerate(asked) if k != at]
        return Place(stage, turn, beside=tuple(others[: max(1, analysis.manifest.concurrency - 1)]))
    names = [prompt_id] if (stage, turn) == (HIT, 1) else [p for p, _ in asked[:at]]
    return Place(stage, turn, before=tuple(analysis.prompts[p] for p in names))


def replay(
    analysis: Analysis, prompt_id: str, variant: str, pair: Pair, *, place: Place, tries: int, progress: Progress
) -> Replayed:
    """Send the prompt again; with ``tries`` above 0 shorten it by at most so many more pairs of requests.

    The baseline answers twice at the start and at the end, so that its own whims are not taken for a fault.

    Raises:
        ServerError: a server died, or did not answer the first time.
    """
    prompt = analysis.prompts[prompt_id]
    sender = _Sender(analysis, variant, pair, place)
    progress(f"sending {prompt_id} ({_size(prompt)})")
    first = sender.send(prompt, twice=True)
    result = Replayed(place.stage, first, before=place.before, beside=place.beside, notes=pair.notes)
    if first.verdict.kind is not Kind.DIVERGENT or tries < 1:
        return replace(result, open_stages=_open(analysis, prompt_id, variant) if first.verdict.passed() else ())

    def still_fails(ids: tuple[int, ...], cap: int) -> bool:
        smaller = _resized(prompt, ids, cap)
        try:
            verdict = sender.send(smaller).verdict
        except ServerDied:
            raise
        except ServerError as problem:
            progress(f"{_size(smaller)}: {problem.message}")
            return False
        fails = verdict.kind is Kind.DIVERGENT and _alike(verdict.reason, first.verdict.reason)
        progress(f"{_size(smaller)}: {'still ' if fails else ''}{verdict.label}")
        return fails

    sampling = prompt.sampling
    least = min(max(1, sampling.min_new_tokens), sampling.max_new_tokens)
    found = shorten(prompt.ids, sampling.max_new_tokens, still_fails, least_cap=least, tries=tries)
    smallest = sender.send(_resized(prompt, found.ids, found.cap), twice=True)
    if smallest.verdict.kind is not Kind.DIVERGENT:
        note = "the shortened request did not differ when it was sent again, so the original one is shown"
        return replace(result, reduction=found, notes=(*pair.notes, note))
    return replace(result, smallest=smallest, reduction=found)


class _Sender:
    """Sends one request to both servers and judges the answers as the run's analysis would."""

    def __init__(self, analysis: Analysis, variant: str, pair: Pair, place: Place) -> None:
        self._analysis, self._variant, self._pair, self._place = analysis, variant, pair, place

    def send(self, prompt: RecordedPrompt, *, twice: bool = False) -> Judged:
        pair, analysis = self._pair, self._analysis
        baseline = self._answer(pair.baseline, prompt)
        repeat = self._answer(pair.baseline, prompt) if twice else None
        answer = self._answer(pair.variant, prompt)
        left, right = transcript(baseline), transcript(answer)
        rules = stop_rules(prompt, analysis.eos_ids)
        scorable = not not_scorable(prompt.sampling)
        scores = self._scores(prompt, answer, rules) if scorable and left.ids != right.ids and right.ids else None
        verdict = judge(
            Evidence(
                baseline=left,
                variant=right,
                rules=rules,
                epsilon=analysis.epsilon,
                scores=scores,
                repeat=transcript(repeat) if repeat is not None else None,
                own_rate=analysis.noise.regret_rate,
                failures=(*pair.failures, *_silent(answer)),
                detokenize=analysis.detokenize if analysis.tokenizer else None,
                names=(BASELINE, self._variant),
                unscored="the baseline has not re-scored this output" if scorable else None,
            )
        )
        return Judged(self._variant, prompt, "replay", 0, verdict, left, right, (BASELINE, self._variant))

    def _answer(self, client: Client, prompt: RecordedPrompt) -> Answer:
        client.flush_cache()
        for other in self._place.before:
            client.generate(_request(prompt if other.id == prompt.id else other))
        if not self._place.beside:
            return client.generate(_request(prompt))
        requests = [_request(p) for p in (prompt, *self._place.beside)]
        answers = dict(client.generate_batch(requests, len(requests)))
        if isinstance(answers[0], LosslessError):
            raise answers[0]
        return answers[0]

    def _scores(self, prompt: RecordedPrompt, answer: Answer, rules: StopRules) -> OutputScores | None:
        scored = self._pair.baseline.generate(scoring_request(prompt, answer.output_ids))
        known = {output_digest(prompt.ids, answer.output_ids): scored}
        return prompt_scores(known, prompt, answer.output_ids, rules, overlapped=self._pair.overlapped)


def _open(analysis: Analysis, prompt_id: str, variant: str) -> tuple[str, ...]:
    """Stages of the run in which the prompt differed although it passed wherever it can be sent again."""
    if choose_place(analysis, prompt_id, variant).stage != PLAIN:
        return ()
    if analysis.verdict(variant, prompt_id).verdict.kind is Kind.DIVERGENT:
        return ()
    return tuple(dict.fromkeys(s for turn in (0, 1) for s in _differs_in(analysis, prompt_id, variant, turn)))


def _request(prompt: RecordedPrompt) -> GenerateRequest:
    return GenerateRequest(prompt.ids, prompt.sampling)


def _silent(answer: Answer) -> tuple[Failure, ...]:
    if answer.spec_verify_ct or len(answer.output_ids) < 2:
        return ()  # a single token comes from the prefill
    return (Failure(Reason.NO_SPECULATION, "the variant reports no verify step: nothing was speculated"),)


def _alike(a: Reason | None, b: Reason | None) -> bool:
    """Whether two reasons can be one fault: a wrong token is one whether its gap or a later regret shows it."""
    return a is b or (a in TOKEN_REASONS and b in TOKEN_REASONS)


def _resized(prompt: RecordedPrompt, ids: tuple[int, ...], cap: int) -> RecordedPrompt:
    return replace(prompt, ids=ids, sampling=replace(prompt.sampling, max_new_tokens=cap))


def _size(prompt: RecordedPrompt) -> str:
    return f"{len(prompt.ids)} prompt tokens, max_new_tokens {prompt.sampling.max_new_tokens}"


# ------------------------------------------------------------------------------------------------------------- servers
def replay_profile(
    analysis: Analysis, variant: str, *, profile: str | None, baseline_url: str | None, variant_url: str | None
) -> Profile:
    """The run's profile, read again, or one that attaches to the given addresses.

    Raises:
        UsageError: it cannot be read, lacks the variant, or only one address is given.
    """
    m = analysis.manifest
    if (baseline_url is None) != (variant_url is None):
        raise UsageError("give both --baseline-url and --variant-url, or neither")
    if baseline_url is not None and variant_url is not None:
        found = Profile(
            name=m.profile,
            description="servers that run already",
            kind="attach",
            target="auto",
            command=(),
            variants={variant: Variant(variant, m.algorithms.get(variant), url=variant_url)},
            baseline=Baseline(url=baseline_url),
        )
        return found if profile is None else replace(found, api_key_env=load_profile(profile).api_key_env)
    try:
        found = load_profile(profile or m.profile)
    except UsageError as problem:
        raise UsageError(
            f"the profile of this run cannot be read again: {problem.message}",
            hint="give its file with --profile, or running servers with --baseline-url and --variant-url",
        ) from None
    if found.target != m.target and found.kind != "attach":
        found = with_overrides(found, target=m.target)
    found.server(variant)
    return found


@contextlib.contextmanager
def running_pair(analysis: Analysis, variant: str, profile: Profile, progress: Progress) -> Iterator[Pair]:
    """Baseline and variant, both up while the block runs; launched ones are ended however it is left.

    Raises:
        UsageError: there is no room for two servers side by side.
        ServerError: one cannot be started or reached.
    """
    folder = analysis.store.path / "replay"
    cards = visible_cards(None) if profile.kind == "sglang" else ()
    if profile.kind == "sglang" and len(cards) < 2 * profile.tp_size and profile.parallel_servers < 2:
        raise UsageError(
            f"a replay needs two servers at once, and profile {profile.name!r} has room for one here",
            hint="start both yourself and give --baseline-url and --variant-url",
        )
    with contextlib.ExitStack() as stack:
        servers: list[Server] = []
        clients: list[Client] = []
        leased: tuple[str, ...] = ()
        if len(cards) >= 2 * profile.tp_size:  # both at once, or two commands could wait for each other
            leased = stack.enter_context(lease(lock_folder(), cards, 2 * profile.tp_size, progress))
        for name in (BASELINE, variant):
            gpus = leased[: profile.tp_size] if name == BASELINE else leased[profile.tp_size :]
            fault = analysis.manifest.fault if name == variant and profile.kind == "reference" else None
            server = make_server(profile, name, log_dir=folder, gpus=gpus, fault=fault, explain=explain)
            stack.callback(server.stop)
            server.start(lambda line, name=name: progress(f"{name}: {line}"))  # type: ignore[misc]
            tokenizer = analysis.tokenizer
            client = Client(
                server.url,
                api_key=server.api_key,
                timeout_s=profile.request_timeout_s,
                vocab_size=tokenizer.vocab_size if tokenizer else None,
                check=server.check,
            )
            servers.append(server)
            clients.append(stack.enter_context(client))
        yield _pair(analysis, variant, clients, servers)


def _pair(analysis: Analysis, variant: str, clients: list[Client], servers: list[Server]) -> Pair:
    facts = [ServerFacts(c.server_info(), c.model_info(), s.settings) for c, s in zip(clients, servers, strict=True)]
    m = analysis.manifest
    problems = [str(p) for p in compare_pair(facts[0], facts[1], allow_differences=m.allow_differences).problems]
    problems += [f"baseline: {p}" for p in config_problems(facts[0], speculative=False)]
    problems += [f"{variant}: {p}" for p in config_problems(facts[1], True, algorithm=m.algorithms.get(variant))]
    info = facts[0].server_info
    notes = []
    for name, now in ((BASELINE, facts[0]), (variant, facts[1])):
        before = analysis.servers[name].info
        changed = [k for k in _same_as_recorded(before) if before[k] != now.server_info.get(k)]
        if changed:
            notes.append(f"{name} is not what it was when the run was recorded: {', '.join(changed[:6])}")
    return Pair(
        clients[0],
        clients[1],
        overlapped=info.get("disable_overlap_schedule") is False and not str(info.get("version")).startswith(REFERENCE),
        failures=(Failure(Reason.NOT_A_PAIR, "; ".join(problems)),) if problems else (),
        notes=tuple(notes),
    )


def _same_as_recorded(info: object) -> tuple[str, ...]:
    """Arguments that decide a server's answers."""
    names = info.keys() if isinstance(info, dict) else ()
    return tuple(n for n in names if n == "version" or n in MATTER or n.startswith("speculative_"))
