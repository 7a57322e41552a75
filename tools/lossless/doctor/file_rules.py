"""Rules over the files: causes that can be seen before anything runs. Each takes a case and returns one finding."""

from collections.abc import Iterator, Sequence

from lossless.doctor.case import Case
from lossless.doctor.finding import Finding, Status
from lossless.doctor.rotary import Rotary, rotary_of
from lossless.profiles.checks.result import CheckResult

_AS_STATUS: dict[str, Status] = {"fail": "wrong", "warn": "suspicious", "skipped": "unknown", "ok": "ok"}
_LAYER_BUG = "0.5.19"
_OTHER_DRAFT = "use the draft that was trained for exactly this target"


def files(case: Case) -> Finding:
    """Folders, weight files, the quantization that config.json declares, and a DFlash draft's own tensors."""
    found = _from_checks(
        case, "files", ("model-folder", "draft-folder", "weight-files", "quantization"), "nothing was read"
    )
    lost = _lost(case)
    if found.status in ("wrong", "unknown") or not lost:
        return found
    return Finding(
        "files",
        "wrong",
        f"the draft has no tensors of {', '.join(lost)}: the server fills them with random values",
        "download the draft again",
        {"missing": lost},
    )


def _lost(case: Case) -> list[str]:
    """Parts of a DFlash draft (SGLang's models/dflash.py) of which no tensor is in its files."""
    draft = case.draft
    if not case.dflash or draft is None or not draft.headers or draft.broken:
        return []
    parts = ["fc", *(f"layers.{layer}" for layer in range(draft.number("num_hidden_layers") or 0))]
    return [part for part in parts if not any(f".{part}." in f".{key}" for key in draft.tensors)]


def configs(case: Case) -> Finding:
    """Draft and target fit: vocabulary, width, block size, mask token; for a chain, its flags."""
    return _from_checks(
        case,
        "configs",
        ("draft-kind", "draft-sizes", "block-size", "mask-token", "chain", "draft-fit"),
        "the draft is part of the target's own checkpoint, or no model at all",
    )


def lm_head(case: Case) -> Finding:
    """The head that drafts choose with: there, dense where it must be, and trained."""
    found = _from_checks(
        case, "lm-head", ("dense-lm-head", "mtp-weights"), "not looked at: the draft has a head of its own, or none"
    )
    if found.status not in ("ok", "suspicious") or not case.untrained:
        return found
    run = case.measured
    nothing = run is not None and (run.whole.drafted_length or 0.0) < 1.05
    return Finding(
        "lm-head",
        "wrong" if nothing else "suspicious",
        "every norm weight of the draft is one constant, as before training: the head is random or was never saved"
        + ("; and no draft token is accepted" if nothing else ""),
        _OTHER_DRAFT,
    )


def captured_layers(case: Case) -> Finding:
    """The target's layers that a DFlash draft reads its features from."""
    if not case.dflash and case.checks is not None:
        return Finding("captured-layers", "ok", "not used: only DFlash drafts read features of inner layers")
    found = _from_checks(case, "captured-layers", ("target-layers", "feature-layers"), "no DFlash draft was read")
    version = case.run.version if case.run is not None else None
    if found.status != "suspicious" or version is None or case.checks is None:
        return found
    # The only suspicion of these checks is a fault of one version, and the run says which version it was.
    if version == _LAYER_BUG:
        return Finding("captured-layers", "wrong", found.detail, found.remedy, {"version": version})
    return Finding(
        "captured-layers", "ok", f"the fault of {_LAYER_BUG} is not in {version}", numbers={"version": version}
    )


def tokenizer(case: Case) -> Finding:
    """Both sides mean the same text by an id."""
    return _from_checks(case, "tokenizer", ("vocabulary", "draft-tokenizer"), "no tokenizer was read")


def rotary(case: Case) -> Finding:
    """The rotary embeddings of draft and target: base, scaling, reach."""
    name = "rotary"
    if case.target is None or case.draft is None:
        return Finding(name, "unknown", case.no_files or "the folders of target and draft are needed")
    target, draft = rotary_of(case.target), rotary_of(case.draft)
    numbers = {
        side: {"theta": r.theta, "type": r.kind, "factor": r.factor, "partial": r.partial, "positions": r.positions}
        for side, r in (("target", target), ("draft", draft))
    }
    for side, value in (("target", target), ("draft", draft)):
        if value.conflicts:
            return Finding(
                name,
                "wrong",
                f"the {side}'s config.json contradicts itself: {'; '.join(value.conflicts)}",
                "download config.json again, or make both keys agree with what the model was trained with",
                numbers,
            )
    if case.draft is case.target or case.draft.path == case.target.path:
        return Finding(name, "ok", f"the head uses the target's own: {_shown(target)}", numbers=numbers)
    problems = list(_rotary_problems(target, draft, case))
    if problems:
        return Finding(name, "suspicious", "; ".join(problems), _OTHER_DRAFT, numbers)
    partial = (
        "" if draft.partial == target.partial else f" (target: {_shown(target)}; a draft's own attention may differ)"
    )
    return Finding(name, "ok", f"{_shown(draft)}{partial}", numbers=numbers)


def _rotary_problems(target: Rotary, draft: Rotary, case: Case) -> Iterator[str]:
    if draft.theta is not None and target.theta is not None and draft.theta != target.theta:
        yield f"the draft's theta is {draft.theta:g}, the target's {target.theta:g}: unusual, unless it was trained so"
    longest = case.run.longest_prompt if case.run is not None else 0
    asked, reach = max(case.context or 0, longest), draft.scaled_positions
    if target.factor > draft.factor:
        yield f"the target scales positions ({target.kind}, factor {target.factor:g}), the draft does not"
    if reach is not None and asked > reach:
        yield f"the draft knows {reach} positions, and the context is {asked} tokens: beyond, less is accepted"


def _shown(rotary: Rotary) -> str:
    theta = "SGLang's default theta" if rotary.theta is None else f"theta {rotary.theta:g}"
    scaled = "" if rotary.factor == 1 else f", {rotary.kind} x {rotary.factor:g}"
    return f"{theta}, {rotary.partial:.0%} of a head{scaled}"


def _from_checks(case: Case, rule: str, names: Sequence[str], nothing: str) -> Finding:
    """The worst of some results of the profile check; where all are in order, the last ones' details."""
    if case.checks is None:
        return Finding(rule, "unknown", case.no_files or "no profile and no model folder to look at")
    found = [c for name in names for c in case.checks if c.name == name]
    if not found:
        return Finding(rule, "unknown", case.no_files) if case.no_files else Finding(rule, "ok", nothing)
    for status in ("fail", "warn"):
        bad = [c for c in found if c.status == status]
        if bad:
            more = "" if len(bad) == 1 else f" (and {len(bad) - 1} more)"
            return Finding(rule, _AS_STATUS[status], f"{_said(bad[0])}{more}", bad[0].remedy, _numbers(bad))
    good = [c for c in found if c.status == "ok"]
    if not good:
        return Finding(rule, "unknown", found[0].detail)
    return Finding(rule, "ok", "; ".join(dict.fromkeys(c.detail for c in good)), numbers=_numbers(good))


def _said(check: CheckResult) -> str:
    return f"{check.subject}: {check.detail}"


def _numbers(checks: Sequence[CheckResult]) -> dict[str, str]:
    return {f"{c.subject}.{c.name}": c.status for c in checks}
