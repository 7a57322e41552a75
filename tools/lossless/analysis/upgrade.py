"""An SGLang upgrade as one answer: two recorded runs of one model, before and after. Pure.

The questions, in this order: what was upgraded; does the new baseline still say what the old one said; is each variant
still lossless against its own new baseline; did accept length and speed move; which figures and defaults changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lossless.analysis.analysis import BASELINE, Analysis
from lossless.analysis.upgrade_baseline import Drift, counts, drift
from lossless.analysis.upgrade_figures import (
    AcceptChange,
    ArgumentChange,
    FigureChange,
    SpeedChange,
    accept_lengths,
    argument_names,
    server_arguments,
    server_figures,
    speeds,
)
from lossless.analysis.upgrade_variants import ABSENT, IssueChange, VariantChange, issues, variants
from lossless.errors import UsageError
from lossless.verdict import Kind


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of what was upgraded; empty where a run does not know."""

    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Everything the report shows. ``strict``: forks are not good enough."""

    old: Analysis
    new: Analysis
    strict: bool
    facts: tuple[Fact, ...]
    drift: tuple[Drift, ...]
    variants: tuple[VariantChange, ...]
    issues: tuple[IssueChange, ...]
    accept: tuple[AcceptChange, ...]
    speed: tuple[SpeedChange, ...]
    figures: tuple[FigureChange, ...]
    arguments: tuple[ArgumentChange, ...]
    new_arguments: tuple[str, ...] = ()
    gone_arguments: tuple[str, ...] = ()
    drift_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def diverged(self) -> tuple[Drift, ...]:
        """Prompts on which the new baseline would not have said what the old one said."""
        return tuple(d for d in self.drift if d.verdict.kind is not Kind.INCONCLUSIVE and not self._passed(d))

    @property
    def unknown(self) -> tuple[Drift, ...]:
        """Prompts on which that cannot be told."""
        return tuple(d for d in self.drift if d.verdict.kind is Kind.INCONCLUSIVE)

    @property
    def baseline_status(self) -> str:
        if self.diverged:
            return "divergent"
        return "inconclusive" if self.unknown or not self.drift else "proven"

    @property
    def status(self) -> str:
        """``divergent`` if the baseline or a variant is, else ``inconclusive`` if anything is missing, else ``proven``.
        The old run's own divergences do not count: they are over."""
        found = {self.baseline_status, *(v.new for v in self.variants)}
        if "divergent" in found:
            return "divergent"
        return "proven" if found == {"proven"} and self.variants else "inconclusive"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        total = len(self.drift)
        held = total - len(self.diverged) - len(self.unknown)
        parts = [f"the new baseline agrees with the old one on {held} of {total} prompts"]
        parts += [f"diverges on {len(self.diverged)}"] if self.diverged else []
        parts += [f"cannot be judged on {len(self.unknown)}"] if self.unknown else []
        text = ", ".join(parts)
        for state, words in _STATES.items():
            names = [v.variant for v in self.variants if v.new == state]
            text += f"; {', '.join(names)} {words[len(names) > 1]}" if names else ""
        measured = [a for a in self.accept if a.category != "all"]
        moved = [a.moved for a in measured if a.moved]
        if moved:
            text += f"; accept length moved in {len(moved)} of {len(measured)} categories"
            text += f" (fell in {moved.count('fell')})" if "fell" in moved else ""
        return text

    def _passed(self, found: Drift) -> bool:
        return found.verdict.passed(strict=self.strict)


_STATES = {
    "proven": ("is lossless", "are lossless"),
    "divergent": ("is divergent", "are divergent"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    ABSENT: ("was not run", "were not run"),
}


def upgrade(
    old: Analysis,
    new: Analysis,
    *,
    strict: bool = False,
    packages: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
) -> Upgrade:
    """Compare two recorded runs of one model. ``packages`` holds the versions of what is installed beside SGLang, old
    and new, where they are known.

    Raises:
        UsageError: it is one and the same run, or the runs are of different models or tokenizers.
    """
    _check(old, new)
    found = drift(old, new)
    names = argument_names(old, new)
    return Upgrade(
        old=old,
        new=new,
        strict=strict,
        facts=(*_facts(old, new), *_packages(*(packages or ({}, {})))),
        drift=found,
        variants=variants(old, new, strict=strict),
        issues=issues(old, new),
        accept=accept_lengths(old, new),
        speed=speeds(old, new),
        figures=server_figures(old, new),
        arguments=server_arguments(old, new),
        new_arguments=names[0],
        gone_arguments=names[1],
        drift_counts=counts(found),
    )


def _check(old: Analysis, new: Analysis) -> None:
    if old.store.path.resolve() == new.store.path.resolve():
        raise UsageError(f"{old.store.path} was given twice", hint="lossless runs lists the recorded runs")
    for name, a, b in (
        ("model", old.manifest.model_digest, new.manifest.model_digest),
        ("tokenizer", old.manifest.tokenizer_digest, new.manifest.tokenizer_digest),
    ):
        if a is not None and b is not None and a != b:
            raise UsageError(
                f"the two runs have different {name}s (sha256 {a[:12]} and {b[:12]}): an upgrade report is about one "
                "model on two versions",
                hint=f"lossless compare {old.store.path.name} {new.store.path.name}",
            )


def _facts(old: Analysis, new: Analysis) -> tuple[Fact, ...]:
    rows = [
        Fact("run", old.store.path.name, new.store.path.name),
        Fact("SGLang", _version(old), _version(new)),
    ]
    for label, field_ in (
        ("recorded", "created"),
        ("suite", "tool_version"),
        ("profile", "profile"),
        ("target", "target"),
        ("dtype", "dtype"),
        ("prompts", "prompt_set"),
        ("planted fault", "fault"),
    ):
        a, b = (str(getattr(side.manifest, field_) or "") for side in (old, new))
        rows.append(Fact(label, a, b))
    return tuple(row for row in rows if row.old or row.new)


def _version(analysis: Analysis) -> str:
    """The version every server names, or each server's own where they differ."""
    found = {name: str(s.info["version"]) for name, s in analysis.servers.items() if s.info.get("version") is not None}
    if len(set(found.values())) <= 1:
        return found.get(BASELINE, next(iter(found.values()), "unknown"))
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _packages(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Fact, ...]:
    return tuple(Fact(n, old.get(n, ""), new.get(n, "")) for n in dict.fromkeys((*old, *new)))
