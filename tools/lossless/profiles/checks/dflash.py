"""DFLASH: whether a draft belongs to a target.

The rules are SGLang's (speculative/dflash_utils.py, dflash_worker_v2.py, models/dflash.py of 0.5.19 and 0.5.23).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lossless.errors import UsageError
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.result import CheckResult, Subject
from lossless.profiles.profile import FlagValue

_OTHER_DRAFT = "use the draft that was trained for exactly this target"
_DEFAULT_MASK = "<|MASK|>"


def check_dflash(
    target: ModelFolder, draft: ModelFolder, flags: Mapping[str, FlagValue], subject: Subject, *, tp_size: int
) -> Iterator[CheckResult]:
    """A DFLASH variant's draft and flags against its target."""
    if "dflash" not in draft.architecture.lower() and not isinstance(draft.config.get("dflash_config"), dict):
        yield subject.fail(
            "draft-kind",
            f"{draft.path.name} is {draft.architecture or 'of no architecture'}, no DFlash draft",
            "set `draft` of the variant to a DFlash draft, or its `algorithm` to the draft's",
        )
        return
    yield subject.ok("draft-kind", f"{draft.architecture}{' (needs SGLang 0.5.19 or newer)' if _second(draft) else ''}")
    yield from _check_sizes(target, draft, subject)
    yield from _check_tokenizers(target, draft, subject)
    yield from _check_layers(target, draft, subject)
    yield from _check_head(target, draft, subject, tp_size)
    yield from _check_mask(target, draft, subject)
    yield from _check_block(draft, flags, subject)
    yield _check_hook(target, subject)


def _setting(draft: ModelFolder, key: str) -> Any:
    """From ``dflash_config``, or the top level of config.json."""
    inner = draft.config.get("dflash_config")
    value = inner.get(key) if isinstance(inner, dict) else None
    return draft.config.get(key) if value is None else value


def _second(draft: ModelFolder) -> bool:
    """DFlash2: with a candidate selector."""
    return draft.architecture.startswith("DFlash2") or bool(_setting(draft, "selector_rank"))


def _check_sizes(target: ModelFolder, draft: ModelFolder, subject: Subject) -> Iterator[CheckResult]:
    different = [
        f"{key} {draft.number(key)} (target: {target.number(key)})"
        for key in ("vocab_size", "hidden_size")
        if draft.number(key) != target.number(key)
    ]
    if different:
        yield subject.fail("draft-sizes", f"the draft has {', '.join(different)}", _OTHER_DRAFT)
    else:
        yield subject.ok(
            "draft-sizes",
            f"vocabulary {draft.number('vocab_size')}, width {draft.number('hidden_size')}, "
            f"{draft.size_bytes / 1024**2:.1f} MB of weights ({draft.size_bytes / max(target.size_bytes, 1):.0%} of "
            "the target's)",
        )


def _check_tokenizers(target: ModelFolder, draft: ModelFolder, subject: Subject) -> Iterator[CheckResult]:
    name = "draft-tokenizer"
    if draft.tokenizer_digest is None or target.tokenizer_digest is None:
        yield subject.skip(name, "only one of draft and target has a tokenizer.json; SGLang uses the target's")
        return
    if draft.tokenizer_digest == target.tokenizer_digest:
        yield subject.ok(name, "the target's")
        return
    try:
        ours, theirs = target.vocabulary, draft.vocabulary
    except UsageError as problem:
        yield subject.skip(name, problem.message)
        return
    other = [token for token, id_ in theirs.items() if ours.get(token) != id_]
    if len(other) > len(theirs) // 100:
        yield subject.fail(
            name, f"the draft's tokenizer gives {len(other)} of {len(theirs)} tokens other ids", _OTHER_DRAFT
        )
    elif other:
        yield subject.warn(
            name, f"the draft's tokenizer gives other ids to {', '.join(sorted(other)[:5])}", _OTHER_DRAFT
        )
    else:
        yield subject.ok(name, "another file with the target's ids")


def _check_layers(target: ModelFolder, draft: ModelFolder, subject: Subject) -> Iterator[CheckResult]:
    name, layers = "target-layers", target.number("num_hidden_layers")
    if layers is None:
        yield subject.fail(name, "the target's config.json has no num_hidden_layers", "download config.json again")
        return
    said, ids = _setting(draft, "num_target_layers"), _setting(draft, "target_layer_ids")
    problems = []
    if isinstance(said, int) and said != layers:
        problems.append(f"it was trained on a target of {said} layers, this one has {layers}")
    if ids is None:
        if not problems:
            yield subject.ok(name, "not named: SGLang spreads them over the target's layers")
            return
    elif not isinstance(ids, list) or not ids or not all(isinstance(id_, int) for id_ in ids):
        problems.append(f"target_layer_ids must be a list of layers, got {ids!r}")
    else:
        # Features are taken before the layer after the named one, so the last layer cannot be named.
        if bad := [id_ for id_ in ids if not 0 <= id_ < layers - 1]:
            problems.append(f"target_layer_ids {ids} are not all from 0 to {layers - 2} ({bad[0]} is not)")
        if ids != sorted(set(ids)):
            problems.append(f"target_layer_ids {ids} do not rise")
        fc, width = draft.tensors.get("fc.weight"), target.number("hidden_size")
        if fc is not None and fc.dense and len(fc.shape) == 2 and width and fc.shape[1] != len(ids) * width:
            problems.append(
                f"fc.weight takes {fc.shape[1]} features, {len(ids)} layers of width {width} give {len(ids) * width}"
            )
    if problems:
        for problem in problems:
            yield subject.fail(name, f"{draft.path.name}: {problem}", _OTHER_DRAFT)
    else:
        yield subject.ok(name, f"{ids} of {layers}")


