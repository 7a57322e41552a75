"""What the rules of localization look at: every answer of one variant with its verdict and circumstances. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from lossless.analysis.analysis import Analysis
from lossless.analysis.judged import Judged
from lossless.protocol import Answer
from lossless.record.plan import PLAIN, TOGETHER
from lossless.verdict import Kind

FEW = 3  # answers without which "all of them" says little


@dataclass(frozen=True, slots=True)
class Case:
    """One judged answer. ``answer`` is what the variant sent, None where nothing came or it is from elsewhere.

    All positions and lengths are in tokens; ``position`` is the first difference in the variant's output.
    """

    judged: Judged
    answer: Answer | None

    @property
    def stage(self) -> str:
        return self.judged.stage

    @property
    def prompt_id(self) -> str:
        return self.judged.prompt.id

    @property
    def passed(self) -> bool:
        return self.judged.verdict.passed()

    @property
    def divergent(self) -> bool:
        return self.judged.verdict.kind is Kind.DIVERGENT

    @property
    def position(self) -> int | None:
        differences = self.judged.verdict.differences
        return differences[0].variant_start if differences else None

    @property
    def prompt_length(self) -> int:
        return len(self.judged.prompt.ids)

    @property
    def length(self) -> int:
        return len(self.judged.right.ids) if self.judged.right is not None else 0

    @property
    def cached(self) -> int:
        return self.judged.right.cached_tokens if self.judged.right is not None else 0

    @property
    def accepted(self) -> bool | None:
        """Whether any draft token was accepted; None where the server does not say."""
        histogram = self.answer.accept_histogram if self.answer is not None else ()
        return any(histogram[1:]) if histogram else None

    @property
    def rejected(self) -> bool | None:
        """Whether any draft token was rejected: some verify step accepted fewer than the most that is possible."""
        histogram = self.answer.accept_histogram if self.answer is not None else ()
        return any(histogram[:-1]) if histogram else None


@dataclass(frozen=True)
class Seen:
    """All answers of one variant. ``width`` is the tokens a verified block, drafts and bonus token; ``chunk`` the
    prefill chunk; None where the server does not say."""

    variant: str
    cases: tuple[Case, ...]
    width: int | None = None
    chunk: int | None = None
    mask_id: int | None = None
    kv_dtype: str = "auto"
    eos_ids: frozenset[int] = field(default_factory=frozenset)

    @classmethod
    def of(cls, analysis: Analysis, variant: str) -> "Seen":
        """Every verdict of a variant, with what its server says of itself."""
        server = analysis.servers[variant]
        cases = tuple(
            Case(j, server.answers.get((j.stage, j.prompt.id, j.turn)))
            for j in analysis.verdicts()
            if j.variant == variant
        )
        info = server.info
        return cls(
            variant,
            cases,
            width=_count(info.get("speculative_num_draft_tokens")),
            chunk=_count(info.get("chunked_prefill_size")),
            mask_id=_count(info.get("speculative_dflash_mask_token_id")),
            kv_dtype=str(info.get("kv_cache_dtype") or "auto"),
            eos_ids=frozenset(analysis.eos_ids),
        )

    @cached_property
    def divergent(self) -> tuple[Case, ...]:
        return tuple(c for c in self.cases if c.divergent)

    @cached_property
    def plain(self) -> dict[str, Case]:
        """The answers to each prompt sent alone to an empty cache."""
        return {c.prompt_id: c for c in self.cases if c.stage == PLAIN}

    @cached_property
    def unsteady(self) -> dict[str, str]:
        """Prompts to which the variant gave several answers although each time it was alone and nothing was cached:
        by id, the stage with another answer than the plain one."""
        found: dict[str, str] = {}
        for case in self.cases:
            alone, right = self.plain.get(case.prompt_id), case.judged.right
            if alone is None or alone.judged.right is None or right is None or case.cached or case.stage == TOGETHER:
                continue
            if right.ids != alone.judged.right.ids:
                found.setdefault(case.prompt_id, case.stage)
        return found

    def right_alone(self, case: Case) -> bool:
        """Whether the same prompt, sent alone to an empty cache, was answered well."""
        alone = self.plain.get(case.prompt_id)
        return alone is not None and alone is not case and alone.passed

    def contrast(self, feature: Callable[[Case], bool], among: Iterable[Case] | None = None) -> float:
        """How well a feature tells the divergent answers from those that pass: share of the divergent ones that have
        it, less the share of the passing ones, from -1 to 1; 0 where one of the two groups is empty."""
        cases = self.cases if among is None else tuple(among)
        bad, good = [c for c in cases if c.divergent], [c for c in cases if c.passed]
        if not bad or not good:
            return 0.0
        return sum(map(feature, bad)) / len(bad) - sum(map(feature, good)) / len(good)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A kind of fault with what speaks for it in one answer. ``feature`` completes "7 of 7 divergent answers …"."""

    weight: float
    kind: str
    sentence: str
    evidence: str
    feature: str


Rule = Callable[[Case, Seen], Iterator[Suspicion]]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
