"""What is run: which fault at which rate on which variant over which prompts, and which noises. Plain values."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from lossless.prompts import Tokenizer, load_prompts
from lossless.prompts.prompt import Group
from lossless.record.store import RecordedPrompt
from lossless.reference.builtin import BUILTIN, builtin_path
from lossless.suite.prepare import recorded_prompt

CHUNK = ("--chunked-prefill-size", "256")  # as in the shipped profile tiny: the long prompts take several chunks
NEXTN = ("--speculative-algorithm", "NEXTN")
DFLASH = ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", BUILTIN)
ALGORITHMS = {
    "NEXTN": (*NEXTN, "--speculative-num-steps", "3"),
    "DFLASH": (*DFLASH, "--speculative-num-draft-tokens", "8"),
}
CORE = ("common-sense", "chinese-writing", "list", "logic", "code", "raw-text", "chinese-poem", "mathematics")
"""Asked in every run: enough tokens for a noise floor, and of every kind."""
CORE_CAP = 27  # max_new_tokens; the core must give the noise floor its 200 tokens
NOISE_CAP = 12

PARITY, RULES, CONTROLS, SERVER, GOLDEN = "parity", "rules", "controls", "server", "golden"


@dataclass(frozen=True, slots=True)
class FaultCase:
    """One fault at one rate: ``rate`` None for faults that take none. ``extra`` are patterns of prompt ids asked beside
    the core; ``how`` the ways of noticing that are right for it; ``process``: the server runs in a process of its own;
    ``staged``: the core is asked at once and with logprobs too; ``warm_up``: as the suite does, the server is warmed up
    first; ``why_missed`` is printed where it is not detected. ``short``: part of the version that runs in CI."""

    fault: str
    rate: float | None = None
    algorithms: tuple[str, ...] = ("NEXTN",)
    extra: tuple[str, ...] = ()
    how: frozenset[str] = frozenset({PARITY})
    seeds: tuple[int, ...] = (0,)
    timeout_s: float = 120.0
    process: bool = False
    on_baseline: bool = False
    core: tuple[str, ...] = CORE
    staged: bool = False
    warm_up: bool = False
    why_missed: str = ""
    short: bool = False
    short_extra: tuple[str, ...] = ()

    def shortened(self) -> "FaultCase":
        """One variant, one seed, and ``short_extra`` for ``extra`` where it is given."""
        extra = self.short_extra or self.extra
        return replace(self, algorithms=self.algorithms[:1], seeds=self.seeds[:1], extra=extra)

    @property
    def argument(self) -> str:
        return self.fault if self.rate is None else f"{self.fault}:{self.rate:g}"


BOTH = ("NEXTN", "DFLASH")
STOPS = ("stop-*", "eos-*")
CAPS = ("eos-at-cap-*", "stop-at-cap-*")
RULED = frozenset({PARITY, RULES})
SHARE = (0, 1)
DEEP = ("long-answer",)  # 264 tokens: what goes wrong in a state often shows late

FAULTS: tuple[FaultCase, ...] = (
    FaultCase("accept-unverified", 1.0, BOTH, short=True),
    FaultCase("accept-unverified", 0.05, algorithms=BOTH, extra=DEEP, seeds=SHARE),
    FaultCase("accept-one-too-many", 1.0, BOTH),
    FaultCase("accept-one-too-many", 0.05, extra=DEEP, seeds=SHARE),
    FaultCase("bonus-dropped", 1.0, BOTH),
    FaultCase("bonus-dropped", 0.05, seeds=SHARE),
    FaultCase("bonus-doubled", 1.0, BOTH),
    FaultCase("bonus-doubled", 0.05, seeds=SHARE),
    FaultCase("cache-lags-by-one", 1.0, BOTH),
    FaultCase("cache-lags-by-one", 0.05, extra=DEEP, seeds=SHARE),
    FaultCase("rope-off-by-one", None, BOTH),
    FaultCase("mask-token-dropped", 24, ("DFLASH",)),  # a full stop
    FaultCase(
        "mask-token-dropped",
        5,
        ("DFLASH",),
        extra=("unicode-mask-*",),
        why_missed="the tiny model never puts its draft's mask token out, also where the prompts ask for it",
    ),
    FaultCase("kv-not-rolled-back", 1.0, BOTH, DEEP),
    FaultCase("kv-not-rolled-back", 0.05, extra=DEEP, seeds=SHARE),
    FaultCase("recurrent-not-rolled-back", 1.0, BOTH, short=True),
    FaultCase("recurrent-not-rolled-back", 0.05, extra=DEEP, seeds=SHARE),
    FaultCase("conv-not-rolled-back", 1.0, BOTH, DEEP),
    FaultCase("conv-not-rolled-back", 0.05, extra=DEEP, seeds=SHARE),
    FaultCase("state-from-wrong-slot", 1.0, BOTH),
    FaultCase("state-from-wrong-slot", 0.05, extra=DEEP, seeds=SHARE),
    FaultCase("boundary-state-lost", 256, extra=("long-over-256", "long-page-25?")),
    FaultCase("boundary-state-lost", 512, extra=("long-over-512",)),
    FaultCase("short-prompt-state-lost", 8, extra=("short-0?", "short-1?")),
    FaultCase("short-prompt-state-lost", 2, extra=("short-0?",)),
    FaultCase("chunk-state-lost", None, extra=("long-three-chunks", "long-page-257")),
    FaultCase(
        "stale-state-on-hit", None, extra=("cache-*",), short=True, short_extra=("cache-third-sentence", "cache-names")
    ),
    FaultCase("state-leaks", None, extra=("order-*", "short-03")),
    FaultCase("batch-mixed", 2, extra=("concurrent-*",)),
    FaultCase("batch-mixed", 4, extra=("concurrent-*",)),
    FaultCase("not-repeatable", 1.0, staged=True),
    FaultCase(
        "not-repeatable", 0.2, staged=True, why_missed="a state a fifth larger moves no token beyond epsilon here"
    ),
    FaultCase("not-repeatable", 1.0, how=frozenset({CONTROLS}), on_baseline=True),
    FaultCase("not-repeatable", 0.2, how=frozenset({CONTROLS}), on_baseline=True),
    FaultCase(
        "stop-token-in-block-ignored", None, BOTH, STOPS, RULED, short=True, short_extra=("stop-token*", "eos-*")
    ),
    FaultCase("stop-string-in-block-ignored", None, BOTH, STOPS, RULED),
    FaultCase("length-before-stop", None, BOTH, CAPS, RULED),
    FaultCase("one-token-too-many", None, how=RULED),
    FaultCase("min-new-tokens-ignored", None, extra=("params-min-tokens", "params-ends-early"), how=RULED),
    FaultCase("min-new-tokens-per-step", None, extra=("params-min-tokens", "params-ends-early"), how=RULED),
    FaultCase("penalties-ignored", None, extra=("params-frequency", "params-presence", "params-repetition")),
    FaultCase("penalties-per-step", None, extra=("params-frequency", "params-presence", "params-repetition")),
    FaultCase("text-not-the-ids", None, how=RULED),
    FaultCase("usage-past-end", None, BOTH, STOPS, RULED),
    FaultCase("logprobs-shifted", None, how=frozenset({RULES}), staged=True, short=True),
    FaultCase("logprobs-zero", None, how=frozenset({RULES}), staged=True),
    FaultCase("logprobs-miss-last", None, how=frozenset({RULES}), staged=True),
    FaultCase("speculation-off", None, BOTH, how=frozenset({CONTROLS}), short=True),
    FaultCase("random-draft", None, BOTH, how=frozenset({CONTROLS})),
    FaultCase("accept-length-halved", None, BOTH, how=frozenset({GOLDEN})),
    FaultCase("die-at-request", 5, how=frozenset({SERVER}), process=True),
    FaultCase("error-at-request", 5, how=frozenset({SERVER}), short=True),
    FaultCase(
        "error-at-request",
        3,
        how=frozenset({SERVER}),
        warm_up=True,
        why_missed="the third request is the last of the warm-up, whose answers nobody keeps",
    ),
    FaultCase("garbage-at-request", 5, how=frozenset({SERVER})),
    FaultCase("hang-at-request", 5, how=frozenset({SERVER}), timeout_s=6.0),
    FaultCase(
        "trickle",
        None,
        how=frozenset({SERVER}),
        core=("list",),
        why_missed="every answer comes, whole and right; only the speed column of the report shows it",
    ),
)


@dataclass(frozen=True, slots=True)
class NoiseCase:
    """One honest variant whose rounding differs from the baseline's. ``allow``: arguments in which the pair differs."""

    name: str
    kind: str
    options: tuple[str, ...]
    algorithm: str = "NEXTN"
    allow: tuple[str, ...] = ()
    short: bool = False


