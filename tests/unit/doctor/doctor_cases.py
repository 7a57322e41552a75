"""Cases for the rules of the doctor: copies of the tiny model with planted faults, and figures made by hand."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - bfloat16 for numpy
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from lossless.analysis import Acceptance
from lossless.doctor import Case, Measured, Reference, cases
from lossless.doctor.tasks import pooled
from lossless.golden.acceptance import GoldenAcceptance
from lossless.profiles.profile import FlagValue, Profile, Variant
from lossless.reference.builtin import builtin_path

TINY = builtin_path()


def length(value: float, steps: int = 100) -> Acceptance:
    """So many steps with this accept length."""
    return Acceptance(4, round(value * steps), steps, 0)


def measured(categories: Mapping[str, float | Acceptance] | None = None, **more: Any) -> Measured:
    """A run with these accept lengths, 100 steps each; ``all`` is pooled where it is not given."""
    given = (categories or {"code": 4.0}).items()
    found = {name: value if isinstance(value, Acceptance) else length(value) for name, value in given}
    fields: dict[str, Any] = {"categories": {"all": pooled(found), **found}, "judged": 9, "width": 8, "depth": 7}
    return Measured("run", **{**fields, **more})


def reference(**categories: float) -> Reference:
    return Reference("golden/x.json", {name: GoldenAcceptance(value, 100) for name, value in categories.items()})


def case(run: Measured | None = None, algorithm: str = "DFLASH", **more: Any) -> Case:
    return Case("dflash" if algorithm == "DFLASH" else "nextn", algorithm, run=run, **more)


def edited(source: Path, folder: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """A copy of a model folder; ``change`` edits its config.json."""
    shutil.copytree(source, folder)
    if change is not None:
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        change(config)
        path.write_text(json.dumps(config), encoding="utf-8")
    return folder


def rewrite(path: Path, change: Callable[[str, Any], Any]) -> None:
    """Change every tensor of a file; None drops it."""
    with safe_open(path, framework="numpy") as tensors:
        values = {name: change(name, tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118
    save_file({name: value for name, value in values.items() if value is not None}, path)


def untrain(path: Path, constant: float = 1.0) -> None:
    """Random weights, and norms as they are before training."""
    random = np.random.default_rng(0)

    def fresh(name: str, value: Any) -> Any:
        new = np.full(value.shape, constant) if name.endswith("norm.weight") else random.normal(0, 0.02, value.shape)
        return new.astype(value.dtype)

    rewrite(path, fresh)


def profile(target: str | Path, draft: str | Path | None = None, **args: FlagValue) -> Profile:
    """NEXTN without a draft, DFLASH with one."""
    flags = {name.replace("_", "-"): value for name, value in args.items()}
    variant = Variant("nextn", "NEXTN") if draft is None else Variant("dflash", "DFLASH", str(draft), flags)
    return Profile("p", "", "sglang", str(target), ("python",), {variant.name: variant}, prompts="quick")


def of_files(target: str | Path, draft: str | Path | None = None, **args: FlagValue) -> Case:
    """The case of such a profile, without a run."""
    (found,) = cases(profile(target, draft, **args), None)
    return found
