"""Rules of localization about drafting, verification and rollback: what went wrong once decoding had begun."""

from collections.abc import Iterator

from lossless.analysis import fault_kinds as kinds
from lossless.analysis.hint_cases import FEW, Case, Rule, Seen, Suspicion
from lossless.verdict import Reason

CLOSE = 4.0  # times epsilon: a distance that rounding might still explain


def acceptance(case: Case, seen: Seen) -> Iterator[Suspicion]:
    if not case.answer or not case.answer.spec_verify_ct or case.position is None:
        return
    lists = [c.answer.accept_histogram for c in seen.plain.values() if c.answer and c.answer.accept_histogram]
    steps, none = sum(map(sum, lists)), sum(h[0] for h in lists)
    partly = sum(sum(h[1:-1]) for h in lists)
    plain = [c for c in seen.plain.values() if c.length > 1]
    early = [c for c in plain if c.divergent and c.position is not None and c.position <= (seen.width or 1)]
    if steps >= 10 and none == 0 and partly:
        yield Suspicion(
            88,
            kinds.UNVERIFIED,
            "no first draft token is ever rejected, so the first one may be accepted unverified",
            f"{steps} verify steps, none accepted 0 drafts although {partly} rejected a later one",
            "come from a server that never rejects a first draft token",
        )
        yield Suspicion(
            76, kinds.OFF_BY_ONE, "one draft token too many may be accepted", f"{steps} verify steps, none accepted 0",
            "come from a server that never accepts 0 drafts",
        )  # fmt: skip
    if len(plain) >= FEW and len(early) == len(plain):
        yield Suspicion(
            89,
            kinds.UNVERIFIED,
            "every prompt goes wrong within its first verified block: acceptance may be off or simulated",
            f"all {len(plain)} plain answers differ by position {max(c.position or 0 for c in early)}",
            "differ within the first verified block",
        )
    if 1 <= case.position <= (seen.width or 1):
        yield Suspicion(
            68 if case.position == 1 else 46 if none else 56,  # where first drafts are rejected, they are verified
            kinds.UNVERIFIED,
            "the first difference can lie in the first verified block, before there is anything to roll back",
            f"position {case.position}, a verified block has {seen.width} tokens",
            "differ within the first verified block",
        )


def missing_or_doubled(case: Case, seen: Seen) -> Iterator[Suspicion]:
    left, right = case.judged.left, case.judged.right
    if left is None or right is None or not case.judged.verdict.differences:
        return
    lost = _lost_token(case)
    if lost is not None:
        same = [c for c in seen.divergent if _lost_token(c) == lost]
        others = [c for c in seen.divergent if _lost_token(c) not in (None, lost)]
        if lost == seen.mask_id or (len({c.prompt_id for c in same}) > 1 and not others):
            yield Suspicion(
                90 if lost == seen.mask_id or len(same) == len(seen.divergent) else 74,
                kinds.MASK,
                "one and the same token is missing, as if it were taken for the draft's mask",
                f"token {lost} is missing in {len(same)} answers, no other one is",
                f"lack token {lost}",
            )
        yield Suspicion(
            80,
            kinds.OFF_BY_ONE,
            "a single token is missing, as when the bonus token is dropped",
            f"token {lost} is missing at position {case.position}, and the output goes on as if it were there",
            "lack a single token",
        )
    d = case.judged.verdict.differences[0]
    t = d.variant_start
    if d.baseline_end == d.baseline_start and d.variant_end == t + 1 and right.ids[t] in right.ids[max(0, t - 1) : t]:
        yield Suspicion(
            84,
            kinds.OFF_BY_ONE,
            "a token comes twice, as when the bonus token is put out again",
            f"token {right.ids[t]} at position {t} repeats the one before it, and the output goes on after it",
            "hold a token twice",
        )


def _lost_token(case: Case) -> int | None:
    """The token that alone is missing at the first difference, with the same text after it; None otherwise."""
    if case.judged.left is None or not case.judged.verdict.differences:
        return None
    d = case.judged.verdict.differences[0]
    one = d.variant_end == d.variant_start and d.baseline_end == d.baseline_start + 1
    return case.judged.left.ids[d.baseline_start] if one and d.reconverged_for else None


def state(case: Case, seen: Seen) -> Iterator[Suspicion]:
    """What is left when tokens are wrong: state that a rejection or an acceptance should have moved."""
    if case.position is None or case.position < 2 or not case.answer or not case.answer.spec_verify_ct:
        return
    if case.judged.verdict.reason not in (Reason.GAP, Reason.REGRET, Reason.BUDGET, Reason.UNPROVEN_FORK):
        return
    tail = f"right up to position {case.position}"
    if case.rejected is not False:
        clean = sum(1 for c in seen.plain.values() if c.passed and c.rejected is False)
        more = f"; {clean} answers without a rejection pass" if clean else ""
        for weight, kind, what in ((52, kinds.KV_ROLLBACK, "KV cache"), (51, kinds.RECURRENT, "recurrent state")):
            yield Suspicion(
                weight + 5 * seen.contrast(lambda c: c.rejected is True, seen.plain.values()),
                kind, f"rejected tokens may be left in the {what}", tail + more,
                "go wrong after a good start",
            )  # fmt: skip
    if case.accepted is not False:
        yield Suspicion(
            50 + 5 * seen.contrast(lambda c: c.accepted is True, seen.plain.values()),
            kinds.OFF_BY_ONE, "a position may be off by one once drafts were accepted", tail,
            "go wrong after a good start",
        )  # fmt: skip


def rounding(case: Case, seen: Seen) -> Iterator[Suspicion]:
    verdict = case.judged.verdict
    if verdict.regret is None or verdict.epsilon is None or verdict.reason not in (Reason.GAP, Reason.REGRET):
        return
    largest = verdict.regret.largest
    if largest > CLOSE * verdict.epsilon.value:
        return
    evidence = f"largest regret {largest:.3g} nats, epsilon {verdict.epsilon.value:.3g}"
    yield Suspicion(
        66, kinds.NEAR_TIE, "the wrong tokens are close calls: rounding may be coarser than the noise floor shows",
        evidence, "are close calls",
    )  # fmt: skip
    if "fp8" in seen.kv_dtype or "fp4" in seen.kv_dtype:
        yield Suspicion(
            67, kinds.QUANTIZED_KV, f"close calls with a {seen.kv_dtype} KV cache", evidence, "are close calls"
        )


RULES: tuple[Rule, ...] = (acceptance, missing_or_doubled, state, rounding)
