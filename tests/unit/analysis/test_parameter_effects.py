"""A parameter that changes nothing for one answer is no finding, one that changes nothing anywhere is."""

from dataclasses import replace
from typing import Any

from lossless.analysis import Analysis
from lossless.analysis.parameters import changed_parameters, shown_by, shows
from lossless.protocol import Sampling

PLAIN, MIN, PENALTY = Sampling(96), Sampling(96, min_new_tokens=40), Sampling(96, frequency_penalty=1.0)
PROMPTS = {"a": PLAIN, "a-min": MIN, "a-penalty": PENALTY, "b": PLAIN, "b-min": MIN, "c-min": MIN}


def analysis(make_run: Any, **said: str) -> Analysis:
    run = make_run(PROMPTS)
    for prompt, text in {"a": "one", "b": "two", **said}.items():
        run.says("baseline", prompt.replace("_", "-"), text)
    found = run.analysis()
    for prompt in ("a-min", "a-penalty", "b-min", "c-min"):
        found.prompts[prompt] = replace(found.prompts[prompt], same_as=prompt[0] if prompt[0] != "c" else "a")
    return found


def test_what_a_prompt_changes(make_run: Any) -> None:
    found = analysis(make_run)
    assert changed_parameters(found, found.prompts["a-min"]) == {"min_new_tokens"}
    assert changed_parameters(found, found.prompts["a-penalty"]) == {"frequency_penalty"}
    assert changed_parameters(found, found.prompts["a"]) == frozenset()


def test_the_same_parameter_shows_on_another_prompt(make_run: Any) -> None:
    found = analysis(make_run, a_min="one", b_min="two and more", a_penalty="one")
    assert not shows(found, found.prompts["a-min"])
    assert shown_by(found, found.prompts["a-min"]) == "b-min"
    assert shown_by(found, found.prompts["a-penalty"]) is None, "another parameter says nothing about this one"


def test_a_missing_answer_shows_nothing(make_run: Any) -> None:
    found = analysis(make_run, a_min="one", b_min="two")
    assert shown_by(found, found.prompts["c-min"]) is None
