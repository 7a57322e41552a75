"""Collects what the rules look at: a profile's model folders, and one recorded run. Reads; starts nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - gives numpy the bfloat16 that norm weights are stored in
import numpy as np
from safetensors import SafetensorError, safe_open

from lossless.analysis import Acceptance, Analysis
from lossless.analysis.acceptance import by_category
from lossless.doctor.case import Case, LengthBin, Measured, Reference
from lossless.doctor.tasks import family
from lossless.errors import UsageError
from lossless.golden.acceptance import golden_lengths, loads
from lossless.golden.files import acceptance_stem
from lossless.profiles.check import check_profile
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.result import CheckResult
from lossless.profiles.profile import BUILTIN, Profile, Variant
from lossless.record.plan import PLAIN
from lossless.reference.builtin import model_folder
from lossless.servers.resolved_facts import resolved_facts
from lossless.verdict import Kind

_EDGES = (1024, 8192, 32_768, 65_536)
_OTHER_GROUPS = frozenset({"params", "cap", "short", "stress"})
_FEW = 10
_SIMULATE = "SGLANG_SIMULATE_ACC_LEN"
_FAR = "the run's model folders are not on this machine; give --profile NAME"


def cases(
    profile: Profile | None,
    analysis: Analysis | None,
    *,
    golden: Path | None = None,
    against: Analysis | None = None,
) -> tuple[Case, ...]:
    """One case a variant: of the run, or of the profile where there is no run.

    Args:
        profile: whose model folders are looked at; None takes what the run's servers name, where it is here.
        analysis: the recorded run, or None.
        golden: folder with the profile's golden accept lengths.
        against: another run whose accept lengths are the ones to reach, instead of the golden ones.

    Raises:
        UsageError: neither profile nor run, no variant in common, or a damaged golden file.
    """
    if analysis is None and profile is None:
        raise UsageError("nothing to look at", hint="give a recorded RUN, --profile NAME, or both")
    far = profile is None or profile.kind == "attach"
    if far and analysis is not None:
        profile = profile_of_run(analysis)  # what the servers themselves name, where it is here
    names = tuple(profile.variants) if analysis is None and profile is not None else ()
    if analysis is not None:
        names = analysis.manifest.variants
        if profile is not None and not far and not set(names) & set(profile.variants):
            raise UsageError(
                f"profile {profile.name!r} has no variant of this run: it has {', '.join(profile.variants)}, "
                f"the run {', '.join(names)}"
            )
    results = () if profile is None else check_profile(profile)
    return tuple(_case(name, profile, results, analysis, golden, against) for name in names)


def profile_of_run(analysis: Analysis) -> Profile | None:
    """What the servers of a run named as their models, as a profile; None where the target is not a folder here."""
    info = analysis.baseline.info
    target = info.get("model_path")
    if not _is_model(target):
        return None
    variants = {}
    for name in analysis.manifest.variants:
        own = analysis.servers[name].info
        facts = resolved_facts(own)
        draft = own.get("speculative_draft_model_path")
        algorithm = analysis.manifest.algorithms.get(name) or facts.algorithm
        args = {"speculative-num-draft-tokens": facts.draft_tokens} if facts.draft_tokens is not None else {}
        if family(algorithm) == "NEXTN":
            args = {}
        variants[name] = Variant(name, algorithm, str(draft) if _is_model(draft) else None, args)
    tp = info.get("tp_size")
    return Profile(
        name=analysis.manifest.profile,
        description="",
        kind="reference" if analysis.manifest.kind == "reference" else "sglang",
        target=str(target),
        command=(),
        variants=variants,
        prompts="quick",
        tp_size=tp if isinstance(tp, int) else 1,
    )


def _is_model(path: object) -> bool:
    return isinstance(path, str) and Path(path).is_absolute() and (Path(path) / "config.json").is_file()


def _case(
    name: str,
    profile: Profile | None,
    results: Iterable[CheckResult],
    analysis: Analysis | None,
    golden: Path | None,
    against: Analysis | None,
) -> Case:
    run = None if analysis is None else measured(analysis, name, reference_of(name, golden, against, analysis))
    if profile is None or name not in profile.variants:
        algorithm = run.algorithm if run is not None else None
        why = _FAR if profile is None else f"profile {profile.name!r} has no variant {name!r}"
        return Case(name, algorithm, no_files=why, run=run)
    variant = profile.variants[name]
    algorithm = variant.algorithm or (run.algorithm if run is not None else None)
    if profile.kind == "attach":
        return Case(name, algorithm, no_files="an attach profile names no model folders", run=run)
    target = _folder(profile.target, "target")
    given = profile.draft_of(name)
    part = "dflash2" if (algorithm or "").startswith("DFLASH") else "target"
    draft = None if given is None else _folder(given, part)
    if target is None:
        return Case(name, algorithm, no_files=_no_folder(profile.target), run=run)
    context = profile.flags_of(name).get("context-length")
    if not isinstance(context, int) and analysis is not None:
        context = resolved_facts(analysis.servers[name].info).context_length
    return Case(
        name,
        algorithm,
        checks=tuple(r for r in results if r.subject in ("target", name)),
        no_files=_no_draft(variant, given, draft),
        target=target,
        draft=draft,
        untrained=None if draft is None else untrained(draft, own_head=draft.path == target.path),
        context=context if isinstance(context, int) else None,
        run=run,
    )


def _no_folder(value: str) -> str:
    get = "" if value.startswith(("/", BUILTIN)) else f" (hf download {value} --local-dir DIR)"
    return f"{value} is not a model folder on this machine{get}"


def _no_draft(variant: Variant, given: str | None, draft: ModelFolder | None) -> str:
    """Why the draft could not be looked at; empty where it was, or where there is none."""
    if draft is not None or (given is None and not variant.uses_draft_model):
        return ""
    return "no draft is given" if given is None else _no_folder(given)


def _folder(value: str, part: str) -> ModelFolder | None:
    """The folder of a model reference; None for hub ids and for what cannot be read (the checks say why)."""
    try:
        return ModelFolder.read(model_folder(value, part))
    except UsageError:
        return None


def untrained(draft: ModelFolder, *, own_head: bool) -> bool | None:
    """Whether all norm weights of a draft are one constant (1, or 0 where the norm adds 1), as before training.

    Only norm weights are read, a few KB each. ``own_head`` looks at the tensors of an MTP head alone. None where
    there are fewer than two such tensors or they cannot be read.
    """
    seen: set[float] = set()
    count = 0
    try:
        for file, header in draft.headers.items():
            wanted = [
                key
                for key, info in header.items()
                if key.endswith("norm.weight") and len(info.shape) == 1 and info.dense
                if not own_head or key.startswith("mtp.") or ".mtp." in key
            ]
            if not wanted:
                continue
            with safe_open(draft.path / file, framework="numpy") as tensors:
                for key in wanted:
                    values = tensors.get_tensor(key).astype(np.float32)
                    count += 1
                    seen.update({float(values.min()), float(values.max())})
                    if len(seen) > 1:
                        return False
    except (OSError, SafetensorError, TypeError):
        return None
    return len(seen) == 1 if count > 1 else None


def reference_of(variant: str, golden: Path | None, against: Analysis | None, run: Analysis) -> Reference | None:
    """The accept lengths a variant should reach: another run's, or the golden ones of the same prompt set; None without
    either."""
    if against is not None:
        if variant not in against.manifest.variants:
            raise UsageError(
                f"run {against.store.path.name} has no variant {variant!r}; it has: "
                f"{', '.join(against.manifest.variants)}"
            )
        return Reference(f"run {against.store.path.name}", golden_lengths(against.acceptance(variant)))
    if golden is None:
        return None
    path = golden / f"{acceptance_stem(variant, run.manifest.prompt_set)}.json"
    if not path.is_file():
        return None
    return Reference(str(Path(*path.parts[-3:])), loads(path.read_bytes(), where=str(path)))


def measured(analysis: Analysis, variant: str, reference: Reference | None) -> Measured:
    """The figures of one variant in a run."""
    server, facts = analysis.servers[variant], resolved_facts(analysis.servers[variant].info)
    prompts = [p for group in by_category(analysis.prompts.values()).values() for p in group]
    histogram: Counter[int] = Counter()
    for prompt in prompts:
        answer = server.answers.get((PLAIN, prompt.id, 0))
        histogram.update(dict(enumerate(answer.accept_histogram)) if answer is not None else {})
    kinds = [
        judged.verdict.kind
        for prompt_id in analysis.prompts
        if analysis.inapplicable(prompt_id) is None
        if not analysis.is_known(judged := analysis.verdict(variant, prompt_id))
    ]
    info: Mapping[str, Any] = server.info
    return Measured(
        run=analysis.store.path.name,
        version=facts.version,
        algorithm=analysis.manifest.algorithms.get(variant) or facts.algorithm,
        problem=server.problem,
        width=facts.draft_tokens,
        depth=_depth(info, facts.draft_tokens),
        simulated=(server.settings or {}).get(_SIMULATE),
        categories=analysis.acceptance(variant),
        histogram=tuple(histogram[i] for i in range(max(histogram, default=-1) + 1)),
        by_length=tuple(_by_length(analysis, variant)),
        longest_prompt=max((len(p.ids) for p in analysis.prompts.values()), default=0),
        temperatures=tuple(sorted({p.sampling.temperature for p in prompts})),
        quantization=_text(info.get("quantization")),
        kv_cache_dtype=facts.kv_cache_dtype,
        differing=sum(kind is Kind.DIVERGENT for kind in kinds),
        judged=sum(kind is not Kind.INCONCLUSIVE for kind in kinds),
        reference=reference,
    )


def _depth(info: Mapping[str, Any], width: int | None) -> int | None:
    """How many draft tokens one step can accept: a block's all but the first, a tree's number of steps."""
    if family(_text(info.get("speculative_algorithm"))) == "DFLASH":
        return None if width is None else width - 1
    steps = info.get("speculative_num_steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None


def _by_length(analysis: Analysis, variant: str) -> Iterator[LengthBin]:
    """Accept lengths by prompt length: of the prompts that were built to a length where the run has several lengths of
    them (one kind of task), else of all. Lengths with too few verify steps are left out."""
    built = [
        LengthBin(p.prompt_tokens, p.prompt_tokens, p.accept_length, p.verify_steps)
        for p in analysis.context_curve(variant)
        if p.accept_length is not None and p.verify_steps >= _FEW
    ]
    if len(built) > 1:
        yield from built
        return
    server = analysis.servers[variant]
    bins: dict[int, list[tuple[int, Acceptance]]] = {}
    for prompt in analysis.prompts.values():
        answer = server.answers.get((PLAIN, prompt.id, 0))
        if answer is None or not answer.spec_verify_ct or prompt.group in _OTHER_GROUPS:
            continue
        place = sum(len(prompt.ids) > edge for edge in _EDGES)
        one = Acceptance(1, answer.completion_tokens, answer.spec_verify_ct, 0)
        bins.setdefault(place, []).append((len(prompt.ids), one))
    for _, found in sorted(bins.items()):
        tokens, steps = sum(a.tokens for _, a in found), sum(a.verify_steps for _, a in found)
        if steps >= _FEW:
            lengths = [length for length, _ in found]
            yield LengthBin(min(lengths), max(lengths), tokens / steps, steps)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
