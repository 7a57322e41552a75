"""Every known failure is named from the log it leaves, and nothing else is."""

from dataclasses import replace
from pathlib import Path

import pytest

from lossless.servers.diagnosis import Diagnosis, diagnose, explain
from lossless.servers.failure import Failure
from lossless.servers.known_failures import KNOWN
from lossless.servers.log_facts import parse_log

DATA = Path(__file__).parent / "data"
READY = "[2026-01-02 10:00:00] The server is fired up and ready to roll!\n"
DIED = "[2026-01-02 10:00:09] Scheduler hit an exception: Traceback (most recent call last):\n"
QUIT = "\n[2026-01-02 10:00:09] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"


def failure_log(name: str) -> str:
    return (DATA / "failures" / f"{name}.txt").read_text("utf-8")


# Logs that SGLang 0.5.19 itself wrote when it was started wrongly or fed wrongly, shortened.
RECORDED = {
    "unknown-flag": ("unknown-flag", "--speculative-draft-tokens 4"),
    "no-model": ("no-model-folder", "/models/tiny/nothing-here"),
    "draft-missing": ("no-model-folder", "/models/tiny/no-such-draft"),
    "hub-offline": ("hub-unreachable", "hub"),
    "unknown-algorithm": ("unknown-algorithm", "DFLASH9"),
    "dflash-no-draft": ("draft-not-given", "DFLASH needs a draft"),
    "port-in-use": ("port-in-use", "port"),
    "slots-too-few": ("no-state-slots", "max-mamba-cache-size = 2"),
    "mask-id": ("draft-mismatch", "draft"),
    "layer-ids": ("draft-mismatch", "draft"),
    "unknown-arch": ("model-unsupported", "DFlash9DraftModel"),
    "no-shard": ("weight-files", "missing"),
    "token-id-cpu": ("token-id", "vocabulary"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_failures_are_named(name: str) -> None:
    slug, words = RECORDED[name]
    found = diagnose(failure_log(name))
    assert found is not None
    assert found.name == slug
    assert words in found.what_happened
    assert found.remedy
    assert found.evidence
    assert found.evidence in failure_log(name)
    assert len(found.evidence) <= 300
    assert "{" not in found.what_happened + found.why + found.remedy


def test_every_recorded_failure_is_used() -> None:
    assert {path.stem for path in (DATA / "failures").iterdir()} == RECORDED.keys()


# Wording of field reports (F), of SGLang's sources (S), of public issues (I).
WORDED = {
    # F
    "mamba-slots": (
        'mamba_component.py", line 479, in _alloc_mamba_slot\n'
        '    assert slot is not None, "Can not alloc mamba cache"\nAssertionError: Can not alloc mamba cache\n'
    ),
    # F
    "graph-capture-memory": (
        "RuntimeError: num_active_captures_ > 0 INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp:3211\n"
        "markCaptureEnd called with no captures in progress\n"
    ),
    # I: vllm #49475 has today's wording, sglang #5285 the older one
    "out-of-memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB. GPU 0 has a total capacity of "
        "31.49 GiB of which 1.74 GiB is free.\n"
    ),
    # S: mem_cache/kv_cache_configurator.py
    "no-pool-memory": (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.6. Raise "
        "--mem-fraction-static above 0.713 (minimum viable = 1 - available/pre = 0.7121). If using speculative "
        "decoding, draft weights are now counted.\n"
    ),
    "no-state-memory": (
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
        "max_mamba_cache_size=0 (total_rest_memory=0.10 GB, mamba_cache_per_req=147.00 MB).\n"
    ),
    # I: sglang #13051
    "token-id": (
        "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu:16: vectorized_gather_kernel: block: [0,0,0], thread: "
        '[1,0,0] Assertion `ind >=0 && ind < ind_dim_size && "vectorized gather kernel index out of bounds"` failed.\n'
        "torch.AcceleratorError: CUDA error: device-side assert triggered\n"
    ),
    # F, S: models/dflash.py
    "dflash-lm-head": (
        "RuntimeError: DFlash2 selector requires a dense FP16/BF16/FP32 target lm_head or a supported "
        "lm_head.quant_method.\n"
    ),
    # S: model_loader/utils.py of 0.5.17
    "dflash2-unsupported": (
        "ValueError: Cannot find model module. 'DFlash2DraftModel' is not a registered model in the Transformers "
        "library (only relevant if the model is meant to be in Transformers)\n"
    ),
    # F
    "hub-xet": (
        "RuntimeError: Task error: File reconstruction error: CAS Client Error:\n"
        "HTTP status client error (401 Unauthorized),\n"
        "domain: https://cas-server.xethub.hf.co/v2/reconstructions/0123\n"
    ),
    # I: huggingface_hub
    "hub-refused": (
        "OSError: someone/some-model is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'\n"
    ),
    "no-kernel-image": "RuntimeError: CUDA error: no kernel image is available for execution on the device\n",
    # I: sglang #29646
    "sgl-kernel": (
        "ImportError:\n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n\nAttempted locations:\n"
        "1. Architecture-specific pattern: sgl_kernel/sm100/common_ops.* - found files: []\n"
    ),
    "deep-gemm": "ModuleNotFoundError: No module named 'deep_gemm'\n",
    "no-sglang": (
        "/usr/bin/python: Error while finding module specification for 'sglang.launch_server' "
        "(ModuleNotFoundError: No module named 'sglang')\n"
    ),
    "missing-module": "ModuleNotFoundError: No module named 'flashinfer'\n",
    "broken-module": "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory\n",
    # argparse
    "flag-value": "sglang serve: error: argument --page-size: invalid int value: 'x'\n",
    # S: entrypoints/engine.py
    "killed": (
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
        "common cause is the OS OOM killer.\n"
    ),
}


@pytest.mark.parametrize("name", WORDED)
def test_failures_are_named_by_their_wording(name: str) -> None:
    found = diagnose(DIED + WORDED[name] + QUIT)
    assert found is not None
    assert found.name == name
    assert found.what_happened
    assert found.remedy
    assert found.evidence in WORDED[name]


def test_every_known_failure_is_tested() -> None:
    tested = {slug for slug, _ in RECORDED.values()} | WORDED.keys() | {"dflash-logprobs"}
    assert {known.name for known in KNOWN} == tested


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Model architectures ['DFlash2DraftModel'] are not supported for now. Supported: []", "DFlash2"),
        ("ValueError: Model architectures ['MyModel'] are not supported for now. Supported: []", "['MyModel']"),
        (
            "launch_server.py: error: argument --speculative-algorithm: invalid choice: 'DFLASH' (choose from ...)",
            "DFLASH",
        ),
        ("ValueError: port 31000 is not available in 30 seconds. port at 31000 is not available", "port"),
        (
            "Data processing error: CAS service error : Reqwest Error: HTTP status client error (401 Unauthorized)",
            "Xet",
        ),
        ("SafetensorError: Error while deserializing header: header too large", "weight files"),
        ("NameError: name 'deep_gemm' is not defined", "deep_gemm"),
        ("RuntimeError: DFlash candidate top-k requires a dense FP16/BF16/FP32 target lm_head or", "lm_head"),
        ("AssertionError: Memory pool size is too small", "KV pool"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "KV pool"),
        ("/usr/bin/python: No module named sglang.launch_server", "no SGLang"),
        (
            "Indexing.cu:1284: indexSelectLargeIndex: Assertion `srcIndex < srcSelectDimSize` failed.",
            "outside the model's vocabulary",
        ),
    ],
)
def test_other_wordings(log: str, words: str) -> None:
    found = diagnose(log)
    assert found is not None
    assert words in found.what_happened


