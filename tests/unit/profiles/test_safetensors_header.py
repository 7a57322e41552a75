"""Reading what a safetensors file says of its tensors."""

import json
import struct
from pathlib import Path

import pytest
from model_folders import write_safetensors

from lossless.errors import UsageError
from lossless.profiles.safetensors_header import TensorInfo, read_header
from lossless.reference.builtin import builtin_path


def test_types_shapes_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": ("BF16", (3, 5)), "b": ("F8_E4M3", (2, 2)), "c": ("I32", ()), "d": ("F32", (0, 4))})
    header = read_header(path)
    assert header == {
        "a": TensorInfo("BF16", (3, 5)),
        "b": TensorInfo("F8_E4M3", (2, 2)),
        "c": TensorInfo("I32", ()),
        "d": TensorInfo("F32", (0, 4)),
    }
    assert [info.size_bytes for info in header.values()] == [30, 4, 4, 0]
    assert [info.dense for info in header.values()] == [True, False, False, True]


def test_four_bit_types_take_half_a_byte() -> None:
    assert TensorInfo("F4", (4, 2)).size_bytes == 4


def test_the_shipped_model() -> None:
    header = read_header(builtin_path() / "target" / "model_mtp.safetensors")
    assert len(header) == 15
    assert header["mtp.fc.weight"] == TensorInfo("BF16", (256, 512))
    assert sum(info.size_bytes for info in header.values()) == 2 * 1_148_416  # the model card's parameters


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "broken"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "pointer of Git LFS"),
        (b"\xff" * 16, "broken"),
        (struct.pack("<Q", 2) + b"[]", "broken"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as caught:
        read_header(path)
    assert "x.safetensors" in caught.value.message
    assert caught.value.hint


def test_a_shape_that_does_not_fit_its_bytes(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 8]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(UsageError, match="broken"):
        read_header(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.safetensors is missing"):
        read_header(tmp_path / "none.safetensors")
    with pytest.raises(UsageError, match="cannot be read"):
        read_header(tmp_path)
