"""Whether a recorded prompt fits into a server, by what the server says of itself."""

from collections.abc import Mapping
from typing import Any

from lossless.record.store import RecordedPrompt
from lossless.servers.capacity import pool_problem
from lossless.servers.resolved_facts import resolved_facts


def no_room(server_info: Mapping[str, Any], prompt: RecordedPrompt) -> str | None:
    """Why a prompt does not fit, None where it does or nothing is known.

    SGLang shortens max_new_tokens without a word where context or pool end, and a variant's pool is the smaller one:
    that would look like a divergence.
    """
    facts = resolved_facts(server_info)
    return pool_problem(facts.kv_pool_tokens, facts.context_length, len(prompt.ids), prompt.sampling.max_new_tokens)
