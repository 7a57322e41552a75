"""Whether what a server allocated is enough for what will be asked of it, before anything is sent. Pure."""

from lossless.profiles.request_room import Room
from lossless.servers.log_facts import LogFacts, MambaCap

GIB = 1024**3

# A draft that holds only its own weights was measured at 0.93 and 0.96 times its files; the case from the field was 6.5
# times. The absolute bound keeps small drafts out: the figure is a difference of free memory, and with other servers
# loading on the card it was off by 0.5 GB.
_DRAFT_TIMES, _DRAFT_EXCESS_GB = 2.0, 1.0


def pool_problem(
    kv_tokens: int | None, context_len: int | None, longest_prompt_tokens: int, max_new_tokens: int
) -> str | None:
    """Why the longest request will not fit, with a remedy; None where it fits or nothing is known.

    Args:
        kv_tokens: tokens the KV pool holds (``max_total_num_tokens``).
        context_len: the server's context length, tokens.
        longest_prompt_tokens: tokens of the longest prompt.
        max_new_tokens: the most new tokens asked for with it.
    """
    problem = Room(context_len, kv_tokens).problem(longest_prompt_tokens, max_new_tokens)
    if problem is None:
        return None
    if kv_tokens is not None and (context_len is None or kv_tokens < context_len):
        return (
            f"{problem}. The pool is what the weights, the draft and the state cache leave: raise "
            'mem-fraction-static, lower max-mamba-cache-size or set mamba-ssm-dtype = "bfloat16", use a smaller '
            "draft, or leave the long prompts out"
        )
    return f"{problem}. Raise context-length, or leave the long prompts out"


def draft_memory_problem(facts: LogFacts, draft_bytes: int) -> str | None:
    """Why a draft takes far more memory than its weights; None where it does not, or where the log does not say.

    Args:
        facts: of the variant's log.
        draft_bytes: bytes of the draft's own tensors (for NEXTN the ``mtp.*`` ones, not the whole checkpoint).
    """
    loaded, own = facts.draft_memory_gb, draft_bytes / GIB
    if loaded is None or draft_bytes <= 0 or loaded < own * _DRAFT_TIMES or loaded - own < _DRAFT_EXCESS_GB:
        return None
    kinds = ", ".join(dict.fromkeys(draft.type_name for draft in facts.drafts))
    pool = f"; the KV pool is left with {facts.kv_pool_tokens} tokens" if facts.kv_pool_tokens is not None else ""
    # Seen with Qwen3_5ForCausalLMMTP: 5.53 GB for 0.85 GB of files. Its constructor is the same in 0.5.17 to 0.5.23.
    return (
        f"the draft ({kinds}) took {loaded:.2f} GB for {own:.2f} GB of weights{pool}. A draft class that builds its "
        "own embedding and output head, to throw them away for the target's, does this; the KV pool is sized in "
        "between, so the memory stays unused. The answers are not affected. Remedy: make the class start with empty "
        "ones (torch.nn.Parameter(torch.empty(0))), or plan with the smaller pool"
    )


def slots_problem(cap: MambaCap | None, concurrency: int) -> str | None:
    """Why requests sent at once will wait for each other; None where the state cache holds enough of them.

    Args:
        cap: what the log says of it.
        concurrency: requests that are sent at once.
    """
    if cap is None or cap.running_requests >= concurrency:
        return None
    return (
        f"the server runs {cap.running_requests} of {concurrency} requests at once: {cap.slots} state slots, "
        f"{cap.slots_per_request} for each request. The others wait, so nothing is batched. Set max-mamba-cache-size = "
        f'{cap.slots_per_request * concurrency} or more (mamba-ssm-dtype = "bfloat16" halves what a slot takes)'
    )
