"""What a model folder or running servers say, as the facts of a profile. Reads no weights and starts nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lossless.errors import UsageError
from lossless.profiles.checks.capacity import slots_per_request
from lossless.profiles.checks.files import GIB
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.own_head import own_head_bytes
from lossless.profiles.loader import check_url
from lossless.profiles.profile import BASELINE, FlagValue
from lossless.profiles.writing import FlagFacts, ProfileFacts, VariantFacts, profile_name
from lossless.servers.pair import ServerFacts, algorithm_of, compare_pair, config_problems
from lossless.servers.resolved_facts import resolved_facts

_CONTEXT = 32_768
_LARGE = 10 * GIB
_CARD_GB = 32.0
_TIGHT = 0.45
_STORED = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
_BLOCK = 16  # SGLang's own choice where neither draft nor flag says
_CHAIN: Mapping[str, FlagValue] = {
    "speculative-eagle-topk": 1,
    "speculative-num-steps": 3,
    "speculative-num-draft-tokens": 4,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One running server: where it is, and what it says of itself."""

    url: str
    facts: ServerFacts

    @property
    def model(self) -> str:
        """The path or hub id of its model."""
        return str(self.facts.get("model_path"))


def survey_folders(
    target: ModelFolder, draft: ModelFolder | None, *, name: str | None = None, card_gb: float | None = None
) -> ProfileFacts:
    """A profile that launches SGLang on a target: NEXTN where the checkpoint has an MTP head, and the draft's variant.

    Args:
        target: the model's folder.
        draft: a draft's folder, or None.
        name: the profile's name; None takes the folder's.
        card_gb: memory of one card in GB; None takes 32 GB for a model that needs hints.

    Raises:
        UsageError: there is nothing to speculate with, or a draft of an unknown kind.
    """
    head = own_head_bytes(target)
    variants = [] if not head else [_nextn(head)]
    if draft is not None:
        variants.append(_draft_variant(draft))
    if not variants:
        raise UsageError(
            f"{target.path.name} has no MTP weights (mtp.*) and no draft was given: there is nothing to compare",
            hint="give --draft DIR, or a checkpoint that ships its MTP head (model_mtp.safetensors)",
        )
    size = target.size_bytes + (0 if draft is None else draft.size_bytes)
    large = size >= _LARGE
    card = card_gb if card_gb is not None else _CARD_GB
    if card * GIB < size:
        raise UsageError(
            f"target and draft take {size / GIB:.1f} GB, one card has {card:g} GB", hint="set tp_size by hand, later"
        )
    tight = size >= _TIGHT * card * GIB
    at_once = 2 if tight else 8
    chosen = name if name is not None else profile_name(target.path.name)
    return ProfileFacts(
        name=chosen,
        description=f"{target.path.name}, {' and '.join(v.algorithm or v.name for v in variants)}",
        kind="sglang",
        variants=tuple(variants),
        found=tuple(_found(target, draft, head)),
        target=str(target.path.resolve()),
        dtype=_dtype(target),
        args=tuple(_flags(target, at_once, tight=tight, card=card, hints=large and card_gb is None)),
        concurrency=at_once,
        start_deadline_s=900 if large else 600,
        request_timeout_s=900 if large else 600,
    )


def survey_servers(
    baseline: Seen,
    variants: Mapping[str, Seen],
    *,
    target: Path | None = None,
    name: str | None = None,
    api_key_env: str | None = None,
) -> ProfileFacts:
    """A profile that attaches to running servers, with a note on whatever keeps them from being a pair. ``target`` is
    where the tokenizer is read from, if not from the path that the baseline names.

    Raises:
        UsageError: no variant, or an address that is none.
    """
    if not variants:
        raise UsageError(
            f"the baseline's address was given ({baseline.url}) without any variant's",
            hint="add --variant-url NAME=http://127.0.0.1:PORT",
        )
    written, differing = [], dict[str, None]()
    for key, seen in variants.items():
        problems = compare_pair(baseline.facts, seen.facts).problems
        differing |= dict.fromkeys(problem.argument for problem in problems)
        notes = [f"NOT A PAIR: {problem}" for problem in problems]
        notes += [f"NOT LOSSLESS: {problem}" for problem in config_problems(seen.facts, speculative=True)]
        written.append(
            VariantFacts(key, algorithm=algorithm_of(seen.facts), url=check_url(seen.url), notes=tuple(notes))
        )
    chosen = name if name is not None else f"{profile_name(Path(baseline.model).name)}-running"
    away = target is None and Path(baseline.model).is_absolute() and not Path(baseline.model).is_dir()
    return ProfileFacts(
        name=chosen,
        description=f"running servers of {Path(baseline.model).name}",
        kind="attach",
        variants=tuple(written),
        found=tuple(_found_servers(baseline, variants, tokenizer_is_away=away)),
        target=None if target is None else str(target.resolve()),
        baseline_url=check_url(baseline.url),
        api_key_env=api_key_env,
        allow_differences=tuple(differing),
        concurrency=resolved_facts(baseline.facts.server_info).running_requests or 8,
    )


def _nextn(head: int) -> VariantFacts:
    return VariantFacts(
        "nextn",
        "NEXTN",
        args=_CHAIN,
        notes=(f"The draft is the checkpoint's own MTP head, {_size(head)}; SGLang shows it as EAGLE.",),
    )


