"""What is asked of both engines, and what SGLang 0.5.19 answered (recorded on the CPU, tiny model, float32)."""

from dataclasses import dataclass, field
from typing import Any

EOS = 1

ITALY = [2, 209, 1631, 314, 271, 1401, 315, 571, 301, 99, 41, 1, 209, 3, 209]
"""What is the capital of Italy? (with the chat template)"""
ITALY_CHAT = "<|user|>\nWhat is the capital of Italy?<|end|>\n<|assistant|>\n"
CHINESE = [2, 209, 3042, 1813, 770, 113, 3931, 1646, 1, 209, 3, 209]
"""The same question in Chinese: its answer has characters of several tokens."""
COUNT = [2, 209, 1843, 698, 231, 27, 300, 231, 28, 26, 24, 1, 209, 3, 209]
"""Count from 1 to 20."""

ITALY_SAYS = [307, 1401, 315, 571, 301, 99, 314, 1668, 24, EOS]
ITALY_RUNS_ON = [*ITALY_SAYS, 209, 0, 2, 209, 510, 270, 1091, 835, 1811, 2639, 406, 1245, 271, 2585]
CHINESE_SAYS = [3042, 1813, 770, 113, 1860, 1488, 256, 2524, 443, EOS]
CHINESE_TEXTS = (
    "", "意", "意大", "意大\ufffd", "意大利", "意大利的首都是", "意大利的首都是\ufffd", "意大利的首都是罗",
    "意大利的首都是罗马", "意大利的首都是罗马。",
)  # fmt: skip
"""The text at each max_new_tokens; a cap inside a character shows as U+FFFD."""
COUNT_SAYS = [
    27, 22, 231, 28, 22, 231, 29, 22, 231, 30, 22, 231, 31, 22, 231, 32, 22, 231, 33, 22, 231, 34, 22, 231, 35, 22,
    231, 27, 26, 22, 231, 27, 27, 22, 231, 27, 28, 22, 231, 27, 29, 24, EOS,
]  # fmt: skip


def stop(matched: int | str) -> dict[str, Any]:
    return {"type": "stop", "matched": matched}


def length(tokens: int) -> dict[str, Any]:
    return {"type": "length", "length": tokens}


@dataclass(frozen=True)
class End:
    """One request and how its answer ends: ``says`` are the output ids, the stop included."""

    id: str
    prompt: list[int]
    params: dict[str, Any]
    finish: dict[str, Any]
    says: list[int]
    text: str


