"""Looks at a profile's models and flags before anything is started. No weights are read, nothing is downloaded."""

from collections.abc import Iterator
from pathlib import Path

from lossless.errors import UsageError
from lossless.profiles.checks.capacity import check_prompts, check_slots
from lossless.profiles.checks.dflash import check_dflash
from lossless.profiles.checks.files import check_dtype, check_files, check_tokenizer
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.own_head import check_chain, check_own_head
from lossless.profiles.checks.quantization import check_quantization
from lossless.profiles.checks.result import CheckResult, Status, Subject, by_severity, summary
from lossless.profiles.profile import BASELINE, BUILTIN, OWN_HEAD_ALGORITHMS, Profile, Variant
from lossless.reference.builtin import model_folder

__all__ = ["CheckResult", "Status", "check_profile", "summary"]

# SGLang runs NEXTN as EAGLE; either may take the head of the target's own checkpoint.
_CHAIN_ALGORITHMS = OWN_HEAD_ALGORITHMS | {"EAGLE"}


def check_profile(profile: Profile) -> tuple[CheckResult, ...]:
    """Everything that can be seen from the files of a profile's models and from its flags, failures first.

    Models given by a hub id and the servers of an attach profile are skipped, with the reason. Never raises for what
    it finds: a folder that cannot be read is a result.
    """
    return by_severity(_check(profile))


def _check(profile: Profile) -> Iterator[CheckResult]:
    target = Subject("target")
    if profile.kind == "attach":
        yield target.skip("model-folder", "the servers run already; their models may lie on another machine")
        return
    found = _model(profile.target, "target", target, "model-folder", "correct `target`, or --lossless-target")
    model = None if isinstance(found, CheckResult) else found
    if isinstance(found, CheckResult):
        yield found
    if model is not None:
        yield target.ok("model-folder", f"{model.architecture or 'no architecture named'} in {model.path.name}")
        yield from check_files(model, target)
        yield from check_dtype(model, profile, target)
        yield from check_quantization(model, target)
        yield from check_tokenizer(model, target)
        yield from check_prompts(model, profile, target)
    yield from check_slots(model, profile.flags_of(BASELINE), profile, Subject(BASELINE))
    for variant in profile.variants.values():
        yield from _check_variant(profile, variant, model)


def _check_variant(profile: Profile, variant: Variant, target: ModelFolder | None) -> Iterator[CheckResult]:
    subject, flags = Subject(variant.name), profile.flags_of(variant.name)
    yield from check_slots(target, flags, profile, subject)
    if variant.algorithm in _CHAIN_ALGORITHMS and profile.kind == "sglang":
        yield check_chain(flags, subject)
    dflash = variant.algorithm is not None and variant.algorithm.startswith("DFLASH")
    given = profile.draft_of(variant.name)
    if given is None:
        if variant.uses_draft_model:
            yield subject.fail("draft-folder", f"{variant.algorithm} needs a draft, and none is given", "set `draft`")
        return
    if target is None:
        yield subject.skip("draft-folder", "there is no target to compare the draft with")
        return
    draft = _model(given, "dflash2" if dflash else "target", subject, "draft-folder", "correct `draft`", target)
    if isinstance(draft, CheckResult):
        yield draft
        return
    if draft is not target:
        yield from check_files(draft, subject)
        yield from check_quantization(draft, subject)
    if dflash:
        yield from check_dflash(target, draft, flags, subject, tp_size=profile.tp_size)
    elif variant.algorithm in _CHAIN_ALGORITHMS and draft is target:
        on_card = profile.kind == "sglang" and flags.get("device") != "cpu"
        yield from check_own_head(draft, subject, measures_memory=on_card)
    else:
        yield subject.skip("draft-fit", f"no rules for a separate draft of {variant.algorithm}")


def _model(
    value: str, part: str, subject: Subject, check: str, remedy: str, target: ModelFolder | None = None
) -> ModelFolder | CheckResult:
    """The folder of a model reference (``target`` itself where it is the same), or the result that says why not."""
    path = Path(value)
    if not value.startswith(BUILTIN) and not path.is_absolute():
        get = f"hf download {value} --local-dir DIR"
        return subject.skip(check, f"{value} is a hub id: its files are looked at once it is a folder ({get})")
    try:
        path = model_folder(value, part)
        if target is not None and path.resolve() == target.path.resolve():
            return target
        return ModelFolder.read(path)
    except UsageError as problem:
        return subject.fail(check, problem.message, problem.hint or remedy)
