"""Whether the quantization that ``config.json`` declares is the one in the files.

The case from the field: the ignore list said ``model.language_model.layers.0.linear_attn``, the files said
``model.layers.0.linear_attn`` and had it quantized; the model loaded and wrote garbage.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.result import CheckResult, Subject
from lossless.profiles.safetensors_header import TensorInfo

_LISTS = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "exclude_layers", "exclude")
_PACKED = ("weight_packed", "qweight", "weight_scale", "weight_scale_inv", "scales", "qzeros", "weight_zero_point")
_LAYER = re.compile(r"(?:^|\.)layers\.\d+\.|^mtp\.")
_LINEAR = re.compile(r"proj(?:_\w+)?$|\.fc$")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the ignore list, matched as the loader does it (SGLang 0.5.19, layers/quantization)."""

    text: str
    strict: bool
    """compressed-tensors: a plain name is the whole name or its end. The others look for it anywhere in the name."""
    pattern: re.Pattern[str] | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a name and no pattern."""
        return self.pattern is None

    def matches(self, module: str) -> bool:
        if self.pattern is not None:
            return self.pattern.match(module) is not None
        if self.strict:
            return module == self.text or module.endswith(f".{self.text}")
        return self.text in module


def check_quantization(folder: ModelFolder, subject: Subject) -> Iterator[CheckResult]:
    """The ignored modules exist and are dense; the dense ones are ignored."""
    name, declared = "quantization", folder.quantization
    modules = _modules(folder.tensors)
    packed = {module for module, parts in modules.items() if _is_packed(parts)}
    if declared is None:
        if packed:
            yield subject.fail(
                name,
                f"config.json declares no quantization, but {_some(sorted(packed))} are stored quantized",
                "download config.json again",
            )
        else:
            yield subject.ok(name, "none: dense weights")
        return
    method = str(declared.get("quant_method") or declared.get("quant_algo") or "unknown")
    entries, broken = _entries(declared, strict=method == "compressed-tensors")
    problems = [subject.fail(name, f"ignore entry {text!r}: {why}", "correct config.json") for text, why in broken]
    if not packed:
        problems.append(
            subject.warn(name, f"config.json declares {method}, but no tensor is quantized", "download the model again")
        )
    problems += _check_entries(entries, modules, packed, subject)
    problems += _check_dense(entries, modules, packed, _quantizes_all_linear(declared), subject)
    yield from problems
    if not problems:
        kept = sum(1 for module in modules if any(entry.matches(module) for entry in entries))
        yield subject.ok(
            name, f"{method}: {len(packed)} modules quantized, {kept} kept dense by {len(entries)} entries"
        )


def _check_entries(
    entries: list[_Entry], modules: Mapping[str, Mapping[str, TensorInfo]], packed: set[str], subject: Subject
) -> Iterator[CheckResult]:
    for entry in entries:
        named = [module for module in modules if entry.matches(module)]
        wrong = [module for module in named if module in packed]
        if wrong:
            yield subject.fail(
                "quantization",
                f"the ignore list says that {entry.text!r} is dense, but {_some(sorted(wrong))} "
                f"{'is' if len(wrong) == 1 else 'are'} stored quantized: the loader looks for other tensors",
                "use another checkpoint, or correct the ignore list in config.json",
            )
        elif not named and entry.plain and (elsewhere := _elsewhere(entry.text, modules)):
            wrong = [
                module
                for module in packed
                if module == elsewhere or (not entry.strict and module.startswith(f"{elsewhere}."))
            ]
            detail = f"the ignore list names {entry.text!r}, the files have {elsewhere!r}: another prefix"
            remedy = "use another checkpoint, or correct the names in config.json"
            if wrong:
                yield subject.fail(
                    "quantization", f"{detail}, and it is stored quantized ({_some(sorted(wrong))})", remedy
                )
            else:
                yield subject.warn("quantization", detail, remedy)


def _check_dense(
    entries: list[_Entry],
    modules: Mapping[str, Mapping[str, TensorInfo]],
    packed: set[str],
    all_linear: bool,
    subject: Subject,
) -> Iterator[CheckResult]:
    """A linear layer that is dense although its like is quantized must be on the list."""
    kinds = {_kind(module) for module in packed}
    missed = [
        module
        for module, parts in modules.items()
        if module not in packed
        and _LAYER.search(module)
        and _LINEAR.search(module)
        and (weight := parts.get("weight")) is not None
        and weight.dense
        and len(weight.shape) == 2
        and (all_linear or _kind(module) in kinds or module.startswith("mtp."))
        and not any(entry.matches(module) for entry in entries)
        and not any(entry.plain and module.startswith(f"{entry.text}.") for entry in entries)
        and not any(entry.plain and _elsewhere(entry.text, {module: parts}) for entry in entries)
    ]
    if missed and packed:
        yield subject.warn(
            "quantization",
            f"{_some(missed)} {'is' if len(missed) == 1 else 'are'} stored dense, but not on the ignore list: the "
            "loader looks for quantized tensors, and may leave the layer without weights",
            "use another checkpoint, or add them to the ignore list in config.json",
        )


def _modules(tensors: Mapping[str, TensorInfo]) -> dict[str, dict[str, TensorInfo]]:
    modules: dict[str, dict[str, TensorInfo]] = {}
    for key, info in tensors.items():
        module, _, part = key.rpartition(".")
        modules.setdefault(module, {})[part] = info
    return modules


def _is_packed(parts: Mapping[str, TensorInfo]) -> bool:
    if any(part in parts for part in _PACKED):
        return True
    weight = parts.get("weight")
    return weight is not None and len(weight.shape) == 2 and not weight.dense and weight.dtype != "F64"


def _entries(declared: Mapping[str, Any], strict: bool) -> tuple[list[_Entry], list[tuple[str, str]]]:
    """The ignore list, and the entries that cannot be read with the reason."""
    raw = next((value for key in _LISTS if isinstance(value := declared.get(key), list) and value), [])
    entries: list[_Entry] = []
    broken: list[tuple[str, str]] = []
    for text in (str(item) for item in raw):
        try:
            if text.startswith("re:"):
                entries.append(_Entry(text, strict, re.compile(text[3:])))
            elif set(text) & set("*?["):
                entries.append(_Entry(text, strict, re.compile(fnmatch.translate(text))))
            else:
                entries.append(_Entry(text, strict))
        except re.error as problem:
            broken.append((text, f"not a regular expression: {problem}"))
    return entries, broken


def _quantizes_all_linear(declared: Mapping[str, Any]) -> bool:
    groups = declared.get("config_groups")
    listed = groups.values() if isinstance(groups, dict) else ()
    return any(isinstance(group, dict) and "Linear" in (group.get("targets") or ()) for group in listed)


def _elsewhere(name: str, modules: Mapping[str, object]) -> str | None:
    """The module, or parent of modules, that is ``name`` but for its prefix (``model.language_model.``, say)."""
    found = re.search(r"(?:^|\.)((?:layers|blocks)\.\d+\..+|lm_head|embed_tokens)$", name)
    if found is None:
        return None
    tail = found[1]
    for module in modules:
        at = f".{module}.".find(f".{tail}.")
        if at >= 0:
            whole = module[: at + len(tail)]
            if whole != name and not whole.startswith("mtp."):
                return whole
    return None


def _kind(module: str) -> str:
    """What a module is in any layer: its name after the layer's number."""
    return re.split(r"layers\.\d+\.", module)[-1]


def _some(names: list[str]) -> str:
    rest = len(names) - 2
    return ", ".join(names[:2]) + (f" and {rest} more" if rest > 0 else "")
