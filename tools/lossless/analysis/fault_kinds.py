"""The kinds of fault a hint may name, with public reports of each: where a reader may look for the same symptom."""

NEAR_TIE = "near-tie numerics"
STOP = "stop inside an accepted run"
OFF_BY_ONE = "off by one at accept"
UNVERIFIED = "first draft token unverified"
KV_ROLLBACK = "KV rollback"
RECURRENT = "recurrent state rollback"
SHORT = "prompt as short as the draft"
ORDER = "order dependence"
BATCH = "batch mixing"
CACHE = "prefix-cache hit"
CHUNK = "chunked prefill"
PAGE = "sliding window / page boundary"
PENALTIES = "penalties"
GRAMMAR = "grammar / JSON"
LOGPROBS = "logprobs misaligned"
OFF = "speculation silently off"
COUNTING = "counting"
MASK = "mask token emitted for real"
QUANTIZED_KV = "quantised KV"
DIES = "server dies"
NOT_REPEATABLE = "not repeatable"

REPORTS: dict[str, tuple[str, ...]] = {
    NEAR_TIE: ("sglang #38009", "vllm #7627", "vllm #54928", "transformers #39421", "llama.cpp #25618"),
    STOP: ("sglang #31599", "sglang PR #17260", "transformers #47912", "vllm PR #47616"),
    OFF_BY_ONE: ("transformers #30042", "transformers #30413"),
    UNVERIFIED: ("lattice #243",),
    KV_ROLLBACK: ("vllm #46834", "TensorRT-LLM #11125", "TensorRT-LLM PR #17110"),
    RECURRENT: ("vllm #39273", "vllm #53505", "vllm #53051", "sglang PR #37794"),
    SHORT: ("vllm #53051",),
    ORDER: ("vllm #36872",),
    BATCH: ("sglang #32666", "sglang #33397"),
    CACHE: ("vllm #47194", "vllm-ascend #17338", "sglang #8726"),
    CHUNK: ("sglang PR #26800",),
    PAGE: ("transformers PR #48280",),
    PENALTIES: ("sglang #28179", "sglang PR #33643", "vllm #18902", "TensorRT-LLM PR #17701"),
    GRAMMAR: ("sglang #9187", "sglang #6441", "sglang PR #21723"),
    LOGPROBS: ("sglang #17349", "sglang #10660", "vllm #17876"),
    OFF: ("sglang #24795", "sglang PR #27908", "llama.cpp #25345"),
    COUNTING: ("sglang #39826",),
    MASK: ("z-lab/dflash #73",),
    QUANTIZED_KV: ("vllm PR #40914",),
    DIES: (),
    NOT_REPEATABLE: ("sparkring #161",),
}
