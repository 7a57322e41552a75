"""Whether the flags leave room for what the profile asks: state slots of hybrid models, and the longest prompt."""

from collections.abc import Iterator, Mapping

from lossless.errors import UsageError
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.result import CheckResult, Subject
from lossless.profiles.profile import FlagValue, Profile
from lossless.profiles.request_room import Room
from lossless.prompts import Tokenizer, load_prompts

# SGLang 0.5.17 to 0.5.23, `_calculate_mamba_ratio` (mem_cache/kv_cache_configurator.py): three states for a request,
# and what tracks prefix-cache states: two with overlapped scheduling, one without.
_BASE, _TRACKING_OVERLAP, _TRACKING = 3, 2, 1


def slots_per_request(flags: Mapping[str, FlagValue]) -> int:
    """State slots that each running request of a hybrid model takes: 5 with SGLang's defaults, with speculation or
    without; 1 without a prefix cache."""
    if flags.get("disable-radix-cache") is True:
        return 1
    overlap = flags.get("disable-overlap-schedule") is not True
    page = flags.get("page-size")
    strategy = flags.get("mamba-radix-cache-strategy", "auto")
    if strategy == "auto":
        wanted = overlap or (isinstance(page, int) and page > 1)
        supported = flags.get("linear-attn-backend", "triton") == "triton"
        strategy = "extra_buffer" if wanted and supported else "no_buffer"
    if strategy == "no_buffer":
        return _BASE
    lazy = strategy == "extra_buffer_lazy"
    return _BASE + (_TRACKING_OVERLAP if overlap and not lazy else _TRACKING)


def check_slots(
    target: ModelFolder | None, flags: Mapping[str, FlagValue], profile: Profile, subject: Subject
) -> Iterator[CheckResult]:
    """The recurrent-state cache holds as many requests as are sent at once. Without a target folder, whoever sets the
    cache's size is taken to have a hybrid model."""
    hybrid = "max-mamba-cache-size" in flags if target is None else target.hybrid
    if not hybrid or profile.kind != "sglang":
        return
    name, slots, each = "state-slots", flags.get("max-mamba-cache-size"), slots_per_request(flags)
    wanted, limit = profile.concurrency, flags.get("max-running-requests")
    if isinstance(limit, int) and not isinstance(limit, bool):
        wanted = min(wanted, limit)
    if not isinstance(slots, int) or isinstance(slots, bool):
        yield subject.skip(name, f"max-mamba-cache-size is left to SGLang; a request takes {each} of its slots")
        return
    fits = slots // each
    if fits == 0:
        yield subject.fail(
            name,
            f"max-mamba-cache-size {slots} is not enough for one request, which takes {each} slots",
            f"set max-mamba-cache-size = {each * wanted}",
        )
    elif fits < wanted:
        yield subject.warn(
            name,
            f"max-mamba-cache-size {slots} lets {fits} of {wanted} requests run at once ({each} slots each); the "
            "others wait, and nothing is tested under load",
            f'set max-mamba-cache-size = {each * wanted} (mamba-ssm-dtype = "bfloat16" halves what a slot takes)',
        )
    else:
        yield subject.ok(name, f"{slots} slots, {each} for a request: {fits} at once, {wanted} asked for")


def _own_context(target: ModelFolder) -> int | None:
    """The context length that SGLang reads from config.json; None where rotary scaling changes it."""
    for key in ("rope_scaling", "rope_parameters"):
        scaling = target.text.get(key)
        if isinstance(scaling, dict) and scaling.get("factor", 1) != 1:
            return None
    return target.number("max_position_embeddings")


def check_prompts(target: ModelFolder, profile: Profile, subject: Subject) -> Iterator[CheckResult]:
    """The longest request of the profile fits into the context and, where it is given, the KV pool."""
    name = "prompt-room"
    context = profile.args.get("context-length", _own_context(target))
    pool = profile.args.get("max-total-tokens")
    room = Room(context if isinstance(context, int) else None, pool if isinstance(pool, int) else None)
    if room.tokens is None:
        yield subject.skip(name, "neither the profile nor config.json says how long the context is")
        return
    try:
        prompts = load_prompts(profile.prompts).prompts
        tokenizer = Tokenizer.from_folder(target.path if profile.tokenizer is None else profile.tokenizer)
        lengths = [(prompt, len(tokenizer.encode(prompt))) for prompt in prompts]
    except UsageError as problem:
        yield subject.skip(name, f"the prompts could not be encoded: {problem.message}")
        return
    cap = profile.max_new_tokens
    problems: list[str] = []
    longest = 0
    for prompt, length in lengths:
        new = prompt.sampling.max_new_tokens if cap is None else min(cap, prompt.sampling.max_new_tokens)
        longest = max(longest, length + new)
        if why := room.problem(length, new):
            problems.append(f"{prompt.id}: {why}")
    if problems:
        rest = f" (and {len(problems) - 1} more prompts)" if len(problems) > 1 else ""
        yield subject.fail(
            name, f"{problems[0]}{rest}", "raise context-length or max-total-tokens, or leave these prompts out"
        )
    else:
        yield subject.ok(name, f"the longest of {len(lengths)} requests takes {longest} of {room.tokens} tokens")
