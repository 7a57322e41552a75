"""Whether a model folder is whole and agrees with itself: weight files, types, tokenizer, end tokens."""

from collections import Counter
from collections.abc import Iterator

from lossless.errors import UsageError
from lossless.profiles.checks.model_folder import INDEX, ModelFolder
from lossless.profiles.checks.result import CheckResult, Subject
from lossless.profiles.profile import Profile

GIB = 1024**3
DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
"""What SGLang's ``--dtype`` takes."""

_AGAIN = "download the model again"
_STORED = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
_SAME = {"half": "float16", "float": "float32"}


def check_files(folder: ModelFolder, subject: Subject) -> Iterator[CheckResult]:
    """The index, the weight files and their headers name the same tensors."""
    name = "weight-files"
    if not folder.headers and not folder.broken:
        yield subject.skip(name, f"{folder.path.name} has no safetensors files")
        return
    for problem in folder.broken.values():
        yield subject.fail(
            name,
            f"{problem.message}{'' if folder.weight_map is None else f' ({INDEX} names it)'}",
            problem.hint or _AGAIN,
        )
    weight_map = folder.weight_map
    if weight_map is None:
        if not folder.broken:
            yield subject.ok(name, f"{_files(len(folder.headers))}, {_size(folder)}, no index")
        return
    lost = [key for key, file in weight_map.items() if file in folder.headers and key not in folder.headers[file]]
    if lost:
        yield subject.fail(
            name, f"{INDEX} names tensors that are not in their files: {_some(lost)}", f"{_AGAIN}, index and files"
        )
    extra = [key for key in folder.tensors if key not in weight_map]
    if extra:
        yield subject.warn(
            name, f"the files hold tensors that {INDEX} does not name: {_some(extra)}", f"{_AGAIN}, index and files"
        )
    if folder.unlisted:
        yield subject.warn(
            name,
            f"{INDEX} does not name {_some(folder.unlisted)}, so SGLang does not load it",
            f"download {INDEX} again, or remove the file",
        )
    if not (folder.broken or lost or extra or folder.unlisted):
        yield subject.ok(name, f"{_files(len(folder.headers))}, {len(weight_map)} tensors, {_size(folder)}")


def check_dtype(folder: ModelFolder, profile: Profile, subject: Subject) -> Iterator[CheckResult]:
    """The type that is asked for exists and fits the type in the files."""
    name, asked = "dtype", profile.dtype
    if asked not in DTYPES:
        yield subject.fail(name, f"dtype {asked!r} does not exist", f"use one of {', '.join(DTYPES)}")
        return
    counts: Counter[str] = Counter()
    for info in folder.tensors.values():
        if info.dtype in _STORED:
            counts[_STORED[info.dtype]] += info.size_bytes
    if not counts:
        yield subject.skip(name, "no 16- or 32-bit tensors in the files")
        return
    stored, said = counts.most_common(1)[0][0], folder.text.get("dtype") or folder.text.get("torch_dtype")
    said = said or folder.config.get("dtype") or folder.config.get("torch_dtype")
    asked = _SAME.get(asked, asked)
    on_gpu = profile.kind == "sglang" and profile.args.get("device") != "cpu"
    if asked == "float32" and on_gpu and folder.hybrid:
        yield subject.warn(
            name,
            "SGLang 0.5.19 has no float32 kernels for this hybrid family on the GPU; the server ends while starting",
            "use bfloat16 (float32 works on the CPU)",
        )
    elif {asked, stored} == {"float16", "bfloat16"}:
        yield subject.warn(
            name, f"the weights are {stored} and run as {asked}: their values change", f'set dtype = "{stored}"'
        )
    elif isinstance(said, str) and said.removeprefix("torch.") != stored and folder.quantization is None:
        yield subject.warn(
            name, f"config.json says {said}, the files hold {stored}", f'set dtype in the profile, such as "{stored}"'
        )
    else:
        yield subject.ok(name, f"stored as {stored}, run as {asked}")


def check_tokenizer(folder: ModelFolder, subject: Subject) -> Iterator[CheckResult]:
    """Every id of the tokenizer and every end token has a row in the model."""
    size = folder.number("vocab_size")
    if size is None:
        yield subject.fail("vocabulary", "config.json has no vocab_size", "download config.json again")
        return
    rows = {
        key: info.shape[0]
        for key, info in folder.tensors.items()
        if key.endswith(("embed_tokens.weight", "lm_head.weight")) and info.dense and len(info.shape) == 2
    }
    wrong = {key: count for key, count in rows.items() if count != size and not key.startswith("mtp.")}
    if wrong:
        key, count = next(iter(wrong.items()))
        yield subject.fail(
            "vocabulary",
            f"config.json says vocab_size {size}, but {key} has {count} rows",
            f"{_AGAIN}: files are mixed",
        )
    try:
        last = max(folder.vocabulary.values(), default=-1)
    except UsageError as problem:
        yield subject.skip("vocabulary", problem.message)
    else:
        if last >= size:
            yield subject.fail(
                "vocabulary",
                f"the tokenizer has ids up to {last}, the model {size} rows; such an id ends the whole server",
                "use the tokenizer that belongs to the model",
            )
        elif not wrong:
            yield subject.ok("vocabulary", f"{size} rows, ids up to {last} in the tokenizer")
    eos = sorted(folder.eos_ids)
    if not eos:
        yield subject.warn(
            "end-tokens",
            "neither config.json nor generation_config.json names an eos_token_id: answers end by length only",
            "download generation_config.json, or correct it",
        )
    elif eos[-1] >= size or eos[0] < 0:
        yield subject.fail(
            "end-tokens", f"eos_token_id {eos} is outside the vocabulary of {size}", "correct generation_config.json"
        )
    else:
        yield subject.ok("end-tokens", f"an answer ends at {_ids(eos)}")


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _size(folder: ModelFolder) -> str:
    size = folder.size_bytes
    return f"{size / GIB:.2f} GB" if size >= GIB // 10 else f"{size / 1024**2:.1f} MB"


def _some(names: list[str] | tuple[str, ...]) -> str:
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")


def _ids(ids: list[int]) -> str:
    return ", ".join(str(id_) for id_ in ids)
