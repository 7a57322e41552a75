"""Options: where they may be given, and what wrong ones say. No server is started here."""

import pytest

TEST = """
    import pytest

    @pytest.mark.lossless
    def test_it(lossless_variant, lossless_prompt):
        assert lossless_variant and lossless_prompt
"""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--lossless-profile", "tinny"), "tiny"),
        (("--lossless-prompts", "standrad"), "standrad"),
        (("--lossless-epsilon", "-1"), "must be above 0"),
        (("--lossless-max-new-tokens", "0"), "at least 1"),
        (("--lossless-variant-url", "nextn"), "expected NAME=URL"),
        (("--lossless-variant-url", "nextn=http://127.0.0.1:1"), "without the baseline's"),
        (("--lossless-baseline-url", "http://127.0.0.1:1"), "without any variant's"),
        (("--lossless-profile", "tiny-sglang-cpu", "--lossless-fault", "accept-unverified"), "embedded engine only"),
    ],
)
def test_a_wrong_option_ends_the_command_at_once(
    pytester: pytest.Pytester, args: tuple[str, ...], message: str
) -> None:
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_options_have_twins_in_pyproject(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.makepyprojecttoml('[tool.lossless]\nprompts = "quick"\nprofile = "tiny"\n')
    result = pytester.runpytest_subprocess("--collect-only", "-q")
    lines = [line for line in result.outlines if "test_it[" in line]
    assert len(lines) == 2 * len({line.split("[")[1] for line in lines}) / 2
    assert any("nextn-" in line for line in lines)
    assert any("dflash-" in line for line in lines)


def test_the_command_line_wins_over_pyproject(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.makepyprojecttoml('[tool.lossless]\nprompts = "full"\n')
    quick = pytester.runpytest_subprocess("--collect-only", "-q", "--lossless-prompts", "quick").outlines
    full = pytester.runpytest_subprocess("--collect-only", "-q").outlines
    assert 0 < len([x for x in quick if "test_it[" in x]) < len([x for x in full if "test_it[" in x])


def test_an_unknown_key_in_pyproject_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.makepyprojecttoml('[tool.lossless]\nprofil = "tiny"\n')
    result = pytester.runpytest_subprocess()
    assert result.ret != 0
    assert "unknown key 'profil', did you mean 'profile'?" in result.stdout.str() + result.stderr.str()


def test_other_tests_do_not_start_anything(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain():\n    assert True\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert "lossless" not in result.stdout.str().replace("plugins:", "").split("collected")[1]
    assert not (pytester.path / ".lossless").exists()


def test_help_lists_the_options(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--help")
    names = "profile target draft prompts baseline-url variant-url max-new-tokens epsilon strict resume fault gpus"
    for name in names.split():
        assert f"--lossless-{name}" in result.stdout.str()


BROKEN = """
description = "its interpreter is not there"
kind = "sglang"
target = "builtin:tiny"
dtype = "float32"
command = ["/no/such/python", "-m", "sglang.launch_server"]
[variants.nextn]
algorithm = "NEXTN"
"""


@pytest.mark.parametrize(("workers", "errors"), [((), 1), (("-n", "2"), 2)])
def test_what_keeps_the_run_from_starting_is_told_once_a_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...], errors: int
) -> None:
    monkeypatch.delenv("CI", raising=False)  # there pytest repeats whole messages in its summary
    pytester.makepyfile(TEST.replace("lossless_variant,", "lossless_run, lossless_variant,"))
    (pytester.path / "broken.toml").write_text(BROKEN, encoding="utf-8")
    result = pytester.runpytest_subprocess("--lossless-profile", "broken.toml", "--lossless-prompts", "quick", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(errors=errors, skipped=9 - errors)
    shown = result.stdout.str()
    assert shown.count("cannot run '/no/such/python': No such file or directory") == errors
    assert "direct cause" not in shown
