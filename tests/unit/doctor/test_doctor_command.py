"""``lossless doctor`` on recorded runs: what it reads of them, what it prints, how it exits."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from doctor_cases import TINY, edited, untrain
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from lossless.analysis import analyze
from lossless.commands import doctor
from lossless.doctor import cases
from lossless.errors import UsageError
from lossless.profiles import load_profile
from lossless.protocol import Sampling
from lossless.record.store import RunStore

ROOT = Path(__file__).parents[3]
ARCHIVES = ROOT / "tests" / "data" / "gpu-runs"

app = typer.Typer(rich_markup_mode=None)
app.callback()(lambda: None)
doctor.register(app)


def run(*args: str | Path) -> Any:
    return CliRunner().invoke(app, ["doctor", *map(str, args)], env={"COLUMNS": "120", "TERMINAL_WIDTH": "120"})


@pytest.fixture(scope="module")
def gpu_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real SGLang 0.5.19 on an H200: honest, and with a simulated accept length."""
    folder = tmp_path_factory.mktemp("gpu")
    for name in ("honest", "lossy"):
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            archive.extractall(folder / name, filter="data")
    return folder


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_an_honest_run_inside_its_golden_bands_is_fine(gpu_runs: Path, snapshot: SnapshotAssertion) -> None:
    result = run(gpu_runs / "honest", "--golden", ROOT / "golden", "--profile", "tiny-sglang-gpu")
    assert result.exit_code == 0, result.output
    assert plain(result.output) == snapshot


def test_a_run_with_a_made_up_accept_length_is_wrong(gpu_runs: Path) -> None:
    result = run(gpu_runs / "lossy", "--golden", ROOT / "golden", "--json")
    data = json.loads(result.output)
    assert (result.exit_code, data["outcome"]) == (1, "wrong")
    assert [v["conclusion"].split(": ")[1] for v in data["variants"]] == ["output", "output"]


def test_two_runs_are_compared_by_category(gpu_runs: Path) -> None:
    result = run(gpu_runs / "honest", "--against", gpu_runs / "honest", "--variant", "dflash", "--json")
    (variant,) = json.loads(result.output)["variants"]
    tasks = next(f for f in variant["findings"] if f["rule"] == "tasks")
    assert (result.exit_code, tasks["status"], tasks["numbers"]["reference"]) == (0, "ok", "run honest")
    assert tasks["numbers"]["accept_length"] == pytest.approx(tasks["numbers"]["wanted"], abs=0.01)


def test_what_a_run_says_is_read(gpu_runs: Path) -> None:
    found = {c.variant: c.run for c in cases(None, analyze(RunStore.open(gpu_runs / "honest")))}
    nextn, dflash = found["nextn"], found["dflash"]
    assert nextn is not None
    assert dflash is not None
    assert (nextn.version, nextn.algorithm, nextn.width, nextn.depth) == ("0.5.19", "NEXTN", 4, 3)
    assert (dflash.algorithm, dflash.width, dflash.depth, len(dflash.histogram)) == ("DFLASH", 8, 7, 8)
    assert sum(dflash.histogram) == dflash.whole.verify_steps == 705
    assert (dflash.differing, dflash.judged, dflash.temperatures) == (0, 131, (0.0,))


def small(make_run: Any, **change: Any) -> Path:
    """One prompt of code; every verify step reports what ``change`` says."""
    made = make_run({"code-0": Sampling(96)}, profile="small")
    said = "85 - 60 = 25. The answer is 25."
    made.scored("code-0", made.says("baseline", "code-0", said))
    made.says("nextn", "code-0", said, **change)
    return Path(made.store.path)


def test_a_silent_variant_is_named(make_run: Any) -> None:
    result = run(small(make_run, spec_verify_ct=None))
    assert result.exit_code == 1
    assert "first thing wrong: speculation: speculation is silently off" in plain(result.output)


def test_without_reference_and_files_it_says_what_is_missing(make_run: Any, snapshot: SnapshotAssertion) -> None:
    result = run(small(make_run))
    assert result.exit_code == 3
    assert plain(result.output) == snapshot


def test_a_planted_head_is_found_from_the_runs_own_word(make_run: Any, tmp_path: Path) -> None:
    """The run names its model folders; they are looked at without a profile."""
    draft = edited(TINY / "dflash2", tmp_path / "draft")
    untrain(draft / "model.safetensors")
    made = make_run({"code-0": Sampling(96)}, variants=("dflash",), algorithms={"dflash": "DFLASH"})
    target = str(TINY / "target")
    made.server("baseline", model_path=target)
    made.server(
        "dflash",
        model_path=target,
        speculative_algorithm="DFLASH",
        speculative_draft_model_path=str(draft),
        speculative_num_draft_tokens=8,
    )
    ids = made.says("baseline", "code-0", "85 - 60 = 25. The answer is 25.")
    made.says("dflash", "code-0", ids, spec_verify_ct=len(ids) - 1)
    result = run(made.store.path)
    assert result.exit_code == 1
    assert "first thing wrong: lm-head: every norm weight of the draft is one constant" in plain(result.output)


def test_a_profile_alone_cannot_tell(snapshot: SnapshotAssertion) -> None:
    result = run("--profile", "tiny")
    assert result.exit_code == 3
    assert plain(result.output) == snapshot


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "nothing to look at"),
        (("--against", "x"), "--against x needs a RUN"),
        (("--profile", "tiny", "--golden", "nowhere"), "there is no folder nowhere"),
        (("--profile", "tiny", "--variant", "eagle"), "no variant 'eagle'; there is: nextn, dflash"),
        (("--profile", "none"), "there is no profile 'none'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_input_says_what_would_be_right(args: tuple[str, ...], said: str) -> None:
    result = run(*args)
    assert isinstance(result.exception, UsageError)
    assert said in result.exception.message


def test_profile_and_run_must_have_a_variant_in_common(make_run: Any) -> None:
    made = make_run(variants=("eagle",))
    with pytest.raises(UsageError, match="has no variant of this run: it has nextn, dflash, the run eagle"):
        cases(load_profile("tiny"), analyze(made.store))


@pytest.mark.parametrize(("built", "high"), [(True, [2000, 9000]), (False, [9000])])
def test_prompts_that_were_built_to_a_length_tell_of_the_context(make_run: Any, built: bool, high: list[int]) -> None:
    """One kind of task at several lengths, where the run has it; else whatever was asked, by ranges of length."""
    made = make_run({"code-0": Sampling(96), "code-1": Sampling(96)})
    said = "85 - 60 = 25. The answer is 25."
    for prompt, steps in (("code-0", 10), ("code-1", 12)):
        made.says("nextn", prompt, said, spec_verify_ct=steps)
    analysis = analyze(made.store)
    for prompt, length in (("code-0", 2000), ("code-1", 9000)):
        depth = 0.5 if built else None
        old = analysis.prompts[prompt]
        analysis.prompts[prompt] = replace(old, ids=(7,) * (length if built else 9000), depth=depth)
    (case,) = cases(None, analysis)
    assert case.run is not None
    assert [b.high for b in case.run.by_length] == high
    assert sum(b.verify_steps for b in case.run.by_length) == 22
