"""The JSON body of a ``/generate`` answer, with SGLang 0.5.19's fields in its order."""

import time
from typing import Any

from lossless.reference.generation import Generation


def answer(g: Generation, *, final: bool) -> dict[str, Any]:
    """``{"text", "output_ids", "meta_info"}`` of a finished request, or of one that is streaming."""
    finish = g.finish if final else None
    meta: dict[str, Any] = {
        "id": g.request.rid,
        "finish_reason": finish.to_json() if finish else None,
        "prompt_tokens": len(g.ids),
        "weight_version": "default",
        "num_retractions": 0,
    }
    if g.logprobs is not None:
        meta.update(_logprobs(g))
    count = len(g.output)
    details = {"device": g.cached, "host": 0} if g.cached else None
    meta |= {"reasoning_tokens": 0, "completion_tokens": count, "cached_tokens": g.cached}
    if finish is not None:
        meta["weight_versions"] = [{"version": "default", "start": 0, "end": count}]
    meta |= {"cached_tokens_details": details, "dp_rank": None}
    if finish is None:
        text = g.text.update(g.output)
    else:
        text = g.text.finish(g.output, finish.matched)
        meta["e2e_latency"] = time.perf_counter() - g.arrived
        meta |= _speculation(g, count)
        meta["response_sent_to_client_ts"] = time.time()
    body: dict[str, Any] = {"text": text, "output_ids": list(g.output), "meta_info": meta}
    return g.fault.answer(g, body) if final else body


def _logprobs(g: Generation) -> dict[str, Any]:
    kept = g.logprobs
    assert kept is not None
    output = list(kept.output_token)
    if kept.following is not None and g.models.drafter is not None:
        output = [kept.following]  # with speculation SGLang takes the token after a prefill-only request for an output
    out: dict[str, Any] = {
        "input_token_logprobs": list(kept.input_token),
        "output_token_logprobs": output,
        "output_token_logprobs_length": len(output),
    }
    if kept.ask.top:
        out |= {"input_top_logprobs": list(kept.input_top), "output_top_logprobs": list(kept.output_top)}
    if kept.ask.token_ids is not None:
        out |= {"input_token_ids_logprobs": list(kept.input_ids), "output_token_ids_logprobs": list(kept.output_ids)}
    return out


def _speculation(g: Generation, count: int) -> dict[str, Any]:
    """Only for a request that was verified at least once: a prompt answered by its prefill has no such fields."""
    drafter, tally = g.models.drafter, g.tally
    if drafter is None or not tally.steps:
        return {}
    proposed = tally.steps * (drafter.width - 1)
    return {
        "spec_accept_rate": tally.correct / proposed,
        "spec_accept_length": count / tally.steps,
        "spec_num_correct_drafts": tally.correct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": tally.steps,
        "spec_accepted_drafts": tally.correct,
        "spec_proposed_drafts": proposed,
        "spec_correct_drafts_histogram": list(tally.histogram),
        "spec_accept_histogram": list(tally.histogram),
    }