@pytest.mark.parametrize(
    "name", ["baseline", "nextn", "dflash", "nextn-simulated-acceptance", "dflash-simulated-acceptance", "cpu"]
)
def test_a_server_that_ended_in_order_or_for_unknown_reasons_has_no_diagnosis(name: str) -> None:
    # `cpu` died of something that is not known: the caller shows the last lines.
    log = (DATA / "logs" / f"sglang-0.5.19-{name}.txt").read_text("utf-8")
    assert diagnose(log) is None
    assert explain(log) is None


@pytest.mark.parametrize(
    "log",
    [
        "",
        "[..] Ignore import error when loading sglang.srt.models.inkling: No module named 'cutlass'\n",
        "[..] OpenAI Responses API disabled (ModuleNotFoundError: No module named 'openai_harmony')\n",
        # a source line of a traceback is no message
        '  File "x.py", line 62, in f\n    raise E(f"Unknown speculative algorithm name: {name}")\nKeyError: 3\n',
        DIED + "RuntimeError: selected index k out of range\n" + QUIT,
        "[..] max_running_requests is capped to 1 by the mamba state cache (max_mamba_cache_size=8, 5 state slots per "
        "request).\n",
    ],
)
def test_unknown_failures_and_warnings_have_no_diagnosis(log: str) -> None:
    assert diagnose(log) is None


def test_what_came_before_a_server_was_ready_did_not_end_it() -> None:
    early = "OSError: We couldn't connect to 'https://huggingface.co' to load the files\n"
    assert diagnose(early) is not None
    assert diagnose(early + READY) is None
    assert diagnose(early + READY + DIED + "AssertionError: something else\n") is None
    late = diagnose(early + READY + DIED + WORDED["mamba-slots"])
    assert late is not None
    assert late.name == "mamba-slots"


def test_what_comes_after_the_server_was_asked_to_end_is_no_failure() -> None:
    asked = "[2026-01-02 10:00:08] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    assert diagnose(READY + asked + DIED + WORDED["mamba-slots"]) is None


def test_out_of_memory_comes_before_what_it_leaves_behind() -> None:
    both = diagnose(DIED + WORDED["out-of-memory"] + WORDED["deep-gemm"])
    assert both is not None
    assert both.name == "out-of-memory"


