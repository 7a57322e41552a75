"""How servers are known to fail: the wording that gives it away, and what helps. Data for `diagnosis`.

Sources of the wording: [F] field reports on SGLang 0.5.17 and 0.5.19; [S] SGLang's own sources, 0.5.17, 0.5.19 and
0.5.23; [R] a log recorded from 0.5.19; [I] public issues, named where used. Entries stand in order of priority: what
causes other failures comes before what it causes.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """``pattern`` is searched for in the log, ``^`` and ``$`` meaning lines. ``{1}`` and so on in the texts stand for
    its groups. ``only_fatal`` looks only at the lines that ended the server: for wording that also occurs in
    warnings. A ``refusal`` concerns one request, the server lives on: it counts only where nothing ended the server.
    """

    name: str
    pattern: re.Pattern[str]
    what: str
    why: str
    remedy: str
    only_fatal: bool = False
    refusal: bool = False


def _known(
    name: str, pattern: str, what: str, why: str, remedy: str, *, only_fatal: bool = False, refusal: bool = False
) -> KnownFailure:
    return KnownFailure(name, re.compile(pattern, re.M), what, why, remedy, only_fatal, refusal)


KNOWN: tuple[KnownFailure, ...] = (
    # [F] [S] mem_cache/unified_cache/components/mamba*.py; [I] sgl-project/sglang PR #40128, #33773
    _known(
        "mamba-slots",
        r"Can not alloc mamba cache",
        "the recurrent-state cache ran out of slots, and SGLang ends the whole server then",
        "Each chunk of a long prompt keeps a state for a moment, each speculative request holds several, and the "
        "hierarchical cache locks more.",
        "fewer requests at once (max-running-requests) or a larger chunked-prefill-size; changing "
        "max-mamba-cache-size shifts how many requests run, so repeat the long prompts two at a time after it; without "
        "enable-hierarchical-cache, or with disable-radix-cache = true, states are not kept at all",
    ),
    # [S] mem_cache/kv_cache_configurator.py
    _known(
        "no-state-slots",
        r"state cache is too small to serve\s+any requests.*?max_mamba_cache_size=(-?\d+), mamba_ratio=(\d+)",
        "max-mamba-cache-size = {1} is not enough for a single request, which takes {2} slots",
        "A hybrid model keeps several recurrent states for each request.",
        "set max-mamba-cache-size to {2} for every request that should run at once",
    ),
    _known(
        "no-state-memory",
        r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache",
        "the weights leave no GPU memory for the recurrent-state cache",
        "A hybrid model needs states besides the KV pool; speculation multiplies them by the draft tokens.",
        "raise mem-fraction-static, lower max-running-requests, draft fewer tokens, or set mamba-ssm-dtype = "
        '"bfloat16"',
    ),
    # [F]; torch, c10/cuda/CUDACachingAllocator.cpp
    _known(
        "graph-capture-memory",
        r"num_active_captures_ > 0 INTERNAL ASSERT FAILED|markCaptureEnd called with no captures in progress",
        "the GPU ran out of memory while capturing CUDA graphs",
        "The message looks like a bug of PyTorch, but it is what a capture leaves behind that had no memory.",
        'set cuda-graph-backend-prefill = "disabled" (prefill was as fast without, and the server starts sooner), or '
        "lower mem-fraction-static a little (0.92 instead of 0.93)",
    ),
    # [I] sgl-project/sglang #5285, vllm #49475: torch.OutOfMemoryError, torch.cuda.OutOfMemoryError
    _known(
        "out-of-memory",
        r"CUDA out of memory\.(?: Tried to allocate ([\d.]+ \w+))?",
        "the GPU ran out of memory",
        "",
        "",
    ),
    # [S] mem_cache/kv_cache_configurator.py, model_executor/pool_configurator.py, managers/tp_worker.py
    _known(
        "no-pool-memory",
        r"Loaded weights leave no GPU memory for the KV cache|Memory pool size is too small"
        r"|Not enough memory\. Please try to increase --mem-fraction-static",
        "the loaded weights leave no GPU memory for the KV pool",
        "Target and draft weights count against mem-fraction-static; what is left becomes the pool.",
        "raise mem-fraction-static, use a smaller (quantized) draft or target, or spread over more cards with tp_size",
    ),
    # [R] the 0.5.19 server died of it; torch, aten/src/ATen/native/cuda/Indexing.cu and IndexKernelUtils.cu. On the
    # CPU [R] it is an IndexError of the embedding. [I] sgl-project/sglang #13051: also seen from a bug in speculation.
    _known(
        "token-id",
        r"device-side assert triggered|Assertion `(?:srcIndex < srcSelectDimSize|ind >= ?0 && ind < ind_dim_size)"
        r"|^IndexError: index out of range in self",
        "an index was out of range on the device: most likely a token id outside the model's vocabulary was sent",
        "SGLang does not check ids, and such a one ends the whole server, not just the request.",
        "check that the prompts were encoded with this model's tokenizer (`lossless` checks ids itself); if they were, "
        "it is a bug in the server: start it with CUDA_LAUNCH_BLOCKING=1 to see where",
    ),
    # [S] models/dflash.py ("DFlash2 selector" in 0.5.19, "DFlash candidate top-k" in 0.5.23); [F]
    _known(
        "dflash-lm-head",
        r"requires a dense FP16/BF16/FP32 target lm_head",
        "the DFlash2 draft needs the target's output head (lm_head) as dense 16- or 32-bit weights, but it is packed",
        "The draft multiplies its hidden states with that matrix.",
        "use SGLang 0.5.19 or newer, which takes some quantized heads (sgl-project/sglang PR #35496), or a target "
        "whose lm_head is on the quantization's ignore list",
    ),
    # [S] speculative/dflash_worker_v2.py, speculative/dflash_utils.py, models/dflash.py
    _known(
        "draft-mismatch",
        r"(DFLASH (?:mask_token_id is outside|target_layer_ids contains|config mismatch"
        r"|fc\.weight shape mismatch|target_hidden feature dim mismatch)[^\n]*)",
        "the draft does not belong to this target",
        "Its configuration and the target disagree about the vocabulary, the layers or the width.",
        "use the draft that was trained for exactly this target; `lossless profiles check` compares the two without "
        "starting anything",
    ),
    # [S] speculative_hook.py
    _known(
        "draft-not-given",
        r"(\w+)(?: dense)? speculative decoding requires\s+setting --speculative-draft-model-path",
        "{1} needs a draft model, and none is given",
        "Only algorithms such as NEXTN find their draft in the target's own checkpoint.",
        "set `draft` of the variant to the draft's folder or hub id",
    ),
    # [R] model_loader/utils.py, [S] models/registry.py; [F] 0.5.17 has no DFlash2
    _known(
        "dflash2-unsupported",
        r"(?:Cannot find model module\. '|Model architectures \[[^\]\n]*)DFlash2DraftModel\b",
        "this SGLang does not know DFlash2 drafts",
        "They came with sgl-project/sglang PR #35371, after 0.5.17.",
        "use SGLang 0.5.19 or newer for this variant",
    ),
    _known(
        "model-unsupported",
        r"Cannot find model module\. '(\w+)'|Model architectures (\[[^\]\n]*\]) are not supported",
        "this SGLang does not know the model architecture {1}{2}",
        "It is either newer than this version, or `architectures` in the model's config.json is wrong.",
        "upgrade SGLang, or correct the model's config.json",
    ),
    # [S] speculative/spec_info.py [R]; argparse, where the version has a fixed list
    _known(
        "unknown-algorithm",
        r"Unknown speculative algorithm name: (\S+)|argument --speculative-algorithm: invalid choice: '?(\w+)",
        "this SGLang does not know the speculative algorithm {1}{2}",
        "The name is misspelled, or the algorithm is newer than this version.",
        "correct `algorithm` of the variant, or upgrade SGLang",
    ),
    # [S] 0.5.17 speculative/dflash_utils.py: the request is refused, the server lives; lifted by PR #33459
    _known(
        "dflash-logprobs",
        r"DFLASH speculative decoding does not support return_logprob",
        "this SGLang cannot give logprobs with DFLASH",
        "0.5.17 refuses such requests; 0.5.19 and newer answer them.",
        "upgrade SGLang; the verdicts themselves need logprobs of the baseline only",
        refusal=True,
    ),
    # [F] the download goes past HF_ENDPOINT; [I] huggingface/xet-core #404
    _known(
        "hub-xet",
        r"(?:CAS Client Error|CAS service error|cas-server\.xethub)[^\n]*(?:\n[^\n]*){0,2}?401 Unauthorized"
        r"|401 Unauthorized[^\n]*(?:\n[^\n]*){0,2}?cas-server\.xethub",
        "downloading the model failed: the Xet storage of the hub answered 401",
        "The Xet client goes past a mirror set by HF_ENDPOINT, straight to the hub's own storage.",
        "set HF_HUB_DISABLE_XET=1 (in `env` of the profile), or download the model beforehand and give its folder",
    ),
    # [I] huggingface_hub errors; a gated or private repository
    _known(
        "hub-refused",
        r"GatedRepoError|Access to model \S+ is restricted|Cannot access gated repo|401 Client Error[^\n]*huggingface"
        r"|RepositoryNotFoundError|is not a local folder and is not a valid model identifier[^\n]*",
        "the model hub does not give out the model",
        "Its id is wrong, or it is private or gated and no token with access to it is set.",
        "check the id, set HF_TOKEN in your shell (never in the profile), or give the model's folder",
    ),
    # [R] HF_HUB_OFFLINE=1 and an empty cache
    _known(
        "hub-unreachable",
        r"We couldn't connect to 'https?://[^']*' to load the files|LocalEntryNotFoundError"
        r"|Max retries exceeded with url[^\n]*huggingface|OfflineModeIsEnabled",
        "the model is not on this machine, and the model hub could not be reached",
        "The machine has no way out, HF_HUB_OFFLINE is set, or the mirror in HF_ENDPOINT does not answer.",
        "download the model beforehand (hf download ID --local-dir DIR) and give its folder, or set HF_ENDPOINT",
    ),
    # [R] transformers takes a folder that is not there for a hub id
    _known(
        "no-model-folder",
        r"Repo id must (?:be in the form|use alphanumeric)[^\n]*?: '([^'\n]+)'",
        "there is no folder {1}",
        "A path that does not exist is taken for the id of a model on the hub.",
        "correct the path in the profile",
    ),
    _known(
        "weight-files",
        r"references \d+ shard file\(s\) missing from|Cannot find any model weights with"
        r"|SafetensorError: Error while deserializing header|^FileNotFoundError: [^\n]*\.safetensors[^\n]*",
        "the model's weight files are missing or broken",
        "A download that was cut off, or files that are pointers of Git LFS instead of weights.",
        "`lossless profiles check` names the file; download the model again",
    ),
    # torch; [R] kit for an sm_90 card run elsewhere
    _known(
        "no-kernel-image",
        r"no kernel image is available for execution on the device",
        "a kernel library has no code for this GPU",
        "PyTorch, sgl_kernel or FlashInfer was built for other GPU generations.",
        "install builds for this card's generation (compute capability: nvidia-smi --query-gpu=compute_cap "
        "--format=csv), or choose other backends (attention-backend, linear-attn-prefill-backend)",
    ),
    # [I] sgl-project/sglang #18203, #29646, PR #30562
    _known(
        "sgl-kernel",
        r"\[sgl_kernel\] CRITICAL: Could not load any common_ops library",
        "the kernel library sgl_kernel cannot be loaded",
        "It was built for another PyTorch or CUDA, or a library it needs is missing; the log lists what was tried.",
        "install the versions that belong together: pip install --upgrade sglang, which names them all",
    ),
    # [R] a NEXTN server without it ended while capturing; [I] sgl-project/sglang #29738 (NameError)
    _known(
        "deep-gemm",
        r"No module named 'deep_gemm'|name 'deep_gemm' is not defined",
        "the kernel library deep_gemm is missing",
        "On Hopper and newer cards SGLang uses it, among others when NEXTN captures its CUDA graphs.",
        "pip install sgl-deep-gemm, in the version that this SGLang asks for",
        only_fatal=True,
    ),
    _known(
        "no-sglang",
        r"No module named '?sglang\b",
        "that Python has no SGLang",
        "The server is started with the Python that runs the suite unless something else is said.",
        "set LOSSLESS_SGLANG_PYTHON to a Python that has it, or `command` in the profile",
    ),
    _known(
        "missing-module",
        r"^ModuleNotFoundError: No module named '([^']+)'",
        "the Python package {1} is missing in the server's environment",
        "",
        "install it there, or install SGLang again with all it asks for",
        only_fatal=True,
    ),
    _known(
        "broken-module",
        r"^ImportError: (\S[^\n]*)",
        "a Python package in the server's environment cannot be imported ({1})",
        "Usually two packages whose versions do not go together, or a shared library that is missing.",
        "install SGLang again with the versions it asks for",
        only_fatal=True,
    ),
    # argparse [R]; the reference engine says it as a usage error of its own
    _known(
        "unknown-flag",
        r"error: unrecognized arguments: ([^\n]+)",
        "the server does not know {1}",
        "The flag is misspelled, or this SGLang is older or newer than the one that has it.",
        "correct `args` in the profile",
    ),
    _known(
        "flag-value",
        r"error: argument (--[\w-]+)[^:\n]*: ([^\n]+)",
        "the server refuses the value of {1} ({2})",
        "",
        "correct `args` in the profile",
    ),
    # uvicorn [R]; [S] utils/network.py
    _known(
        "port-in-use",
        r"address already in use|port (?:at )?(\d+ )?is (?:not available|already in use|used by a process already)",
        "the server's port is taken by another process",
        "",
        "end the other server, or run it again: another port is chosen each time",
    ),
    # [S] entrypoints/engine.py
    _known(
        "killed",
        r"scheduler died during initialization \(exit code: -9\)|crashed with exit code -9\b",
        "the server was killed from outside (SIGKILL)",
        "Usually by the kernel, because the machine ran out of main memory (not GPU memory).",
        "look with dmesg -T | grep -i oom; start fewer servers side by side (parallel_servers) or free memory",
    ),
)
