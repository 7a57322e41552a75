"""What the command line may change in a profile, and which profiles count as the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from lossless.errors import UsageError
from lossless.profiles import EpsilonBounds, Profile, Variant, load_profile, profile_digest, with_overrides

URL = "http://127.0.0.1:3000"


@pytest.fixture
def tiny() -> Profile:
    return load_profile("tiny")


@pytest.fixture
def qwen() -> Profile:
    return load_profile("qwen3.8-27b-int4-32gb")


def test_nothing_given_changes_nothing(tiny: Profile) -> None:
    assert with_overrides(tiny) == tiny


def test_target_and_draft(qwen: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.chdir(tmp_path)
    changed = with_overrides(replace(qwen, tokenizer="org/tok"), target="t", draft="org/other-draft")
    assert changed.target == str(tmp_path / "t")
    assert changed.tokenizer_source == changed.target, "the old tokenizer belonged to the old target"
    assert changed.draft_of("nextn") == changed.target
    assert changed.draft_of("dflash") == "org/other-draft"
    assert qwen.variants["dflash"].draft == "incoai/Qwen3.8-27B-DFlash2"


def test_a_head_named_by_the_targets_path_moves_with_the_target(qwen: Profile) -> None:
    own_head = replace(qwen.variants["nextn"], draft=qwen.target)
    changed = with_overrides(
        replace(qwen, variants={**qwen.variants, "nextn": own_head}), target="org/t", draft="org/d"
    )
    assert (changed.draft_of("nextn"), changed.draft_of("dflash")) == ("org/t", "org/d")


def test_prompts_and_length(tiny: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changed = with_overrides(tiny, prompts="mine.json", max_new_tokens=7)
    assert (changed.prompts, changed.max_new_tokens) == (str(tmp_path / "mine.json"), 7)
    assert with_overrides(tiny, prompts="quick").prompts == "quick"
    with pytest.raises(UsageError, match="must be at least 1"):
        with_overrides(tiny, max_new_tokens=0)


def test_addresses_make_it_an_attach_profile(tiny: Profile) -> None:
    changed = with_overrides(tiny, baseline_url=URL + "/", variant_urls={"dflash": "http://h:1", "mine": "http://h:2"})
    assert (changed.kind, changed.target, changed.baseline.url) == ("attach", "auto", URL)
    assert list(changed.variants) == ["dflash", "mine"]
    assert [v.algorithm for v in changed.variants.values()] == ["DFLASH", None]
    assert changed.args == {}
    assert changed.env == {}


def test_addresses_with_a_target_keep_it(tiny: Profile) -> None:
    changed = with_overrides(tiny, target="org/t", baseline_url=URL, variant_urls={"x": "http://h:1"})
    assert (changed.kind, changed.target) == ("attach", "org/t")


def test_one_address_of_an_attach_profile_can_change() -> None:
    profile = load_profile("template-attach")
    changed = with_overrides(profile, variant_urls={"nextn": "http://h:9"})
    assert changed.baseline.url == profile.baseline.url
    assert changed.variants["nextn"].url == "http://h:9"


@pytest.mark.parametrize(
    ("changes", "expected", "hint"),
    [
        ({"draft": "org/d"}, "without a target", "--lossless-target"),
        ({"target": "org/t"}, "the draft builtin:tiny, which was not made for it", "--lossless-draft"),
        ({"baseline_url": URL}, "without any variant's", "--lossless-variant-url"),
        ({"variant_urls": {"x": URL}}, "without the baseline's", "--lossless-baseline-url"),
        ({"draft": "d", "baseline_url": URL, "variant_urls": {"x": URL}}, "has loaded its draft already", "leave out"),
        ({"baseline_url": "nonsense", "variant_urls": {"x": URL}}, "'nonsense' is not an address", ""),
        ({"baseline_url": URL, "variant_urls": {"../x": URL}}, "cannot name a variant", ""),
        ({"baseline_url": URL, "variant_urls": {"baseline": URL}}, "cannot name a variant", ""),
    ],
)
def test_impossible_combinations(tiny: Profile, changes: dict[str, str], expected: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_overrides(tiny, **changes)  # type: ignore[arg-type]
    assert expected in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_draft_that_no_variant_uses(qwen: Profile) -> None:
    only_nextn = replace(qwen, variants={"nextn": qwen.variants["nextn"]})
    with pytest.raises(UsageError, match=r"no variant of profile .* uses one: nextn \(NEXTN\)"):
        with_overrides(only_nextn, draft="org/d")


def test_a_draft_that_could_be_for_several(qwen: Profile) -> None:
    eagle = Variant(name="eagle", algorithm="EAGLE3", draft="org/eagle")
    with pytest.raises(UsageError, match=r"different ones: dflash .*, eagle \(org/eagle\)"):
        with_overrides(replace(qwen, variants={**qwen.variants, "eagle": eagle}), draft="org/d")


def test_a_draft_for_attached_servers() -> None:
    with pytest.raises(UsageError, match="attaches to running servers"):
        with_overrides(load_profile("template-attach"), draft="org/d")


def test_the_digest_of_a_file_is_always_the_same(tiny: Profile) -> None:
    assert profile_digest(tiny) == profile_digest(load_profile("tiny"))
    assert len(profile_digest(tiny)) == 64


def test_the_digest_sees_what_changes_answers(tiny: Profile) -> None:
    nextn = tiny.variants["nextn"]
    changed = [
        replace(tiny, target="x"),
        replace(tiny, dtype="bfloat16"),
        replace(tiny, args={"page-size": 1}),
        replace(tiny, env={"A": "1"}),
        replace(tiny, max_new_tokens=3),
        replace(tiny, concurrency=2),
        replace(tiny, variants={"nextn": nextn}),
        replace(tiny, variants={**tiny.variants, "nextn": replace(nextn, args={})}),
        replace(tiny, command=("python", "-m", "other")),
    ]
    digests = {profile_digest(profile) for profile in [tiny, *changed]}
    assert len(digests) == len(changed) + 1


def test_the_digest_ignores_what_does_not(tiny: Profile) -> None:
    same = [
        replace(tiny, name="other", description="other"),
        replace(tiny, start_deadline_s=1, request_timeout_s=1, parallel_servers=5),
        replace(tiny, epsilon=EpsilonBounds(k=9)),
        replace(tiny, command=("/another/python", *tiny.command[1:])),
        replace(tiny, args={**tiny.args, "never-given": False}),
    ]
    assert {profile_digest(profile) for profile in same} == {profile_digest(tiny)}
