"""What identifies a model folder."""

import json
from pathlib import Path

import pytest

from lossless.errors import UsageError
from lossless.record.model import ModelFacts, model_facts
from lossless.reference.builtin import builtin_path


def make(folder: Path, *, config: object = None, generation: object = None, weights: bytes = b"w" * 100) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 5} if config is None else config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_the_shipped_model() -> None:
    facts = model_facts(builtin_path() / "target")
    assert facts.eos_ids == (0, 1)
    assert facts.digest is not None
    assert len(facts.digest) == 64


@pytest.mark.parametrize(
    ("config", "generation", "eos"),
    [
        ({"eos_token_id": 5}, None, (5,)),
        ({"eos_token_id": [7, 5]}, None, (5, 7)),
        ({"eos_token_id": None}, {"eos_token_id": [9]}, (9,)),
        ({"text_config": {"eos_token_id": 3}}, {"eos_token_id": 4}, (3, 4)),
        ({"text_config": None}, [], ()),
        ({}, None, ()),
    ],
)
def test_end_of_sequence_ids(tmp_path: Path, config: object, generation: object, eos: tuple[int, ...]) -> None:
    assert model_facts(make(tmp_path / "m", config=config, generation=generation)).eos_ids == eos


def test_the_digest_sees_config_name_size_and_content(tmp_path: Path) -> None:
    digests = {
        model_facts(make(tmp_path / "a")).digest,
        model_facts(make(tmp_path / "b", weights=b"w" * 99 + b"x")).digest,
        model_facts(make(tmp_path / "c", weights=b"w" * 101)).digest,
        model_facts(make(tmp_path / "d", config={"eos_token_id": 6})).digest,
        model_facts(make(tmp_path / "e", generation={"eos_token_id": 5})).digest,
    }
    assert len(digests) == 5
    assert model_facts(make(tmp_path / "f")).digest in digests, "the folder's own name does not matter"


def test_what_is_no_folder_has_no_facts(tmp_path: Path) -> None:
    assert model_facts(None) == model_facts(tmp_path / "absent") == ModelFacts(None, ())


def test_a_folder_without_a_readable_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is not a model folder"):
        model_facts(tmp_path / "empty")
    (make(tmp_path / "bad") / "config.json").write_text("{")
    with pytest.raises(UsageError, match="is not valid JSON"):
        model_facts(tmp_path / "bad")
