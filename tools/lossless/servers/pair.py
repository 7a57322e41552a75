"""Are two servers a pair, and is each set up to be lossless? Pure: looks at what they say about themselves."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lossless.servers.pair_arguments import EXPECTED, IGNORED, MATTER, SETTINGS_MATTER

SIMULATIONS = {
    "SGLANG_SIMULATE_ACC_LEN": "acceptance is simulated, so rejected tokens are emitted",
    "SGLANG_SIMULATE_UNIFORM_EXPERTS": "experts are chosen at random and not by the model",
    "SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS": "experts are chosen in turn and not by the model",
}
"""Environment variables of SGLang for benchmarks with made-up results; ``/server_info`` does not show them."""

_RESOLVED = {"NEXTN": frozenset({"NEXTN", "EAGLE", "FROZEN_KV_MTP"})}
"""What SGLang's resolved argument may say for a requested algorithm, where that is not the same word."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself: ``GET /server_info``, ``GET /model_info`` and, of a launched one, the
    ``SGLANG_*`` variables it was given (:attr:`Server.settings`; None: not known)."""

    server_info: Mapping[str, Any]
    model_info: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, str] | None = None

    def get(self, argument: str) -> Any:
        """The value of a resolved argument; None where the server does not know it."""
        value = self.server_info.get(argument)
        return self.model_info.get(argument) if value is None else value

    @property
    def states(self) -> tuple[Mapping[str, Any], ...]:
        """The internal states: the arguments as each scheduler has them now, and its figures."""
        return tuple(s for s in self.server_info.get("internal_states") or () if isinstance(s, Mapping))

    @property
    def environment(self) -> Mapping[str, Any] | None:
        """The server's ``SGLANG_*`` variables; an attached one shows them under SGLANG_EXPOSE_OWN_ENV_VARS only."""
        if self.settings is not None:
            return self.settings
        shown = [state["env_vars"] for state in self.states if isinstance(state.get("env_vars"), Mapping)]
        return shown[0] if shown else None


@dataclass(frozen=True, slots=True)
class PairProblem:
    """An argument in which the two servers differ, and why that matters (or does not, in a note)."""

    argument: str
    baseline_value: Any
    variant_value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.argument}: baseline {self.baseline_value!r}, variant {self.variant_value!r} ({self.why})"


@dataclass(frozen=True, slots=True)
class PairFindings:
    """``problems``: with any of these the two are not a pair, and nothing can be concluded. ``notes``: differences
    that are expected, do not touch greedy tokens, or that the profile allows."""

    problems: tuple[PairProblem, ...]
    notes: tuple[PairProblem, ...]


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A setting with which one server is not meant to be lossless, or is not what it should be."""

    argument: str
    value: Any
    expected: str
    why: str

    def __str__(self) -> str:
        return f"{self.argument} is {self.value!r}, expected {self.expected} ({self.why})"


def compare_pair(baseline: ServerFacts, variant: ServerFacts, *, allow_differences: Iterable[str] = ()) -> PairFindings:
    """Every argument in which the two servers differ, sorted into problems and notes."""
    allowed = frozenset(allow_differences)
    problems: list[PairProblem] = []
    notes: list[PairProblem] = []
    for name, ours, theirs in _differences(baseline, variant):
        why = MATTER.get(name)
        if why is None:
            notes.append(PairProblem(name, ours, theirs, _expected(name) or "not known to change greedy tokens"))
        elif name in allowed:
            notes.append(PairProblem(name, ours, theirs, f"allowed by the profile, although {why}"))
        else:
            problems.append(PairProblem(name, ours, theirs, why))
    return PairFindings(tuple(problems), tuple(notes))


def pair_problems(
    baseline: ServerFacts, variant: ServerFacts, *, allow_differences: Iterable[str] = ()
) -> tuple[PairProblem, ...]:
    """Only the problems of :func:`compare_pair`."""
    return compare_pair(baseline, variant, allow_differences=allow_differences).problems


def config_problems(
    facts: ServerFacts, speculative: bool, *, algorithm: str | None = None
) -> tuple[ConfigProblem, ...]:
    """What keeps one server from its part: as the variant (``speculative``) or as the baseline.

    ``algorithm`` is what the variant was asked to run, when known.
    """
    found = [*_lossy_settings(facts)]
    running = algorithm_of(facts)
    if speculative and running is None:
        found.append(
            ConfigProblem("speculative_algorithm", None, "an algorithm", "the variant runs without speculation")
        )
    elif speculative and algorithm is not None:
        accepted = _RESOLVED.get(algorithm.upper(), frozenset({algorithm.upper()}))
        if running not in accepted:
            found.append(
                ConfigProblem(
                    "speculative_algorithm", running, " or ".join(sorted(accepted)), f"the profile asks for {algorithm}"
                )
            )
    elif not speculative and running is not None:
        found.append(ConfigProblem("speculative_algorithm", running, "none", "the baseline must run the target alone"))
    return tuple(found)


def algorithm_of(facts: ServerFacts) -> str | None:
    """The resolved speculative algorithm in capitals (NEXTN shows as EAGLE), or None without speculation."""
    value = facts.get("speculative_algorithm")
    return None if value is None or str(value).upper() in ("", "NONE") else str(value).upper()


def _lossy_settings(facts: ServerFacts) -> Iterator[ConfigProblem]:
    # internal_states repeats the arguments as the scheduler has them now: /set_internal_state changes them there.
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        values = {
            repr(source[name]): source[name]
            for source in (facts.server_info, *facts.states)
            if source.get(name) is not None
        }
        for value in values.values():
            if value != 1.0:
                yield ConfigProblem(
                    name, value, "1.0", "a lower threshold accepts tokens that the target would not choose"
                )
    for source in (facts.server_info, facts.model_info):
        value = source.get("preferred_sampling_params")
        if value not in (None, {}, ""):
            yield ConfigProblem(
                "preferred_sampling_params", value, "none", "they are merged under every request, greedy ones too"
            )
            break
    for name, why in SIMULATIONS.items():
        value = (facts.environment or {}).get(name)
        if _is_on(value):
            yield ConfigProblem(name, value, "unset", why)


def _differences(baseline: ServerFacts, variant: ServerFacts) -> Iterator[tuple[str, Any, Any]]:
    names = dict.fromkeys((*baseline.server_info, *variant.server_info, *baseline.model_info, *variant.model_info))
    for name in names:
        if name not in IGNORED:
            ours, theirs = baseline.get(name), variant.get(name)
            if ours != theirs:
                yield name, ours, theirs
    base_env, variant_env = baseline.environment, variant.environment
    if base_env is not None and variant_env is not None:
        # Only what is known to matter: a launched server inherits the whole environment of its user.
        for name in sorted(SETTINGS_MATTER):
            if base_env.get(name) != variant_env.get(name):
                yield name, base_env.get(name), variant_env.get(name)


def _expected(name: str) -> str | None:
    if name.startswith("speculative_"):
        return "this is the speculation under test"
    return EXPECTED.get(name)


def _is_on(value: Any) -> bool:
    """Whether a variable turns something on: a positive number, or any word but those for no."""
    text = "" if value is None else str(value).strip().lower()
    try:
        return float(text) > 0
    except ValueError:
        return text not in ("", "false", "no", "off", "none")
