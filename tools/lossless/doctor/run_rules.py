"""Rules over a recorded run: what its accept lengths say. Each takes a case and returns one finding."""

from lossless.doctor.case import Case
from lossless.doctor.finding import Finding
from lossless.doctor.tasks import LONG_CONTEXT, family

_NO_RUN = "no recorded run was given"
_RECORD = "record a run: pytest -m lossless --lossless-profile NAME"
_NOTHING = 1.05
"""Tokens a verify step, the prefill's token left out, up to which drafts count as never accepted (1 is exact)."""
_CLIFF_BEFORE, _CLIFF_AFTER, _ENOUGH = 0.4, 0.05, 30
_SHORT = 32_768


def speculation(case: Case) -> Finding:
    """The server speculates, on every answer, and its accept length is a real one."""
    name, run = "speculation", case.run
    if run is None:
        return Finding(name, "unknown", _NO_RUN, _RECORD)
    whole = run.whole
    numbers = {"verify_steps": whole.verify_steps, "silent_answers": whole.silent}
    if run.simulated is not None:
        return Finding(
            name,
            "wrong",
            f"SGLANG_SIMULATE_ACC_LEN={run.simulated}: the accept length is made up, and so is the output",
            "start the server without that variable",
            numbers,
        )
    if not whole.verify_steps and not whole.silent:
        why = run.problem or "it answered none of the prompts whose speculation counts"
        return Finding(name, "unknown", f"{case.variant}: {why}", f"lossless verify {run.run}", numbers)
    if not whole.verify_steps:
        off = "" if run.algorithm else "; the server names no speculative_algorithm at all"
        return Finding(
            name,
            "wrong",
            f"speculation is silently off: no answer of {whole.silent} reports a verify step{off}",
            "look in the server's log for the draft's load line; start it with --speculative-algorithm",
            numbers,
        )
    if whole.silent:
        return Finding(
            name,
            "suspicious",
            f"{whole.silent} answers of 2 tokens or more report no verify step, {whole.prompts} do: a fallback",
            f"lossless verify {run.run} names them; look in the server's log at that time",
            numbers,
        )
    return Finding(name, "ok", f"{whole.verify_steps} verify steps in {whole.prompts} answers", numbers=numbers)


def lossless_output(case: Case) -> Finding:
    """The output is the target's: an accept length of wrong tokens means nothing."""
    name, run = "output", case.run
    if run is None:
        return Finding(name, "unknown", _NO_RUN, _RECORD)
    numbers = {"differing": run.differing, "judged": run.judged}
    if not run.judged:
        return Finding(name, "unknown", "no answer could be compared with the baseline's", None, numbers)
    if run.differing:
        return Finding(
            name,
            "wrong",
            f"{run.differing} of {run.judged} answers are not the target's own: accept lengths mean nothing here",
            f"lossless verify {run.run}",
            numbers,
        )
    return Finding(name, "ok", f"none of {run.judged} answers diverges from the target's own", numbers=numbers)


def draft_head(case: Case) -> Finding:
    """Drafts are accepted at all."""
    name, run = "draft-head", case.measured
    if run is None:
        return unmeasured(name, case)
    drafted = run.whole.drafted_length or 0.0
    numbers = {"drafted_length": round(drafted, 3), "verify_steps": run.whole.verify_steps}
    if drafted < _NOTHING:
        return Finding(
            name,
            "wrong",
            f"{drafted:.2f} tokens a verify step: no draft token is accepted. The head is random (never loaded), or "
            "the draft belongs to another target",
            "see that the log loads the draft's weights without 'not initialized' or 'missing keys'; lossless "
            "profiles check",
            numbers,
        )
    return Finding(name, "ok", f"{drafted:.2f} tokens a verify step", numbers=numbers)


def positions(case: Case) -> Finding:
    """How far into a draft tokens are still accepted: a good draft falls slowly, a broken one off a cliff."""
    name, run = "positions", case.measured
    if run is None:
        return unmeasured(name, case)
    if not run.histogram:
        return Finding(name, "unknown", "the server's answers hold no accept histogram")
    rates = position_rates(run.histogram, run.depth)
    numbers = {
        "histogram": list(run.histogram),
        "rates": [None if reached == 0 else round(rate, 3) for rate, reached in rates],
    }
    shown = ", ".join(f"{rate:.0%}" for rate, reached in rates if reached)
    for at in range(1, len(rates)):
        (before, _), (rate, reached) = rates[at - 1], rates[at]
        if reached >= _ENOUGH and before >= _CLIFF_BEFORE and rate <= _CLIFF_AFTER:
            return Finding(
                name,
                "wrong",
                f"draft token {at + 1} is accepted in {rate:.0%} of {reached} steps that reach it, token {at} in "
                f"{before:.0%}: what is drafted from there on is noise",
                "draft no more tokens than it was trained for (speculative-num-draft-tokens, speculative-num-steps); "
                "see its positions and mask token",
                numbers,
            )
    return Finding(name, "ok", f"accepted where reached, by position: {shown or 'nothing'}", numbers=numbers)


