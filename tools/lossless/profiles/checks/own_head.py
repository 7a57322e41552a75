"""NEXTN: whether the head inside the target's own checkpoint is there, and what it costs."""

from collections.abc import Iterator, Mapping

from lossless.profiles.checks.files import GIB
from lossless.profiles.checks.model_folder import INDEX, ModelFolder
from lossless.profiles.checks.result import CheckResult, Subject
from lossless.profiles.profile import FlagValue

# Families whose loader takes the head from `mtp.*` only (models/qwen3_5_mtp.py, qwen3_next_mtp.py).
_MTP_FAMILIES = ("Qwen3_5", "Qwen3Next")
_COPIES = ("Qwen3_5",)
_COPY_IS_LARGE = GIB


def check_own_head(target: ModelFolder, subject: Subject, *, measures_memory: bool) -> Iterator[CheckResult]:
    """The head's weights are in the index and in the files.

    Args:
        target: the folder that holds the head.
        subject: the variant.
        measures_memory: whether the server sizes its KV pool by the memory that is left (SGLang on a card).
    """
    head = {key: info for key, info in target.tensors.items() if _in_head(key, target)}
    named = [key for key in (target.weight_map if target.weight_map is not None else target.tensors) if key in head]
    if not target.headers:
        yield subject.skip("mtp-weights", "no weight file could be read")
    elif named:
        files = sorted({file for file, header in target.headers.items() if any(key in head for key in header)})
        size = sum(info.size_bytes for info in head.values())
        yield subject.ok("mtp-weights", f"{len(named)} tensors, {size / 1024**2:.1f} MB, in {', '.join(files)}")
        yield from _check_memory(target, size, subject, measures_memory)
    elif head or any("mtp" in file for file in target.unlisted):
        yield subject.fail(
            "mtp-weights",
            f"{INDEX} names no tensor of the MTP head, though its file is there: it is not loaded",
            f"download {INDEX} again",
        )
    elif target.architecture.startswith(_MTP_FAMILIES):
        yield subject.fail(
            "mtp-weights",
            "the checkpoint has no mtp.* tensors: the head would be drafting with random weights, slower than without",
            "use a checkpoint that ships them (model_mtp.safetensors), or leave this variant out",
        )
    else:
        yield subject.warn(
            "mtp-weights",
            f"no tensors of an MTP head found for {target.architecture or 'this architecture'}",
            "see that the checkpoint has one, or set `draft` of the variant",
        )


def own_head_bytes(target: ModelFolder) -> int:
    """Bytes of the head's own tensors, by the files' headers."""
    return sum(info.size_bytes for key, info in target.tensors.items() if _in_head(key, target))


def _in_head(key: str, target: ModelFolder) -> bool:
    if key.startswith("mtp.") or ".mtp." in key or ".mtp_layers." in key or "nextn" in key:
        return True
    layers = target.number("num_hidden_layers")  # DeepSeek's way: the layer after the last
    return layers is not None and target.number("num_nextn_predict_layers") is not None and f".layers.{layers}." in key


def _check_memory(target: ModelFolder, size: int, subject: Subject, measured: bool) -> Iterator[CheckResult]:
    """The case from the field: a head of 0.85 GB took 5.53 GB, and the KV pool fell from 280,000 tokens to 14,000."""
    vocabulary, width = target.number("vocab_size"), target.number("hidden_size")
    if not measured or not target.architecture.startswith(_COPIES) or vocabulary is None or width is None:
        return
    tied = bool(target.text.get("tie_word_embeddings", target.config.get("tie_word_embeddings", False)))
    copies = vocabulary * width * 2 * (1 if tied else 2)  # 16-bit weights
    if copies >= _COPY_IS_LARGE:
        yield subject.warn(
            "draft-memory",
            f"while it loads, the head ({size / GIB:.2f} GB) holds {copies / GIB:.1f} GB more for an embedding and an "
            "output head of its own, which it then drops; SGLang 0.5.17 to 0.5.23 sizes the KV pool in between, so "
            "that memory stays unused",
            "look at the pool's size after starting (max_total_num_tokens); a larger mem-fraction-static helps some",
        )


def check_chain(flags: Mapping[str, FlagValue], subject: Subject) -> CheckResult:
    """The flags of a chain of drafts fit together as SGLang wants it (arg_groups/speculative_hook.py)."""
    steps, width = flags.get("speculative-num-steps"), flags.get("speculative-num-draft-tokens")
    topk = flags.get("speculative-eagle-topk")
    if steps is None and (width is not None or topk is not None):
        return subject.fail(
            "chain",
            "speculative-num-draft-tokens or speculative-eagle-topk without speculative-num-steps: SGLang stops with "
            "an assertion",
            "set speculative-num-steps too, or leave all three out",
        )
    if isinstance(steps, int) and isinstance(width, int) and topk in (None, 1) and width != steps + 1:
        return subject.warn(
            "chain",
            f"a chain of {steps} steps verifies {steps + 1} tokens, whatever speculative-num-draft-tokens {width} says",
            f"set speculative-num-draft-tokens = {steps + 1}",
        )
    shown = "SGLang's own choice" if steps is None else f"{steps} steps"
    return subject.ok("chain", f"{shown}{f', {width} tokens verified' if width is not None else ''}")
