"""From options to a plan: profile, prompts, goldens, and the key that says which recorded runs are the same."""

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import lossless
from lossless.errors import UsageError
from lossless.golden.files import GoldenFile, read_goldens
from lossless.profiles import Profile, load_profile, profile_digest, with_overrides
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.own_head import own_head_bytes
from lossless.profiles.profile import OWN_HEAD_ALGORITHMS
from lossless.prompts import Prompt, PromptSet, Tokenizer, load_prompts
from lossless.prompts.haystack import QUESTION
from lossless.record.model import model_facts
from lossless.record.store import Manifest, RecordedPrompt, Shard
from lossless.suite.options import Options
from lossless.suite.shard import chosen, parse_shard

BUILTIN_PREFIX = "builtin:"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before any server runs. ``damaged`` holds the goldens that cannot be read, with the reason.

    With a ``shard``, ``prompts`` are its prompts only; ``prompt_digest`` is the whole set's all the same.
    """

    options: Options
    profile: Profile
    prompts: PromptSet
    goldens: dict[str, GoldenFile]
    damaged: dict[str, str]
    golden_folder: Path
    key: str
    prompt_digest: str
    shard: Shard | None = None


def prepare(options: Options) -> Prepared:
    """Read profile, prompts and goldens.

    Raises:
        UsageError: any of them is missing or wrong, or the options contradict each other.
    """
    profile = with_overrides(
        load_profile(options.profile),
        target=options.target,
        draft=options.draft,
        max_new_tokens=options.max_new_tokens,
        prompts=options.prompts,
        baseline_url=options.baseline_url,
        variant_urls=options.variant_url,
    )
    if options.fault is not None and profile.kind != "reference":
        raise UsageError(
            f"--lossless-fault {options.fault}: faults can be planted in the embedded engine only, and profile "
            f"{profile.name!r} runs kind {profile.kind!r}",
            hint="pytest -m lossless --lossless-profile tiny --lossless-fault " + options.fault,
        )
    whole = load_prompts(profile.prompts, profile.long)
    prompts, shard = _shard(whole, options.shard)
    folder = options.golden / profile.name
    goldens, damaged = read_goldens(folder)
    content = {
        "profile": profile_digest(profile),
        "urls": [str(profile.baseline.url), *(f"{v.name}={v.url}" for v in profile.variants.values())],
        "prompts": whole.digest,
        "goldens": {k: list(g.golden.ids) for k, g in goldens.items()},
        "fault": options.fault,
        "tool": lossless.__version__,
    }
    if shard is not None:
        content["shard"] = f"{shard.index}/{shard.total}"
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return Prepared(options, profile, prompts, goldens, damaged, folder, key, whole.digest, shard)


def _shard(whole: PromptSet, text: str | None) -> tuple[PromptSet, Shard | None]:
    """The prompts of a shard (``I/N``), and what its manifest has to say; the whole set without one."""
    if text is None:
        return whole, None
    choice = parse_shard(text)
    part = whole.select(chosen(whole.prompts, choice, name=whole.name))
    return part, Shard(choice.index, choice.total, tuple(p.id for p in whole.prompts))


def model_path(reference: str) -> Path | None:
    """The local folder of a model reference, None for a hub id.

    Raises:
        UsageError: unknown ``builtin:`` name.
    """
    if reference.startswith(BUILTIN_PREFIX):
        from lossless.reference.builtin import model_folder

        return model_folder(reference, "target")
    folder = Path(reference)
    return folder if folder.is_dir() else None


def open_tokenizer(profile: Profile, served: str | None) -> tuple[Tokenizer, Path | None]:
    """The target's tokenizer, and the folder it came from if it is local.

    ``served`` is what an attached server names as its tokenizer or model; used where the profile says ``auto``.

    Raises:
        UsageError: there is no tokenizer to be had.
    """
    source = profile.tokenizer_source
    if source == "auto":
        if served is None:
            raise UsageError(
                "the running baseline does not say which model it serves", hint="give --lossless-target DIR"
            )
        source = served
    folder = model_path(source)
    return Tokenizer.from_folder(folder if folder is not None else source), folder


def manifest(prepared: Prepared, tokenizer: Tokenizer, target: Path | None) -> Manifest:
    """The manifest of a new run."""
    profile, facts = prepared.profile, model_facts(target)
    bounds = {k: v for k, v in asdict(profile.epsilon).items() if v is not None}
    return Manifest(
        key=prepared.key,
        profile=profile.name,
        kind=profile.kind,
        target=profile.target,
        dtype=profile.dtype,
        variants=tuple(profile.variants),
        prompt_set=prepared.prompts.name,
        prompt_digest=prepared.prompt_digest,
        tokenizer_digest=tokenizer.digest,
        model_digest=facts.digest,
        eos_ids=facts.eos_ids,
        concurrency=profile.concurrency,
        tool_version=lossless.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fault=prepared.options.fault,
        epsilon=prepared.options.epsilon,
        epsilon_bounds=bounds,
        allow_differences=profile.allow_differences,
        algorithms={name: v.algorithm for name, v in profile.variants.items() if v.algorithm is not None},
        draft_bytes=_draft_bytes(profile),
        shard=prepared.shard,
    )


def _draft_bytes(profile: Profile) -> dict[str, int]:
    """Bytes of each variant's draft weights, read off the files' headers. For a head inside the target's checkpoint
    only its own tensors count. Folders that cannot be read are left to the server to complain about."""
    found: dict[str, int] = {}
    for name, variant in profile.variants.items():
        draft = profile.draft_of(name)
        folder = model_path(draft) if draft is not None and not draft.startswith(BUILTIN_PREFIX) else None
        if folder is None:
            continue
        with contextlib.suppress(UsageError):
            model = ModelFolder.read(folder)
            found[name] = own_head_bytes(model) if variant.algorithm in OWN_HEAD_ALGORITHMS else model.size_bytes
    return found


def recorded_prompt(prompt: Prompt, tokenizer: Tokenizer, cap: int | None) -> RecordedPrompt:
    """A prompt as it is sent: encoded once, for both servers."""
    sampling = tokenizer.sampling(prompt)
    if cap is not None and sampling.max_new_tokens > cap:
        sampling = replace(sampling, max_new_tokens=cap)
    ids = tokenizer.encode(prompt)
    text = prompt.messages[-1].content if prompt.messages else prompt.text
    if prompt.haystack is not None:  # the whole text is nothing to read
        text = f"(a fact hidden at {prompt.haystack.depth:.0%} of {len(ids)} tokens) {QUESTION}"
    return RecordedPrompt(
        id=prompt.id,
        category=prompt.category,
        group=prompt.group,
        ids=ids,
        sampling=sampling,
        text=text if text is not None and prompt.exact_tokens is None else tokenizer.decode(ids, False),
        same_as=prompt.same_as,
        expect=prompt.expect,
        depth=None if prompt.haystack is None else prompt.haystack.depth,
    )


def request_digest(prompt: RecordedPrompt) -> str:
    """What a golden was recorded for: ids and sampling parameters."""
    content = [list(prompt.ids), prompt.sampling.payload()]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]
