"""Whether a prompt and its answer fit into a server's context and KV pool. Pure arithmetic."""

from dataclasses import dataclass

# SGLang 0.5.17 to 0.5.23: `max_req_len = min(context_len, pool) - 1` (managers/tp_worker.py); an input of
# `max_req_len - 5` tokens or more is refused (managers/utils.py), and new tokens beyond `max_req_len - input - 1` are
# cut off without a word (managers/scheduler.py).
_INPUT_RESERVE = 7
_OUTPUT_RESERVE = 2


@dataclass(frozen=True, slots=True)
class Room:
    """What bounds one request: tokens of context, and tokens of the KV pool (None where nothing is known of it)."""

    context_len: int | None
    kv_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        """The smaller bound."""
        return min((bound for bound in (self.context_len, self.kv_tokens) if bound is not None), default=None)

    def problem(self, prompt_tokens: int, max_new_tokens: int) -> str | None:
        """Why a request would be refused or its answer cut short, in words; None where it fits."""
        room = self.tokens
        if room is None:
            return None
        pool = self.kv_tokens is not None and self.kv_tokens == room and self.kv_tokens != self.context_len
        where = f"the KV pool holds {room} tokens" if pool else f"the context length is {room} tokens"
        request = f"a prompt of {prompt_tokens} tokens with {max_new_tokens} new ones"
        if prompt_tokens + _INPUT_RESERVE > room or (not pool and prompt_tokens + max_new_tokens > room):
            return f"{where}: {request} is refused (HTTP 400)"
        if prompt_tokens + max_new_tokens + _OUTPUT_RESERVE > room:
            left = room - _OUTPUT_RESERVE - prompt_tokens
            return f"{where}: {request} is cut off after {left} new tokens"
        return None
