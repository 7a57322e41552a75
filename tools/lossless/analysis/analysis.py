"""All verdicts of one run, computed from its folder alone."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from lossless.analysis import controls
from lossless.analysis.acceptance import Acceptance, Speed, acceptance, by_category, speed
from lossless.analysis.context_curve import ContextPoint, Needles, context_curve, needles
from lossless.analysis.controls import Control
from lossless.analysis.facts import ServerFigures, figures
from lossless.analysis.judged import Judged
from lossless.analysis.known import KnownIssue, find
from lossless.analysis.load import (
    Recorded,
    golden_transcript,
    load_scores,
    load_server,
    prompt_scores,
    stop_rules,
    transcript,
)
from lossless.analysis.survival import Survived, survived
from lossless.prompts import Tokenizer
from lossless.protocol import Answer
from lossless.record.plan import (
    AFTER,
    AGAIN,
    HIT,
    LOGPROBS,
    ORDER,
    PLAIN,
    STRESS,
    TOGETHER,
    adjusted,
    not_scorable,
    stages,
)
from lossless.record.room import no_room
from lossless.record.store import Golden, Manifest, RecordedPrompt, RunStore
from lossless.verdict import (
    Epsilon,
    Evidence,
    Failure,
    Kind,
    NoiseFloor,
    OutputScores,
    Reason,
    StopRules,
    Transcript,
    Violation,
    calibrate,
    given,
    judge,
    measure,
    violations,
)
from lossless.verdict.logprobs import misaligned, shifted
from lossless.verdict.noise import DEFAULT_CAP, DEFAULT_K, DEFAULT_MINIMUM

BASELINE = "baseline"
REFERENCE = "reference-"  # how the embedded engine's version begins; it counts penalties at once


class Analysis:
    """Verdicts, controls and figures of one recorded run. Reading is lazy; nothing is written.

    ``shards`` are the analyses that a merged run was joined from; other runs have none.
    """

    shards: tuple["Analysis", ...] = ()

    def __init__(self, store: RunStore, *, epsilon: float | None = None) -> None:
        self.store = store
        self.manifest: Manifest = store.manifest
        self.prompts: dict[str, RecordedPrompt] = {p.id: p for p in store.prompts}
        self.goldens: dict[str, Golden] = store.goldens
        self._given_epsilon = epsilon if epsilon is not None else self.manifest.epsilon
        self._pairs: dict[tuple[str, str, str, int], Judged] = {}

    # ------------------------------------------------------------------ loading
    @cached_property
    def servers(self) -> dict[str, Recorded]:
        return {name: load_server(self.store, name) for name in (BASELINE, *self.manifest.variants)}

    @property
    def baseline(self) -> Recorded:
        return self.servers[BASELINE]

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The target's tokenizer as it was when the run was recorded, or None if the folder lacks it."""
        return Tokenizer.from_folder(self.store.path) if (self.store.path / "tokenizer.json").is_file() else None

    @cached_property
    def scoring_answers(self) -> Mapping[str, Answer]:
        """The baseline's re-scoring answers, by output digest."""
        return load_scores(self.store)

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """The model's end-of-sequence ids: from its folder, and what the baseline itself stopped at."""
        seen = {
            a.finish.matched
            for (_, prompt, _), a in self.baseline.answers.items()
            if a.finish.type == "stop"
            and isinstance(a.finish.matched, int)
            and prompt in self.prompts
            and a.finish.matched not in self.prompts[prompt].sampling.stop_token_ids
        }
        return tuple(sorted({*self.manifest.eos_ids, *seen}))

    def rules(self, prompt: RecordedPrompt) -> StopRules:
        return stop_rules(prompt, self.eos_ids)

    def detokenize(self, ids: tuple[int, ...], skip_special_tokens: bool) -> str:
        assert self.tokenizer is not None
        return self.tokenizer.decode(ids, skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        return self.tokenizer.token_text(token_id) if self.tokenizer else f"<{token_id}>"

    # ----------------------------------------------------------------- controls
    @cached_property
    def epsilon(self) -> Epsilon:
        if self._given_epsilon is not None:
            return given(self._given_epsilon)
        bounds = self.manifest.epsilon_bounds
        return calibrate(
            self.noise,
            k=bounds.get("k", DEFAULT_K),
            minimum=bounds.get("minimum", DEFAULT_MINIMUM),
            cap=bounds.get("cap", DEFAULT_CAP),
        )

    @cached_property
    def noise(self) -> NoiseFloor:
        """How far the baseline's decode and its own re-scoring disagree."""
        return measure(controls.noise_samples(self.baseline, self.prompts.values(), self.scoring_answers))

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """Every control, baseline first."""
        epsilon = self.epsilon
        found = [
            controls.repeatable(self.baseline, self.prompts.values()),
            Control("noise floor", BASELINE, epsilon.problem is None, epsilon.describe()),
            controls.no_speculation(self.baseline),
        ]
        for name in self.manifest.variants:
            server = self.servers[name]
            found.append(
                controls.pair(
                    self.baseline,
                    server,
                    self.manifest.allow_differences,
                    self.manifest.algorithms.get(name),
                )
            )
            found.append(controls.speculation(server, self.prompts.values()))
        return tuple(found)

    def failures(self, variant: str) -> tuple[Failure, ...]:
        """Failed controls that make everything about a variant inconclusive."""
        return tuple(
            failure
            for control in self.controls
            if control.scope in (BASELINE, variant) and (failure := control.failure) is not None
        )

    # ----------------------------------------------------------------- verdicts
    def home(self, prompt_id: str) -> "Analysis":
        """The analysis whose bound and noise floor a prompt is judged with: in a merged run, its own shard's."""
        del prompt_id
        return self

    def verdict(self, variant: str, prompt_id: str, stage: str = PLAIN, turn: int = 0) -> Judged:
        """A variant's answer against the baseline's answer to the same request in the same stage; judged once."""
        key = (variant, prompt_id, stage, turn)
        if key not in self._pairs:
            self._pairs[key] = self._pair(*key)
        return self._pairs[key]

    def _pair(self, variant: str, prompt_id: str, stage: str, turn: int) -> Judged:
        prompt = self.prompts[prompt_id]
        left, right = self.baseline, self.servers[variant]
        a, b = left.transcript(stage, prompt_id, turn), right.transcript(stage, prompt_id, turn)
        failures = [
            *(Failure(Reason.MISSING, s.missing(stage, prompt_id, turn)) for s, t in ((left, a), (right, b)) if not t),
            *self.failures(variant),
        ]
        repeat = left.repeat(prompt_id) if stage == PLAIN else None
        if stage == PLAIN and repeat is None and a is not None:
            failures.append(Failure(Reason.NOT_REPEATABLE, left.missing(AGAIN, prompt_id) + " (second run)"))
        return self._judge(variant, prompt, stage, turn, a, b, tuple(failures), (BASELINE, variant), repeat)

    def within(self, server: str, prompt_id: str, stage: str, turn: int = 0) -> Judged:
        """A server's answer in a stage against the same server's answer when the prompt ran alone on an empty cache."""
        prompt, recorded = self.prompts[prompt_id], self.servers[server]
        a, b = recorded.transcript(PLAIN, prompt_id), recorded.transcript(stage, prompt_id, turn)
        failures = tuple(
            Failure(Reason.MISSING, recorded.missing(s, prompt_id, n))
            for s, n, t in ((PLAIN, 0, a), (stage, turn, b))
            if t is None
        )
        names = {
            TOGETHER: "at once",
            HIT: "cached",
            ORDER: "after others",
            STRESS: "under stress",
            AFTER: "after stress",
        }
        return self._judge(server, prompt, stage, turn, a, b, failures, ("alone", names.get(stage, stage)))

    def golden_verdict(self, prompt_id: str, golden: Golden | None = None) -> Judged | None:
        """A golden output as today's baseline sees it; None if there is no golden for the prompt."""
        golden = golden or self.goldens.get(prompt_id)
        if golden is None:
            return None
        prompt = self.prompts[prompt_id]
        a, b = self.baseline.transcript(PLAIN, prompt_id), golden_transcript(golden)
        failures = () if a else (Failure(Reason.MISSING, self.baseline.missing(PLAIN, prompt_id)),)
        return self._judge(BASELINE, prompt, "golden", 0, a, b, failures, (BASELINE, "golden"))

    def _judge(
        self,
        variant: str,
        prompt: RecordedPrompt,
        stage: str,
        turn: int,
        left: Transcript | None,
        right: Transcript | None,
        failures: tuple[Failure, ...],
        names: tuple[str, str],
        repeat: Transcript | None = None,
    ) -> Judged:
        unscored = None if not_scorable(prompt.sampling) else "the baseline has not re-scored this output"
        verdict = judge(
            Evidence(
                baseline=left,
                variant=right,
                rules=self.rules(prompt),
                epsilon=self.epsilon,
                scores=self.scores(prompt, right) if right is not None else None,
                repeat=repeat,
                own_rate=self.noise.regret_rate,
                failures=failures,
                # A golden may be edited by hand: its tokens are what counts, and its text need not be theirs.
                detokenize=self.detokenize if self.tokenizer and stage != "golden" else None,
                names=names,
                unscored=unscored,
            )
        )
        if not_scorable(prompt.sampling) and verdict.differences:
            note = "re-scoring sees raw logits, so under this penalty or grammar only the tokens are compared"
            verdict = replace(verdict, notes=(*verdict.notes, note))
        return Judged(variant, prompt, stage, turn, verdict, left, right, names)

    def scores(self, prompt: RecordedPrompt, output: Transcript) -> OutputScores | None:
        """The baseline's re-scoring of an output, None where it has none or cannot mean anything."""
        info = self.baseline.info
        reference = str(info.get("version")).startswith(REFERENCE)
        overlapped = info.get("disable_overlap_schedule") is False and not reference
        return prompt_scores(self.scoring_answers, prompt, output.ids, self.rules(prompt), overlapped=overlapped)

    def verdicts(self) -> Iterator[Judged]:
        """Every pair verdict of the run: all prompts alone, then the stages with a twin on the baseline."""
        for variant in self.manifest.variants:
            for prompt_id in self.prompts:
                if self.inapplicable(prompt_id) is None:
                    yield self.verdict(variant, prompt_id)
            for stage, prompt_id, turn in self.staged():
                yield self.verdict(variant, prompt_id, stage, turn)

    def staged(self) -> tuple[tuple[str, str, int], ...]:
        """(stage, prompt, turn) of everything asked apart from the plain pass."""
        plan = stages(tuple(self.prompts.values()), baseline=False, concurrency=self.manifest.concurrency)
        return tuple(
            (item.stage, item.prompt, item.turn)
            for stage in plan
            if stage.name in (TOGETHER, HIT, ORDER, LOGPROBS)
            for item in stage.items
            if self.inapplicable(item.prompt) is None
        )

    # ------------------------------------------------------------- known issues
    def known_issue(self, variant: str, prompt_id: str) -> KnownIssue | None:
        """The public fault of this SGLang version that covers a prompt, if any: it is expected to diverge."""
        info = self.servers[variant].info
        prompt = self.prompts[prompt_id]
        return find(info.get("version"), info.get("speculative_algorithm"), prompt.sampling)

    def is_known(self, judged: Judged) -> bool:
        """Whether a divergence is one that the SGLang version is publicly known for."""
        return (
            judged.verdict.kind is Kind.DIVERGENT
            and judged.variant in self.manifest.variants
            and self.known_issue(judged.variant, judged.prompt.id) is not None
        )

    def covered(self, variant: str) -> dict[KnownIssue, tuple[str, ...]]:
        """Known issues of a variant, with the prompts they cover."""
        found: dict[KnownIssue, tuple[str, ...]] = {}
        for prompt_id in self.prompts:
            issue = self.known_issue(variant, prompt_id)
            if issue is not None:
                found[issue] = (*found.get(issue, ()), prompt_id)
        return found

    def inapplicable(self, prompt_id: str) -> str | None:
        """Why a prompt cannot be sent to these servers, or None: a grammar needs a grammar backend, and a prompt
        that was built to a length needs room."""
        prompt = self.prompts[prompt_id]
        if prompt.depth is not None:
            full = ((n, no_room(s.info, prompt)) for n, s in self.servers.items() if s.info)
            return next((f"{name}: {why}" for name, why in full if why), None)
        if prompt.sampling.json_schema is None:
            return None
        without = [n for n, s in self.servers.items() if s.info and s.info.get("grammar_backend") in (None, "none")]
        return f"{', '.join(without)}: no grammar backend" if without else None

    # --------------------------------------------------------------- invariants
    def broken_rules(self, server: str, prompt_id: str) -> tuple[Violation, ...]:
        """Stop, usage, text and logprob rules that a server's answers to one prompt break, in any stage."""
        prompt, recorded = self.prompts[prompt_id], self.servers[server]
        found: dict[Violation, None] = {}
        for (stage, answered, _turn), answer in recorded.answers.items():
            if answered != prompt_id:
                continue
            for v in violations(transcript(answer), self.rules(prompt), self.detokenize if self.tokenizer else None):
                found[Violation(v.reason, f"{stage}: {v.message}")] = None
            if stage == LOGPROBS and (message := self._logprob_problem(prompt, answer)):
                found[Violation(Reason.LOGPROBS, f"{stage}: {message}")] = None
        return tuple(found)

    def _logprob_problem(self, prompt: RecordedPrompt, answer: Answer) -> str | None:
        entries = (
            None if answer.output_logprobs is None else tuple((e.logprob, e.token_id) for e in answer.output_logprobs)
        )
        if message := misaligned(answer.output_ids, answer.completion_tokens, entries):
            return message
        # A server's own logprobs are normalized after its penalties, adjusted scores are not: no comparison there.
        scored = None if adjusted(prompt.sampling) else self.scores(prompt, transcript(answer))
        if scored is None or entries is None or self.epsilon.problem:
            return None
        return shifted(entries, scored.logprobs, epsilon=self.epsilon.value)

    # ------------------------------------------------------------------ figures
    def server_figures(self) -> tuple[ServerFigures, ...]:
        """Memory, pools, backends and start-up time of each server that was started."""
        states = [self.store.server(name) for name in self.servers]
        return tuple(
            figures(
                self.store, s, concurrency=self.manifest.concurrency, draft_bytes=self.manifest.draft_bytes.get(s.name)
            )
            for s in states
            if s is not None and s.server_info
        )

    def acceptance(self, variant: str) -> dict[str, Acceptance]:
        """By category, and ``all`` for the whole set."""
        groups = by_category(self.prompts.values())
        found = {category: acceptance(self.servers[variant], prompts) for category, prompts in groups.items()}
        found["all"] = acceptance(self.servers[variant], [p for ps in groups.values() for p in ps])
        return found

    def context_curve(self, server: str) -> tuple[ContextPoint, ...]:
        """Accept length and speed by the context length of the prompts that were built to one."""
        return context_curve(self.servers[server], self.prompts.values())

    def needles(self, server: str) -> Needles:
        """Which of the prompts with a known answer a server answered rightly."""
        return needles(self.servers[server], self.prompts.values())

    @cached_property
    def survival(self) -> tuple[Survived, ...]:
        """How each server came through the stress test; empty where the set has none."""
        found = (survived(self, name) for name in self.servers)
        return tuple(s for s in found if s is not None)

    def speed(self, server: str) -> dict[str, Speed]:
        """By category, and ``all`` for the whole set."""
        groups = by_category(self.prompts.values())
        found = {category: speed(self.servers[server], prompts) for category, prompts in groups.items()}
        found["all"] = speed(self.servers[server], [p for ps in groups.values() for p in ps])
        return found


def analyze(store: RunStore, *, epsilon: float | None = None) -> Analysis:
    """Judge a recorded run; one that was merged from shards, shard by shard. ``epsilon`` (nats) replaces the
    calibrated bound.

    Raises:
        UsageError: the folder is not a run, or is damaged.
    """
    if store.manifest.merged:
        from lossless.analysis.merge import MergedAnalysis  # it builds on this module

        return MergedAnalysis(store, epsilon=epsilon)
    return Analysis(store, epsilon=epsilon)