def _draft_variant(draft: ModelFolder) -> VariantFacts:
    inner = draft.config.get("dflash_config")
    path, kind = str(draft.path.resolve()), draft.architecture.lower()
    if "dflash" in kind or isinstance(inner, dict):
        block = (inner.get("block_size") if isinstance(inner, dict) else None) or draft.number("block_size")
        notes = ["Needs SGLang 0.5.19 or newer."] if "dflash2" in kind else []
        if not isinstance(block, int):
            notes.append(f"The draft does not say its block size; SGLang takes {_BLOCK}.")
            return VariantFacts("dflash", "DFLASH", path, notes=tuple(notes))
        notes.append(f"{block} is the block size that the draft was trained with.")
        return VariantFacts("dflash", "DFLASH", path, {"speculative-num-draft-tokens": block}, notes=tuple(notes))
    if "eagle" in kind:
        algorithm = "EAGLE3" if "eagle3" in kind else "EAGLE"
        return VariantFacts(algorithm.lower(), algorithm, path, _CHAIN)
    raise UsageError(
        f"{draft.path.name} is {draft.architecture or 'of no architecture'}: no kind of draft that is known here; "
        "known: DFlash, DFlash2, EAGLE, EAGLE3",
        hint="write the variant by hand: [variants.NAME] with algorithm and draft",
    )


def _dtype(target: ModelFolder) -> str:
    """The type that most bytes are stored in; ``auto`` for quantized weights."""
    if target.quantization is not None:
        return "auto"
    sizes: dict[str, int] = {}
    for info in target.tensors.values():
        if info.dtype in _STORED:
            sizes[info.dtype] = sizes.get(info.dtype, 0) + info.size_bytes
    return _STORED[max(sizes, key=lambda key: sizes[key])] if sizes else "auto"


def _flags(target: ModelFolder, at_once: int, *, tight: bool, card: float, hints: bool) -> Iterator[FlagFacts]:
    """The flags for one card. Where it is tight, those with which a 27B model ran on 32 GB (shipped profile
    ``qwen3.8-27b-int4-32gb``); they are hints only where nobody said how large the card is."""
    maximum = target.number("max_position_embeddings")
    if maximum is not None:
        notes = [f"config.json allows {maximum} tokens. More context takes more of the KV pool."]
        yield FlagFacts("context-length", min(maximum, _CONTEXT), tuple(notes))
    if "vision_config" in target.config and target.config.get("language_model_only") is not True:
        yield FlagFacts("language-only", True, ("The checkpoint has a vision part; the suite sends text only.",))
    yield FlagFacts(
        "chunked-prefill-size",
        2048 if tight else 4096,
        ("Named, because SGLang's own choice depends on the memory that is left, which differs with a draft loaded.",),
    )
    yield FlagFacts("max-running-requests", at_once)
    if target.hybrid:
        each = slots_per_request({})
        yield FlagFacts(
            "max-mamba-cache-size",
            each * at_once,
            (f"Hybrid model: a request takes {each} slots. With fewer, requests wait; too few end the server.",),
        )
    if not tight:
        yield FlagFacts("mem-fraction-static", 0.85)
        return
    if target.hybrid:
        yield FlagFacts("mamba-ssm-dtype", "bfloat16", ("Halves what a state slot takes.",), only_a_hint=hints)
    yield FlagFacts(
        "mem-fraction-static",
        0.92,
        (f"For one {card:g} GB card: 0.93 left too little for capturing graphs in a field report.",),
    )
    yield FlagFacts(
        "cuda-graph-backend-prefill",
        "disabled",
        ('Capturing prefill graphs may run out of memory, reported as "num_active_captures_ > 0 INTERNAL ASSERT".',),
        only_a_hint=hints,
    )
    yield FlagFacts(
        "kv-cache-dtype",
        "fp8_e4m3",
        ("Doubles the KV pool; rounds more, so there are more near-ties.",),
        only_a_hint=True,
    )


def _size(count: int) -> str:
    return f"{count / GIB:.2f} GB" if count >= GIB // 10 else f"{count / 1024**2:.1f} MB"


def _found(target: ModelFolder, draft: ModelFolder | None, head: int) -> Iterator[str]:
    quantized = target.quantization
    method = "not quantized" if quantized is None else str(quantized.get("quant_method") or "quantized")
    yield (
        f"target: {target.architecture or 'no architecture named'}, {_size(target.size_bytes)}, {method}, "
        f"{'hybrid (recurrent state)' if target.hybrid else 'attention only'}"
    )
    yield f"MTP head: {_size(head) if head else 'none in this checkpoint'}"
    if draft is not None:
        yield f"draft: {draft.architecture}, {_size(draft.size_bytes)}"


def _found_servers(baseline: Seen, variants: Mapping[str, Seen], *, tokenizer_is_away: bool) -> Iterator[str]:
    for name, seen in {BASELINE: baseline, **variants}.items():
        facts = resolved_facts(seen.facts.server_info)
        context = f"{facts.context_length or 'default'} tokens"
        yield (
            f"{name}: SGLang {facts.version or 'of unknown version'}, {seen.model}, context {context}, "
            f"{algorithm_of(seen.facts) or 'no speculation'}"
        )
    for problem in config_problems(baseline.facts, speculative=False):
        yield f"NOT A BASELINE: {problem}"
    if tokenizer_is_away:
        yield f"{baseline.model} is not a folder on this machine: set target, so that the tokenizer is found"