LOADED = "Load weight end. elapsed=3.10 s, type=Target, avail mem=12.00 GB, mem usage=17.65 GB.\n"
POOLS = "KV Cache is allocated. dtype: x, #tokens: 145490, K size: 1.00 GB, V size: 1.00 GB\n"
CAPTURE = "Capture target {} CUDA graph begin. backend=full, avail mem=1.74 GB\n"


@pytest.mark.parametrize(
    ("before", "when", "remedy"),
    [
        (LOADED, "while loading (loaded before: Target 17.65 GB)", "nvidia-smi"),
        (LOADED + POOLS, "while starting", "max-mamba-cache-size"),
        (
            LOADED + POOLS + CAPTURE.format("prefill"),
            "while capturing CUDA graphs (target prefill, with 1.74 GB left before it)",
            'cuda-graph-backend-prefill = "disabled"',
        ),
        (LOADED + POOLS + CAPTURE.format("verify"), "CUDA graphs (target verify", "cuda-graph-max-bs-decode"),
        (LOADED + POOLS + READY, "while serving", "chunked-prefill-size"),
    ],
)
def test_out_of_memory_says_when(before: str, when: str, remedy: str) -> None:
    found = diagnose(before + DIED + WORDED["out-of-memory"])
    assert found is not None
    assert when in found.what_happened
    assert remedy in found.remedy


def test_the_misleading_assertion_names_the_capture_and_the_remedies_of_the_field_report() -> None:
    found = diagnose(POOLS + CAPTURE.format("prefill") + DIED + WORDED["graph-capture-memory"])
    assert found is not None
    assert found.what_happened == (
        "the GPU ran out of memory while capturing CUDA graphs (target prefill, with 1.74 GB left before it)"
    )
    assert 'cuda-graph-backend-prefill = "disabled"' in found.remedy
    assert "mem-fraction-static" in found.remedy
    assert "num_active_captures_ > 0 INTERNAL ASSERT FAILED" in found.evidence


def test_a_missing_draft_is_told_from_a_missing_target() -> None:
    target, draft = diagnose(failure_log("no-model")), diagnose(failure_log("draft-missing"))
    assert target is not None
    assert draft is not None
    assert "`target`" in target.remedy
    assert "`draft`" in draft.remedy


def test_a_refused_request_is_named_unless_something_ended_the_server() -> None:
    refused = "DFLASH speculative decoding does not support return_logprob yet."
    found = diagnose(refused)
    assert found is not None
    assert found.name == "dflash-logprobs"
    assert diagnose(READY + refused + "\n" + DIED + "AssertionError\n") is None


def test_a_kill_from_outside_is_told_from_the_servers_own() -> None:
    # SGLang ends itself with SIGKILL after a failure of its own, so that the signal alone means nothing.
    assert diagnose(READY) is None
    killed = diagnose(READY, exit_status=-9)
    assert killed == Diagnosis(
        "killed",
        "the server was killed from outside (SIGKILL)",
        "Usually by the kernel, because the machine ran out of main memory (not GPU memory).",
        "look with dmesg -T | grep -i oom; start fewer servers side by side (parallel_servers) or free memory",
        "",
    )
    own = READY + DIED + "AssertionError: x\n[..] kill_process_tree called: parent_pid=1, include_parent=True, pid=1\n"
    assert diagnose(own, exit_status=-9) is None
    assert diagnose(READY, exit_status=1) is None


def test_facts_can_be_passed() -> None:
    log = POOLS + DIED + WORDED["out-of-memory"]
    serving = replace(parse_log(log), ready=True)
    found = diagnose(log, facts=serving)
    assert found is not None
    assert found.what_happened.endswith("while serving")


def test_an_explanation_is_one_paragraph_with_the_remedy() -> None:
    text = explain(DIED + WORDED["mamba-slots"] + QUIT)
    assert text is not None
    assert "\n" not in text
    assert text.startswith("the recurrent-state cache ran out of slots")
    assert "Remedy: fewer requests at once" in text
    assert text.endswith("The log says: AssertionError: Can not alloc mamba cache")


def test_an_explanation_fits_the_failure_message(tmp_path: Path) -> None:
    failure = Failure(
        name="dflash",
        happened="ended while starting (exit status 2)",
        command=("python", "-m", "sglang.launch_server"),
        exit_code=2,
        log_text=failure_log("unknown-flag"),
        log_path=tmp_path / "dflash.log",
    )
    message, hint = failure.describe(explain)
    assert message.startswith(
        "server 'dflash' ended while starting (exit status 2): the server does not know --speculative-draft-tokens 4."
    )
    assert "Remedy: correct `args` in the profile." in message
    assert hint == f"the whole log is {tmp_path / 'dflash.log'}"


def test_windows_and_progress_line_ends() -> None:
    found = diagnose("50%|\r100%|\rAssertionError: Can not alloc mamba cache\r\n")
    assert found is not None
    assert found.evidence == "AssertionError: Can not alloc mamba cache"