def noises(floor: float) -> tuple[NoiseCase, ...]:
    """Every noise, given the measured noise floor in nats."""

    def nextn(steps: int) -> tuple[str, ...]:
        return (*NEXTN, "--speculative-num-steps", str(steps), *CHUNK)

    def dflash(width: int) -> tuple[str, ...]:
        return (*DFLASH, "--speculative-num-draft-tokens", str(width), *CHUNK)

    def chunked(size: int) -> tuple[str, ...]:
        return (*NEXTN, "--speculative-num-steps", "3", "--chunked-prefill-size", str(size))

    chunk = ("chunked_prefill_size",)
    orders = [
        NoiseCase(f"order-{n}", "summation order", (*nextn(3), "--summation-order", str(n)), short=n == 1)
        for n in (1, 2)
    ]
    noisy = [
        NoiseCase(
            f"noise-{n}",
            "logits noised up to the floor",
            (*nextn(3), "--logit-noise", f"{floor:.6f}", "--seed", str(n)),
            short=n == 1,
        )
        for n in (1, 2, 3)
    ]
    return (
        NoiseCase("nextn-3", "bfloat16 rounding", nextn(3), short=True),
        NoiseCase("dflash-8", "bfloat16 rounding", dflash(8), "DFLASH", short=True),
        NoiseCase("nextn-7", "block size", nextn(7), short=True),
        NoiseCase("dflash-4", "block size", dflash(4), "DFLASH"),
        NoiseCase("chunk-17", "chunk size", chunked(17), allow=chunk),
        NoiseCase("chunk-48", "chunk size", chunked(48), allow=chunk, short=True),
        *orders,
        *noisy,
    )