ENDS = (
    End("eos", ITALY, {"max_new_tokens": 32}, stop(EOS), ITALY_SAYS, "The capital of Italy is Rome."),
    End("none", ITALY, {"max_new_tokens": 0}, length(0), [], ""),
    End("none-with-a-stop", ITALY, {"max_new_tokens": 0, "stop": ["x"]}, length(0), [], ""),
    End("no-cap", ITALY, {"max_new_tokens": None}, stop(EOS), ITALY_SAYS, "The capital of Italy is Rome."),
    End("eos-at-the-cap", ITALY, {"max_new_tokens": 10}, stop(EOS), ITALY_SAYS, "The capital of Italy is Rome."),
    End("eos-after-the-cap", ITALY, {"max_new_tokens": 9}, length(9), ITALY_SAYS[:9], "The capital of Italy is Rome."),
    End(
        "eos-shown",
        ITALY,
        {"max_new_tokens": 32, "no_stop_trim": True, "skip_special_tokens": False},
        stop(EOS),
        ITALY_SAYS,
        "The capital of Italy is Rome.<|end|>",
    ),
    End(
        "eos-kept-but-special",
        ITALY,
        {"max_new_tokens": 32, "no_stop_trim": True},
        stop(EOS),
        ITALY_SAYS,
        "The capital of Italy is Rome.",
    ),
    End(
        "eos-trimmed-although-special-ones-show",
        ITALY,
        {"max_new_tokens": 32, "skip_special_tokens": False},
        stop(EOS),
        ITALY_SAYS,
        "The capital of Italy is Rome.",
    ),
    End(
        "ignore-eos",
        ITALY,
        {"max_new_tokens": 24, "ignore_eos": True},
        length(24),
        ITALY_RUNS_ON,
        "The capital of Italy is Rome.\n\nWrite a Python function handle_prices that returns the sum",
    ),
    End(
        "ignore-eos-special-ones-shown",
        ITALY,
        {"max_new_tokens": 24, "ignore_eos": True, "skip_special_tokens": False},
        length(24),
        ITALY_RUNS_ON,
        "The capital of Italy is Rome.<|end|>\n<|endoftext|><|user|>\n"
        "Write a Python function handle_prices that returns the sum",
    ),
    End(
        "ignore-eos-also-as-a-stop-token",
        ITALY,
        {"max_new_tokens": 24, "ignore_eos": True, "stop_token_ids": [EOS]},
        length(24),
        ITALY_RUNS_ON,
        "The capital of Italy is Rome.\n\nWrite a Python function handle_prices that returns the sum",
    ),
    End(
        "stop-token",
        ITALY,
        {"max_new_tokens": 16, "stop_token_ids": [24]},
        stop(24),
        ITALY_SAYS[:9],
        "The capital of Italy is Rome",
    ),
    End(
        "stop-token-shown",
        ITALY,
        {"max_new_tokens": 16, "stop_token_ids": [24], "no_stop_trim": True},
        stop(24),
        ITALY_SAYS[:9],
        "The capital of Italy is Rome.",
    ),
    End(
        "stop-token-at-the-cap",
        ITALY,
        {"max_new_tokens": 9, "stop_token_ids": [24]},
        stop(24),
        ITALY_SAYS[:9],
        "The capital of Italy is Rome",
    ),
    End("two-stop-tokens", COUNT, {"max_new_tokens": 48, "stop_token_ids": [24, 27]}, stop(27), COUNT_SAYS[:1], ""),
    End(
        "stop-string",
        COUNT,
        {"max_new_tokens": 48, "stop": ["11"]},
        stop("11"),
        COUNT_SAYS[:33],
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ",
    ),
    End(
        "stop-string-alone",
        COUNT,
        {"max_new_tokens": 48, "stop": "11"},
        stop("11"),
        COUNT_SAYS[:33],
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ",
    ),
    End(
        "stop-string-shown",
        COUNT,
        {"max_new_tokens": 48, "stop": ["11"], "no_stop_trim": True},
        stop("11"),
        COUNT_SAYS[:33],
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11",
    ),
    End(
        "stop-string-at-the-cap",
        COUNT,
        {"max_new_tokens": 22, "stop": ["8"]},
        stop("8"),
        COUNT_SAYS[:22],
        "1, 2, 3, 4, 5, 6, 7, ",
    ),
    End(
        "stop-string-after-the-cap",
        COUNT,
        {"max_new_tokens": 21, "stop": ["8"]},
        length(21),
        COUNT_SAYS[:21],
        "1, 2, 3, 4, 5, 6, 7, ",
    ),
    End("stop-string-first", ITALY, {"max_new_tokens": 16, "stop": ["The"]}, stop("The"), ITALY_SAYS[:1], ""),
    End("stop-string-empty", ITALY, {"max_new_tokens": 48, "stop": [""]}, stop(""), ITALY_SAYS[:1], "The"),
    End(
        "stop-string-none",
        ITALY,
        {"max_new_tokens": 48, "stop": []},
        stop(EOS),
        ITALY_SAYS,
        "The capital of Italy is Rome.",
    ),
    End(
        "stop-string-half-a-character",
        CHINESE,
        {"max_new_tokens": 16, "stop": ["罗"]},
        stop("罗"),
        CHINESE_SAYS[:7],
        "意大利的首都是",
    ),
    End(
        "two-stop-strings-the-listed-order-counts",
        COUNT,
        {"max_new_tokens": 48, "stop": ["9, 10", "10"]},
        stop("9, 10"),
        COUNT_SAYS[:29],
        "1, 2, 3, 4, 5, 6, 7, 8, ",
    ),
    End(
        "two-stop-strings-the-other-order",
        COUNT,
        {"max_new_tokens": 48, "stop": ["10", "9, 10"]},
        stop("10"),
        COUNT_SAYS[:29],
        "1, 2, 3, 4, 5, 6, 7, 8, 9, ",
    ),
    End(
        "string-before-token",
        ITALY,
        {"max_new_tokens": 16, "stop": ["Rome."], "stop_token_ids": [24]},
        stop("Rome."),
        ITALY_SAYS[:9],
        "The capital of Italy is ",
    ),
    End(
        "string-before-length",
        ITALY,
        {"max_new_tokens": 9, "stop": ["Rome."]},
        stop("Rome."),
        ITALY_SAYS[:9],
        "The capital of Italy is ",
    ),
)

