"""Changes made to a profile from the command line, and the digest that tells profiles apart."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lossless.errors import UsageError
from lossless.profiles.loader import NAME, check_url, resolve_prompts
from lossless.profiles.models import resolve_model
from lossless.profiles.profile import BASELINE, BUILTIN, OWN_HEAD_ALGORITHMS, Baseline, Profile, Variant


def with_overrides(
    profile: Profile,
    *,
    target: str | None = None,
    draft: str | None = None,
    max_new_tokens: int | None = None,
    prompts: str | None = None,
    baseline_url: str | None = None,
    variant_urls: Mapping[str, str] = {},
) -> Profile:
    """The profile with what the command line says on top; relative paths are taken from the current folder.

    Addresses make it a profile of kind ``attach`` with exactly the variants that got one; its target is then what
    the baseline names itself, unless ``target`` is given.

    Raises:
        UsageError: a combination that cannot mean anything (a draft that no variant would use, a variant's address
            without the baseline's, ...).
    """
    if max_new_tokens is not None:
        if max_new_tokens < 1:
            raise UsageError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
        profile = replace(profile, max_new_tokens=max_new_tokens)
    if prompts is not None:
        profile = replace(profile, prompts=resolve_prompts(prompts, Path.cwd()))
    attached = baseline_url is not None or bool(variant_urls)
    if attached:
        if draft is not None:
            raise UsageError(
                f"a draft model ({draft}) and the address of a running server were both given; a running server has "
                "loaded its draft already",
                hint="leave out the draft, or the addresses",
            )
        profile = _attach(profile, baseline_url, variant_urls)
    if draft is not None:
        profile = _with_draft(profile, draft, has_target=target is not None)
    if target is not None:
        profile = _with_target(profile, resolve_model(target, Path.cwd()))
        if not attached:
            _check_drafts_fit(profile)
    return profile


def profile_digest(profile: Profile) -> str:
    """A sha256 (hex) over all that can change what the servers answer.

    Left out: name, description, deadlines, addresses, the interpreter's path, and the epsilon bounds, which change
    how answers are judged and not the answers.
    """
    content: dict[str, Any] = {
        "kind": profile.kind,
        "target": profile.target,
        "tokenizer": profile.tokenizer,
        "dtype": profile.dtype,
        "command": profile.command[1:],
        "tp_size": profile.tp_size,
        "prompts": profile.prompts,
        "max_new_tokens": profile.max_new_tokens,
        "concurrency": profile.concurrency,
        "servers": {
            name: {
                "algorithm": entry.algorithm if isinstance(entry, Variant) else None,
                "draft": profile.draft_of(name),
                "args": {flag: value for flag, value in profile.flags_of(name).items() if value is not False},
                "env": profile.env_of(name),
            }
            for name in profile.server_names
            for entry in [profile.server(name)]
        },
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _attach(profile: Profile, baseline_url: str | None, variant_urls: Mapping[str, str]) -> Profile:
    if baseline_url is None and profile.baseline.url is None:
        named = ", ".join(f"{name}={url}" for name, url in variant_urls.items())
        raise UsageError(
            f"a variant's address was given ({named}) without the baseline's",
            hint="add --lossless-baseline-url http://127.0.0.1:PORT",
        )
    base = Baseline(url=check_url(baseline_url)) if baseline_url is not None else profile.baseline
    for name in variant_urls:
        if not NAME.fullmatch(name) or name == BASELINE:
            raise UsageError(
                f"{name!r} cannot name a variant: lower-case letters, digits, '.', '_' and '-', and not {BASELINE!r}"
            )
    variants = {
        name: Variant(name=name, algorithm=_known_algorithm(profile, name), url=check_url(url))
        for name, url in variant_urls.items()
    }
    if profile.kind == "attach":
        variants = {**profile.variants, **variants}
    if not variants:
        raise UsageError(
            f"the baseline's address was given ({base.url}) without any variant's",
            hint="add --lossless-variant-url NAME=http://127.0.0.1:PORT",
        )
    return replace(
        profile,
        kind="attach",
        target=profile.target if profile.kind == "attach" else "auto",
        tokenizer=profile.tokenizer if profile.kind == "attach" else None,
        command=(),
        args={},
        env={},
        baseline=base,
        variants=variants,
    )


def _known_algorithm(profile: Profile, name: str) -> str | None:
    return profile.variants[name].algorithm if name in profile.variants else None


def _with_draft(profile: Profile, draft: str, *, has_target: bool) -> Profile:
    if profile.kind == "attach":
        raise UsageError(
            f"a draft model ({draft}) was given, but profile {profile.name!r} attaches to running servers, which have "
            "loaded theirs already",
            hint="choose a profile that launches servers",
        )
    if not has_target and profile.target.startswith(BUILTIN) and not draft.startswith(BUILTIN):
        raise UsageError(
            f"a draft model ({draft}) was given without a target; profile {profile.name!r} runs {profile.target}, "
            "which that draft was not made for",
            hint="add --lossless-target, or choose another --lossless-profile",
        )
    users = [v for v in profile.variants.values() if v.uses_draft_model and v.draft != profile.target]
    if not users:
        algorithms = ", ".join(f"{v.name} ({v.algorithm})" for v in profile.variants.values())
        raise UsageError(
            f"a draft model ({draft}) was given, but no variant of profile {profile.name!r} uses one: {algorithms}",
            hint="choose a profile with a DFLASH variant, or leave out the draft",
        )
    if len({variant.draft for variant in users}) > 1:
        raise UsageError(
            f"a draft model ({draft}) was given, and several variants of profile {profile.name!r} use different ones: "
            + ", ".join(f"{v.name} ({v.draft})" for v in users),
            hint="write a profile that names each draft",
        )
    resolved = resolve_model(draft, Path.cwd())
    changed = {name: replace(v, draft=resolved) if v in users else v for name, v in profile.variants.items()}
    return replace(profile, variants=changed)


def _with_target(profile: Profile, target: str) -> Profile:
    # A draft path that was the target's own folder (a head inside the checkpoint) moves with it.
    moved = {
        name: replace(v, draft=target) if v.draft == profile.target else v
        for name, v in profile.variants.items()
        if v.algorithm in OWN_HEAD_ALGORITHMS
    }
    return replace(profile, target=target, tokenizer=None, variants={**profile.variants, **moved})


def _check_drafts_fit(profile: Profile) -> None:
    """A built-in draft fits the built-in target only."""
    for variant in profile.variants.values():
        draft = variant.draft
        if draft is not None and draft.startswith(BUILTIN) and not profile.target.startswith(BUILTIN):
            raise UsageError(
                f"variant {variant.name!r} of profile {profile.name!r} would run target {profile.target} with the "
                f"draft {draft}, which was not made for it",
                hint="add --lossless-draft, or choose another --lossless-profile",
            )