class Prompts:
    """The shipped prompts, encoded with the tiny model's tokenizer."""

    def __init__(self) -> None:
        self.tokenizer = Tokenizer.from_folder(builtin_path() / "target")
        self._all = {p.id: p for p in load_prompts("full").prompts}

    def fault(self, case: FaultCase) -> tuple[RecordedPrompt, ...]:
        """Core and extra prompts of a fault; only the core is shortened."""
        group: Group = "parity" if case.staged else "json"  # json: asked alone only
        core = [replace(recorded_prompt(self._all[i], self.tokenizer, CORE_CAP), group=group) for i in case.core]
        extra = [p for i, p in self._all.items() if any(fnmatchcase(i, x) for x in case.extra) and i not in case.core]
        return (*core, *(self._extra(p.id) for p in extra))

    def _extra(self, name: str) -> RecordedPrompt:
        prompt = recorded_prompt(self._all[name], self.tokenizer, None)
        # Asked alone, unless being asked otherwise is the point.
        return prompt if prompt.group in ("cache", "order", "concurrent") else replace(prompt, group="json")

    def noise(self, *, short: bool) -> tuple[RecordedPrompt, ...]:
        """Held-out and parity prompts asked alone, and the groups that are asked at once and from the cache."""
        alone = [p for p in self._all.values() if p.group == "parity"]
        staged = [p for p in self._all.values() if p.group in ("cache", "concurrent")]
        if short:
            alone, staged = alone[::6], staged[::2]
        encoded = [replace(recorded_prompt(p, self.tokenizer, NOISE_CAP), group="json") for p in alone]
        return (*encoded, *(recorded_prompt(p, self.tokenizer, NOISE_CAP) for p in staged))


def tokens(prompts: Iterable[RecordedPrompt]) -> int:
    """Most tokens one pass over the prompts may generate."""
    return sum(p.sampling.max_new_tokens for p in prompts)