ADJUSTED = (
    End(
        "min-new-tokens",
        ITALY,
        {"max_new_tokens": 32, "min_new_tokens": 20},
        stop(EOS),
        [*ITALY_SAYS[:9], 209, 2, 209, 510, 270, 1091, 835, 1811, 2720, 406, 1245, 271, 2585, 315, 270, 546, 24, EOS],
        "The capital of Italy is Rome.\n\nWrite a Python function handle_scores that returns the sum of a list.",
    ),
    End(
        "min-new-tokens-is-the-cap",
        ITALY,
        {"max_new_tokens": 20, "min_new_tokens": 20},
        length(20),
        [*ITALY_SAYS[:9], 209, 2, 209, 510, 270, 1091, 835, 1811, 2720, 406, 1245],
        "The capital of Italy is Rome.\n\nWrite a Python function handle_scores that returns",
    ),
    End(
        "min-new-tokens-hides-stop-tokens",
        COUNT,
        {"max_new_tokens": 48, "min_new_tokens": 12, "stop_token_ids": [22]},
        stop(EOS),
        [27, 562, 231, 28, 26, 339, 231, 28, 28, 24, 320, 695, 314, 231, 28, 28, 24, EOS],
        "1 - 20 = 22. The answer is 22.",
    ),
    End(
        "min-new-tokens-spares-stop-strings",
        COUNT,
        {"max_new_tokens": 48, "min_new_tokens": 36, "stop": ["5"]},
        stop("5"),
        COUNT_SAYS[:13],
        "1, 2, 3, 4, ",
    ),
    End(
        "frequency-penalty",
        COUNT,
        {"max_new_tokens": 48, "frequency_penalty": 1.5},
        stop(EOS),
        [*COUNT_SAYS[:13], 24, EOS],
        "1, 2, 3, 4, 5.",
    ),
    End(
        "presence-penalty",
        COUNT,
        {"max_new_tokens": 48, "presence_penalty": 1.5},
        stop(EOS),
        [*COUNT_SAYS[:37], 24, EOS],
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.",
    ),
    End(
        "repetition-penalty",
        COUNT,
        {"max_new_tokens": 48, "repetition_penalty": 1.3},
        stop(EOS),
        [*COUNT_SAYS[:25], 24, EOS],
        "1, 2, 3, 4, 5, 6, 7, 8, 9.",
    ),
    End("logit-bias", ITALY, {"max_new_tokens": 8, "logit_bias": {"24": 100}}, length(8), [24] * 8, "........"),
)
"""Asked of baselines only: 0.5.19 itself answers otherwise under speculation (min_new_tokens and frequency_penalty
with NEXTN, all of them with DFLASH)."""


@dataclass(frozen=True)
class Refusal:
    """A request that is refused with 400 (or ``status``) and a message that starts with ``message``."""

    id: str
    params: dict[str, Any] = field(default_factory=dict)
    source: Any = field(default_factory=lambda: list(ITALY))
    options: dict[str, Any] = field(default_factory=dict)
    message: str = ""


REFUSALS = (
    Refusal("max-negative", {"max_new_tokens": -1}, message="max_new_tokens must be at least 0, got -1."),
    Refusal("min-negative", {"min_new_tokens": -1}, message="min_new_tokens must be in [0, max_new_tokens], got -1."),
    Refusal(
        "min-above-max",
        {"max_new_tokens": 4, "min_new_tokens": 8},
        message="min_new_tokens must be in [0, max_new_tokens(4)], got 8.",
    ),
    Refusal("frequency", {"frequency_penalty": 3.0}, message="frequency_penalty must be in [-2, 2], got 3.0."),
    Refusal("presence", {"presence_penalty": -2.5}, message="presence_penalty must be in [-2, 2], got -2.5."),
    Refusal("repetition", {"repetition_penalty": 0.0}, message="repetition_penalty must be in (0, 2]"),
    Refusal("temperature", {"temperature": -1}, message="temperature must be a non-negative finite number, got -1"),
    Refusal(
        "two-grammars",
        {"regex": "a+", "json_schema": "{}"},
        message="Only one of json_schema, regex, ebnf, or structural_tag can be set.",
    ),
    Refusal("no-ids", source=[], message="input_ids cannot be empty."),
    Refusal(
        "start-far-beyond",
        options={"return_logprob": True, "logprob_start_len": 500},
        message="req.logprob_start_len=500 is higher than the number of input tokens len(req.origin_input_ids)=15.",
    ),
)

MALFORMED = (
    ("cut-off", '{"input_ids": [1,2'),
    ("empty", ""),
    ("a-list", "[1,2]"),
    ("null", "null"),
    ("ids-a-string", '{"input_ids": "abc", "sampling_params": {"max_new_tokens": 4}}'),
    ("ids-strings", '{"input_ids": ["a", "b"], "sampling_params": {"max_new_tokens": 4}}'),
    ("ids-fractions", '{"input_ids": [1.5, 2.5], "sampling_params": {"max_new_tokens": 4}}'),
    ("ids-mixed", '{"input_ids": [2, [1]], "sampling_params": {"max_new_tokens": 4}}'),
    ("text-a-number", '{"text": 5, "sampling_params": {"max_new_tokens": 4}}'),
    ("params-a-string", '{"input_ids": [2], "sampling_params": "x"}'),
)
"""Bodies whose JSON or types are wrong; SGLang answers in another form than for wrong values."""

UNEXPECTED = (
    ("unknown-key", {"max_new_tokens": 4, "no_such_key": 1}),
    ("max-a-string", {"max_new_tokens": "4"}),
    ("list-for-one-prompt", [{"max_new_tokens": 3, "temperature": 0}]),
)
"""sampling_params on which SGLang stumbles: 500 instead of a refusal."""
