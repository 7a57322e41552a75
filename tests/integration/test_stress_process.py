"""A server process that dies under stress: red with the diagnosis, and nothing else is lost."""

import json

import pytest
from small_suite import SmallSuite

pytestmark = pytest.mark.slow  # three processes, stressed twice

PROMPTS = """\
[[prompt]]
id = "story"
user = "Tell a short story about a fox."
sampling = { max_new_tokens = 32 }

[[prompt]]
id = "table"
user = "Write the multiplication table of 5 up to 7."
group = "stress"
sampling = { max_new_tokens = 24, ignore_eos = true }

[[prompt]]
id = "list"
user = "List five animals, one on each line, and then five plants."
group = "stress"
sampling = { max_new_tokens = 24, ignore_eos = true }
"""
# three to warm up, three alone, one at once, one with logprobs: the next one belongs to the stress test
FIRST_UNDER_STRESS = 9
OPTIONS = ("--lossless-epsilon", "0.001")  # so few tokens give no noise floor of their own


def test_a_death_is_red_with_the_diagnosis_and_is_kept(small_suite: SmallSuite) -> None:
    (small_suite.folder / "prompts.toml").write_text(PROMPTS, encoding="utf-8")
    outcome = small_suite.run(*OPTIONS, "--lossless-fault", f"die-at-request:{FIRST_UNDER_STRESS}")
    assert outcome.status == 1, outcome.output
    failed = [line for line in outcome.output.splitlines() if line.startswith("FAILED")]
    assert failed
    assert all("test_stress.py" in line for line in failed), "all else was answered before"
    assert "nextn died under stress" in outcome.output
    assert "exit status 1" in outcome.output
    assert not small_suite.servers()
    evidence = small_suite.evidence()
    assert evidence["status"] == "inconclusive"
    assert {v["verdict"] for v in evidence["verdicts"]} == {"identical"}
    found = {s["server"]: s for s in evidence["survival"]}
    assert (found["baseline"]["ok"], found["nextn"]["ok"], found["dflash"]["ok"]) == (True, False, False)
    assert "ended while it was needed" in found["nextn"]["problem"]

    again = small_suite.lossless("verify", "latest", "--json")
    assert again.status == 3, again.output
    assert json.loads(again.output)["survival"] == evidence["survival"]


def test_an_honest_run_survives(small_suite: SmallSuite) -> None:
    (small_suite.folder / "prompts.toml").write_text(PROMPTS, encoding="utf-8")
    outcome = small_suite.run(*OPTIONS)
    assert outcome.status == 0, outcome.output
    assert outcome.output.count("survived 2 x ") == 3
    assert "no prompt of this set has a known answer" in outcome.output
    assert all(s["ok"] for s in small_suite.evidence()["survival"])


def test_a_variant_that_loses_the_answer_is_red(small_suite: SmallSuite) -> None:
    """The tiny model's own answer stands for a right one; the fault makes the variants say another number."""
    prompt = '[[prompt]]\nid = "sum"\nuser = "What is 98 - 5?"\nexpect = "The answer is 92"\n'
    (small_suite.folder / "prompts.toml").write_text(prompt, encoding="utf-8")
    only = ("tests/lossless/test_long.py", *OPTIONS)
    lost = small_suite.run(*only, "--lossless-fault", "accept-unverified:1")
    assert lost.status == 1, lost.output
    assert "sum: only the baseline finds 'The answer is 92'; as a pair: divergent" in lost.output
    assert small_suite.evidence()["needles"]["dflash"] == {"asked": 1, "found": []}
    honest = small_suite.run(*only)
    assert honest.status == 0, honest.output
    assert honest.count("passed") == 2
