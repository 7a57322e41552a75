"""Names of cards from nvidia-smi's list."""

import pytest

from lossless.bench.machine import card_names, describe_machine

LISTING = """\
0, GPU-aaa, NVIDIA H200, 143771
1, GPU-bbb, NVIDIA H200, 143771
2, GPU-ccc, NVIDIA GeForce RTX 4080 SUPER, 32760
"""


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ((), "2 x NVIDIA H200, 140 GB; NVIDIA GeForce RTX 4080 SUPER, 32 GB"),
        (("0",), "NVIDIA H200, 140 GB"),
        (("2",), "NVIDIA GeForce RTX 4080 SUPER, 32 GB"),
        (("GPU-b", "0"), "2 x NVIDIA H200, 140 GB"),
        (("7",), None),
    ],
)
def test_cards_by_index_or_id(cards: tuple[str, ...], words: str | None) -> None:
    assert card_names(LISTING, cards) == words


def test_a_line_without_memory_still_has_a_name() -> None:
    assert card_names("0, GPU-x, Some Card, [N/A]\n", ()) == "Some Card"


def test_a_processor_has_a_name_and_threads() -> None:
    found = describe_machine(on_gpu=False)
    assert found is not None
    assert found.endswith(" threads")


def test_without_nvidia_smi_the_card_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("LOSSLESS_GPU", raising=False)
    assert describe_machine(on_gpu=True) is None
    monkeypatch.setenv("LOSSLESS_GPU", "NVIDIA H200")
    assert describe_machine(on_gpu=True) == "NVIDIA H200"