def position_rates(histogram: tuple[int, ...], depth: int | None = None) -> list[tuple[float, int]]:
    """For each draft position, the share of the steps that reached it in which it was accepted, and their count.

    Servers leave out the empty end of the histogram; ``depth`` positions there are.
    """
    rates = []
    histogram += (0,) * ((depth or 0) + 1 - len(histogram))
    for position in range(1, len(histogram)):
        reached, accepted = sum(histogram[position - 1 :]), sum(histogram[position:])
        rates.append((accepted / reached if reached else 0.0, reached))
    return rates


def context_length(case: Case) -> Finding:
    """Accept length over the prompt's length; it falls with long contexts, for a chain faster than for a block."""
    name, run = "context", case.measured
    if run is None:
        return unmeasured(name, case)
    numbers = {
        "by_prompt_tokens": [
            {
                "from": b.low,
                "to": b.high,
                "accept_length": round(b.accept_length, 2),
                "verify_steps": b.verify_steps,
            }
            for b in run.by_length
        ]
    }
    shown = "; ".join(f"{b.accept_length:.2f} up to {b.high} tokens" for b in run.by_length)
    if len(run.by_length) < 2:
        longest = f"prompts of up to {run.longest_prompt} tokens only"
        return Finding(name, "ok", f"{longest}: context length plays no part in this run", numbers=numbers)
    first, last = run.by_length[0], run.by_length[-1]
    normal = LONG_CONTEXT.get(family(case.algorithm) or "")
    field = "" if normal is None else f"; in a field report {normal[0]} became {normal[1]} at 128K tokens"
    if last.high < _SHORT and last.accept_length < first.accept_length / 2 and run.reference is None:
        return Finding(
            name,
            "suspicious",
            f"it falls by more than half below {_SHORT} tokens already: {shown}{field}",
            "compare a long prompt of the same kind of task; see the draft's positions and rotary scaling",
            numbers,
        )
    return Finding(name, "ok", f"{shown}{field}", numbers=numbers)


def quantization(case: Case) -> Finding:
    """Whether the target is quantized: hardly ever the cause, so it comes late."""
    name, run = "quantization", case.run
    declared = case.target.quantization if case.target is not None else None
    if declared is None and run is None and case.target is None:
        return Finding(name, "unknown", case.no_files or _NO_RUN)
    method = run.quantization if run is not None else None
    if method is None and declared is not None:
        method = str(declared.get("quant_method") or declared.get("quant_algo") or "declared")
    kv = run.kv_cache_dtype if run is not None else None
    numbers = {"weights": method, "kv_cache_dtype": kv}
    cache = "" if kv in (None, "auto") else f", KV cache {kv}"
    if method is None:
        who = "the server names no quantization" if case.target is None else "the target's weights are not quantized"
        return Finding(name, "ok", f"{who}{cache}", numbers=numbers)
    return Finding(
        name,
        "ok",
        f"{method}{cache}: hardly the cause. In a field report a bfloat16 head instead of a quantized one moved the "
        "accept length from 2.50 to 2.56; INT4 against NVFP4 was 2.51 to 2.50",
        numbers=numbers,
    )


def temperature(case: Case) -> Finding:
    """Greedy or sampled: sampling accepts less."""
    name, run = "temperature", case.run
    if run is None:
        return Finding(name, "unknown", _NO_RUN, _RECORD)
    warm = [t for t in run.temperatures if t > 0]
    numbers = {"temperatures": list(run.temperatures)}
    if warm:
        return Finding(
            name,
            "suspicious",
            f"prompts are sampled at temperature {max(warm):g}: less is accepted than greedily",
            "compare at temperature 0",
            numbers,
        )
    own = case.target.generation.get("temperature") if case.target is not None else None
    note = (
        f"; clients that send no temperature may get the model's own, {own:g}, and accept less"
        if isinstance(own, int | float) and own > 0
        else ""
    )
    return Finding(name, "ok", f"greedy in this run{note}", numbers=numbers)


def unmeasured(name: str, case: Case) -> Finding:
    """There is no accept length to look at, and why."""
    if case.run is None:
        return Finding(name, "unknown", _NO_RUN, _RECORD)
    return Finding(name, "unknown", "the run has no accept length")
