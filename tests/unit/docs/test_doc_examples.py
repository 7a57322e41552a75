"""The examples in docs/ load, and the tables name every field there is."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lossless.analysis.controls import SPECULATES_ABOVE
from lossless.doctor import RULES, Case
from lossless.doctor.tasks import FIELD, LONG_CONTEXT
from lossless.profiles import load_profile, loader
from lossless.prompts import load_prompts
from lossless.prompts.entry import Entry
from lossless.prompts.prompt import GROUPS
from lossless.protocol import Sampling
from lossless.verdict.budget import MINIMUM_RATE, SIGMAS
from lossless.verdict.budget import SLACK as BUDGET_SLACK
from lossless.verdict.judge import RECONVERGENCE
from lossless.verdict.kinds import Kind, Reason
from lossless.verdict.noise import DEFAULT_CAP, DEFAULT_K, DEFAULT_MINIMUM, MIN_TOKENS

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLE = re.compile(r"<!-- tested: (\w+) -->\n```toml\n(.*?)```", re.S)
PROFILES, PROMPTS, DOCTOR = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("profiles", "prompts", "doctor")
)


def examples(text: str) -> list[str]:
    return [body for _, body in EXAMPLE.findall(text)]


def rows(text: str, heading: str) -> dict[str, str]:
    """First column (without quotes) to last column of the tables under one heading."""
    part = text.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[-1] for row in cells}


def fields(table: Any) -> set[str]:
    return {field.name for field in msgspec.structs.fields(table)}


@pytest.fixture(params=examples(PROFILES), ids=["launch", "attach"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "my-profile.toml"
    path.write_text(request.param, encoding="utf-8")
    return path


def test_the_profile_examples_load(written: Path) -> None:
    profile = load_profile(str(written))
    assert profile.variants
    assert (profile.kind == "attach") == (profile.baseline.url is not None)


def test_the_first_profile_example_has_every_field() -> None:
    raw = tomllib.loads(examples(PROFILES)[0])
    attach_only = {"api_key_env"}
    assert set(raw) == fields(loader._ProfileTable) - attach_only
    assert set(raw["variants"]["dflash"]) == fields(loader._VariantTable) - {"url"}
    assert set(raw["epsilon"]) == fields(loader._EpsilonTable)
    assert set(raw["long"]) == fields(loader._LongTable)


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("## Top level", loader._ProfileTable),
        ("## `[baseline]` and `[variants.NAME]`", loader._VariantTable),
        ("## `[epsilon]`", loader._EpsilonTable),
        ("## `[long]`", loader._LongTable),
    ],
    ids=["top", "variant", "epsilon", "long"],
)
def test_the_profile_tables_name_every_field(heading: str, table: Any) -> None:
    assert set(rows(PROFILES, heading)) == fields(table)


def test_the_profile_tables_say_the_defaults() -> None:
    top, epsilon = rows(PROFILES, "## Top level"), rows(PROFILES, "## `[epsilon]`")
    for field in msgspec.structs.fields(loader._ProfileTable):
        if isinstance(field.default, int | float | str):
            default = field.default if isinstance(field.default, str) else f"{field.default:g}"
            assert top[field.name].strip("`") == default, field.name
    assert {key: float(value) for key, value in epsilon.items()} == {
        "k": DEFAULT_K,
        "minimum": DEFAULT_MINIMUM,
        "cap": DEFAULT_CAP,
    }


def test_the_prompt_example_loads(tmp_path: Path) -> None:
    path = tmp_path / "my-prompts.toml"
    (example,) = examples(PROMPTS)
    path.write_text(example, encoding="utf-8")
    prompts = {prompt.id: prompt for prompt in load_prompts(str(path)).prompts}
    assert list(prompts) == [
        "my-first",
        "my-chat",
        "my-copy",
        "my-raw",
        *(f"my-cap-{n:02d}" for n in (1, 2, 5)),
        "my-length-01",
        "my-length-07",
    ]
    assert prompts["my-cap-05"].sampling == Sampling(5, stop=("return",))
    assert prompts["my-first"].sampling.max_new_tokens == 64
    assert prompts["my-copy"].messages is not None
    assert prompts["my-copy"].messages[0].content.count("No ship left.") == 3


def test_the_prompt_tables_name_every_key_and_group() -> None:
    assert set(rows(PROMPTS, "## Keys of an entry")) == set(Entry.__struct_fields__)
    assert set(rows(PROMPTS, "## Groups")) == set(GROUPS)


def test_the_sampling_keys_are_named() -> None:
    text = PROMPTS.split("It takes", 1)[1].split("## Groups")[0]
    assert set(re.findall(r"`([a-z_]+)`", text)) == set(Sampling.__dataclass_fields__) - {"stop_token_ids"}


def test_the_doctors_table_names_every_rule_in_order() -> None:
    part = DOCTOR.split("| rule |", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| `([\w-]+)` \|", part, re.M) == [rule(Case("x", None)).rule for rule in RULES]


def test_the_field_figures_are_those_of_the_rules() -> None:
    part = DOCTOR.split("| kind of task |", 1)[1].split("\n\n", 1)[0]
    shown = {row[0].split(",")[0]: row[1:] for line in part.splitlines() for row in [_cells(line)] if len(row) == 3}
    for column, algorithm in enumerate(("DFLASH", "NEXTN")):
        for kind, value in FIELD[algorithm].kinds.items():
            assert float(shown[kind][column]) == value
        assert float(shown["the report's own mix"][column]) == FIELD[algorithm].mean
        assert float(shown["the same at 128K tokens of context"][column]) == LONG_CONTEXT[algorithm][1]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


VERDICTS = (DOCS / "verdicts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*Kind, *Reason], ids=str)
def test_the_verdict_rules_name_every_kind_and_reason(word: str) -> None:
    assert re.search(rf"[`(]{word}[`) ]", VERDICTS)


def test_the_verdict_rules_say_the_numbers() -> None:
    assert f"epsilon = clamp({DEFAULT_K:g} x noise floor, {DEFAULT_MINIMUM:g}, {DEFAULT_CAP:g})" in VERDICTS
    assert f"fewer than {MIN_TOKENS} tokens" in VERDICTS
    assert f"at most {SPECULATES_ABOVE:g} tokens a step" in VERDICTS
    assert f"the same {RECONVERGENCE} tokens" in VERDICTS
    assert f"the larger of {MINIMUM_RATE:g} and" in VERDICTS
    assert f"n·r + {SIGMAS:g}·√(n·r) + {BUDGET_SLACK:g} tokens" in VERDICTS
