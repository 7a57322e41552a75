"""What must hold before any verdict counts."""

import pytest

from lossless.analysis import Analysis, Control

pytestmark = pytest.mark.lossless


def _control(run: Analysis, name: str, scope: str = "baseline") -> Control:
    return next(c for c in run.controls if (c.name, c.scope) == (name, scope))


def test_the_baseline_agrees_with_itself(lossless_run: Analysis) -> None:
    control = _control(lossless_run, "repeatable")
    assert control.ok, control.detail


def test_the_noise_floor_is_measured(lossless_run: Analysis) -> None:
    control = _control(lossless_run, "noise floor")
    assert control.ok, control.detail


def test_the_baseline_does_not_speculate(lossless_run: Analysis) -> None:
    control = _control(lossless_run, "no speculation")
    assert control.ok, control.detail


def test_the_servers_are_a_pair(lossless_run: Analysis, lossless_variant: str) -> None:
    control = _control(lossless_run, "pair", lossless_variant)
    assert control.ok, control.detail


def test_speculation_is_on(lossless_run: Analysis, lossless_variant: str) -> None:
    control = _control(lossless_run, "speculation", lossless_variant)
    assert control.ok, control.detail
