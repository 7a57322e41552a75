"""Which replacements a version of SGLang gets, and that one which does not fit is noticed. No SGLang is imported."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lossless.sglang_cpu import SGLANG_VERSIONS, site_path


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(site_path()))
    spec = importlib.util.spec_from_file_location(name, site_path() / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("sglang_cpu_texts", monkeypatch)


def test_every_version_that_can_be_built_has_its_texts(texts: ModuleType) -> None:
    assert tuple(texts.BY_VERSION) == SGLANG_VERSIONS
    assert SGLANG_VERSIONS[-1] == texts.NEWEST


@pytest.mark.parametrize("version", SGLANG_VERSIONS)
def test_a_version_gets_the_common_texts_and_its_own(texts: ModuleType, version: str) -> None:
    found = texts.texts(version)
    for part in (texts.COMMON, texts.BY_VERSION[version]):
        for module, entries in part.items():
            assert [entry for entry in entries if entry not in found[module]] == []
    for old, new, count in [entry for entries in found.values() for entry in entries]:
        assert old != new
        assert count >= 1


def test_an_unknown_version_gets_the_newest_texts(texts: ModuleType) -> None:
    assert texts.texts("0.6.0") == texts.texts(texts.NEWEST)


def test_a_module_in_which_a_text_is_missing_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = load("sglang_cpu_patches", monkeypatch)
    monkeypatch.setattr(patches, "_texts", lambda: {"sglang.fits": [("1", "2", 1)], "sglang.other": [("1", "2", 1)]})
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "fits.py").write_text("value = 1\n")
    (package / "other.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("sglang", "sglang.fits", "sglang.other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [patches._Finder(), *sys.meta_path])
    assert importlib.import_module("sglang.fits").value == 2
    with pytest.raises(ImportError, match=r"sglang\.other: expected 1 times, found 0: '1' \(other SGLang version\?\)"):
        importlib.import_module("sglang.other")
    for name in ("sglang", "sglang.fits", "sglang.other"):
        sys.modules.pop(name, None)
