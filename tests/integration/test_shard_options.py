"""``--lossless-shard`` and its twin in pyproject.toml. No server is started here."""

import pytest

from lossless.prompts import load_prompts

TEST = """
    import pytest

    @pytest.mark.lossless
    def test_it(lossless_prompt):
        assert lossless_prompt
"""


def collected(pytester: pytest.Pytester, *args: str) -> set[str]:
    result = pytester.runpytest_subprocess("--collect-only", "-q", *args)
    assert result.ret == 0, result.outlines
    return {line.split("[")[1].rstrip("]") for line in result.outlines if "test_it[" in line}


@pytest.mark.parametrize(
    ("shard", "message"),
    [
        ("0/2", "must be from 1 to 2"),
        ("5/9", "no prompt of 'quick' belongs to it: its 9 prompts form 9 families"),
    ],
)
def test_a_wrong_or_empty_shard_ends_the_command_at_once(pytester: pytest.Pytester, shard: str, message: str) -> None:
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess("--lossless-prompts", "quick", "--lossless-shard", shard)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_shards_divide_the_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    pytester.makepyprojecttoml('[tool.lossless]\nprompts = "quick"\nshard = "1/2"\n')
    one = collected(pytester)
    two = collected(pytester, "--lossless-shard", "2/2")
    assert one
    assert two
    assert not one & two
    assert one | two == {p.id for p in load_prompts("quick").prompts}