def _check_head(target: ModelFolder, draft: ModelFolder, subject: Subject, tp_size: int) -> Iterator[CheckResult]:
    """The selector multiplies with the target's output head (SGLang PR #35496 lets it be quantized, on one card)."""
    name = "dense-lm-head"
    if not _second(draft):
        yield subject.ok(name, "not needed: the draft has no selector")
        return
    tied = bool(target.text.get("tie_word_embeddings", target.config.get("tie_word_embeddings", False)))
    wanted = "embed_tokens" if tied else "lm_head"
    parts = {key: info for key, info in target.tensors.items() if f".{key}".rpartition(".")[0].endswith(f".{wanted}")}
    parts = {key: info for key, info in parts.items() if not key.startswith("mtp.")}
    if not parts:
        yield subject.skip(name, f"no tensor of {wanted} in the target's files")
        return
    weight = next((info for key, info in parts.items() if key.endswith(".weight")), None)
    if weight is not None and weight.dense and len(parts) == 1:
        yield subject.ok(name, f"{wanted}.weight is {weight.dtype}")
        return
    found = ", ".join(f"{key.rpartition('.')[2]} {info.dtype}" for key, info in sorted(parts.items()))
    detail = f"the target's {wanted} is quantized ({found})"
    if tp_size > 1:
        yield subject.fail(
            name,
            f"{detail}, which DFLASH takes on one card only, not with tp_size {tp_size}",
            "use a target with a dense lm_head",
        )
    else:
        yield subject.warn(
            name,
            f"{detail}; versions and formats that are not supported stop with 'DFlash2 selector requires a dense ... "
            "lm_head'",
            "use SGLang 0.5.19 or newer, or a target with a dense lm_head",
        )


def _check_mask(target: ModelFolder, draft: ModelFolder, subject: Subject) -> Iterator[CheckResult]:
    name, size = "mask-token", target.number("vocab_size")
    token, id_ = _setting(draft, "mask_token") or _DEFAULT_MASK, _setting(draft, "mask_token_id")
    try:
        known = target.vocabulary.get(str(token))
    except UsageError:
        known = None
    if id_ is None:
        if known is None:
            yield subject.fail(
                name, f"the draft names no mask_token_id, and the tokenizer does not know {token!r}", _OTHER_DRAFT
            )
        else:
            yield subject.ok(name, f"{token!r} is id {known}")
    elif not isinstance(id_, int) or id_ < 0 or (size is not None and id_ >= size):
        yield subject.fail(name, f"mask_token_id {id_} is outside the target's vocabulary of {size}", _OTHER_DRAFT)
    elif known is not None and known != id_:
        yield subject.fail(
            name, f"mask_token_id is {id_}, but the target's tokenizer has {token!r} as {known}", _OTHER_DRAFT
        )
    else:
        yield subject.ok(name, f"id {id_}")


def _check_block(draft: ModelFolder, flags: Mapping[str, FlagValue], subject: Subject) -> Iterator[CheckResult]:
    name, trained = "block-size", _setting(draft, "block_size")
    first, second = flags.get("speculative-num-draft-tokens"), flags.get("speculative-dflash-block-size")
    if first is not None and second is not None and first != second:
        yield subject.fail(
            name,
            f"speculative-num-draft-tokens {first} and speculative-dflash-block-size {second} differ; SGLang refuses",
            "leave one of them out",
        )
        return
    asked = first if first is not None else second
    if trained is None and asked is None:
        yield subject.warn(
            name,
            "neither the draft nor the profile says it: SGLang takes 16",
            "set speculative-num-draft-tokens to what the draft was trained with",
        )
    elif asked is None or trained is None or asked == trained:
        yield subject.ok(name, f"{trained if asked is None else asked} tokens")
    else:
        yield subject.warn(
            name,
            f"speculative-num-draft-tokens is {asked}, the draft was trained for blocks of {trained}: less is accepted",
            f"set speculative-num-draft-tokens = {trained}",
        )


def _check_hook(target: ModelFolder, subject: Subject) -> CheckResult:
    name = "feature-layers"
    if target.architecture in ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"):
        return subject.warn(
            name,
            f"for {target.architecture} SGLang 0.5.19 defines set_dflash_layers_to_capture twice, and the draft gets "
            "its features one layer early: right answers, but less is accepted",
            "use SGLang 0.5.23, or let config.json say ...ForConditionalGeneration with language_model_only",
        )
    return subject.ok(name, f"taken where {target.architecture or 'the target'} names them")
