"""The run folder: what is written can be read, and what is damaged is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_server import make_store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lossless.errors import UsageError
from lossless.record.runs import find_run, new_run_path, resumable, stored_runs
from lossless.record.store import Record, RunStore, ServerState, output_digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\n\u2028é", max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return make_store(tmp_path / "run")


def test_what_is_created_is_read_back(store: RunStore) -> None:
    again = RunStore.open(store.path)
    assert again.manifest.variants == ("nextn", "dflash")
    assert [p.id for p in again.prompts] == list("abcdef")
    assert again.prompts[5].sampling.repetition_penalty == 1.5
    assert again.goldens == {}
    assert not again.complete
    assert again.server("nextn") is None


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.text(max_size=5), st.integers(0, 3))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_answer_survives_the_disk(store: RunStore, answer: dict[str, Any], prompt: str, turn: int) -> None:
    try:
        json.dumps([answer, prompt], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # lone surrogates are no text
    store.forget("nextn")
    record = Record("plain", prompt, turn, wall_s=0.25, answer=answer)
    store.append("nextn", record)
    store.append("nextn", Record("plain", "next", error="later"))
    assert next(iter(store.records("nextn"))) == record
    assert len(list(store.records("nextn"))) == 2


def test_damaged_lines_are_skipped_and_dropped(store: RunStore) -> None:
    good = Record("plain", "a", answer={"x": 1})
    store.append("nextn", good)
    path = store.path / "records" / "nextn.jsonl"
    with path.open("ab") as file:
        file.write(b'\n{"stage": 5}\n\xff\xfe\n{"stage":"plain","prompt":"b","answ')
    assert list(store.records("nextn")) == [good]
    store.drop_stages("nextn", frozenset())
    store.append("nextn", Record("plain", "b", answer={"x": 2}))
    assert [r.prompt for r in store.records("nextn")] == ["a", "b"]


def test_dropping_stages_keeps_the_others(store: RunStore) -> None:
    for stage in ("plain", "hit", "hit", "order"):
        store.append("nextn", Record(stage, "a", answer={}))
    store.drop_stages("nextn", frozenset({"hit"}))
    assert [r.stage for r in store.records("nextn")] == ["plain", "order"]


def test_a_folder_without_run_json_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a recorded run \(it has no run\.json\)"):
        RunStore.open(tmp_path)


def test_another_format_is_refused(store: RunStore) -> None:
    manifest = json.loads((store.path / "run.json").read_text())
    (store.path / "run.json").write_text(json.dumps({**manifest, "schema": 99}))
    with pytest.raises(UsageError, match="evidence format 99, this version reads 1"):
        RunStore.open(store.path)


@pytest.mark.parametrize("name", ["run.json", "prompts.json", "goldens.json"])
@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xff", b""])
def test_damaged_files_are_named(store: RunStore, name: str, content: bytes) -> None:
    (store.path / name).write_bytes(content)
    with pytest.raises(UsageError, match=rf"{name} is damaged"):
        _ = store.manifest, store.prompts, store.goldens


def test_a_missing_file_is_named(store: RunStore) -> None:
    (store.path / "prompts.json").unlink()
    with pytest.raises(UsageError, match=r"the run has no prompts\.json"):
        _ = store.prompts


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "a\\b", "a b", "x\n"])
def test_server_names_never_become_paths_unchecked(store: RunStore, name: str) -> None:
    for call in (store.server, store.forget, store.log_path, store.records):
        with pytest.raises(UsageError, match="cannot be a file name"):
            list(call(name) or ())  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="cannot be a file name"):
        store.write_server(ServerState(name, complete=False))


def test_digests_tell_prompt_from_output() -> None:
    assert output_digest((1, 2), (3,)) != output_digest((1,), (2, 3))
    assert output_digest((12,), (3,)) != output_digest((1,), (23,))
    assert output_digest((1,), (2,)) == output_digest((1,), (2,))


# ------------------------------------------------------------------------------ finding
def finished(store: RunStore) -> None:
    for name in ("nextn", "dflash", "baseline"):
        store.write_server(ServerState(name, complete=True))


def test_runs_are_found_newest_first(tmp_path: Path) -> None:
    for name in ("20260101T000000.000-p-key", "20260301T000000.000-p-key", "20260201T000000.000-p-key"):
        make_store(tmp_path / name)
    (tmp_path / "no-run").mkdir()
    assert [s.path.name[:6] for s in stored_runs(tmp_path)] == ["202603", "202602", "202601"]
    assert find_run(tmp_path, "latest").path.name.startswith("202603")
    assert find_run(tmp_path, "202602").path.name.startswith("202602")
    assert find_run(tmp_path, str(tmp_path / "20260101T000000.000-p-key")).path.name.startswith("202601")
    with pytest.raises(UsageError, match="could be any of"):
        find_run(tmp_path, "2026")
    with pytest.raises(UsageError, match="no run 'nope'"):
        find_run(tmp_path, "nope")
    with pytest.raises(UsageError, match="newest: none"):
        find_run(tmp_path / "empty", "latest")


def test_only_the_newest_unfinished_run_of_the_same_plan_is_resumed(tmp_path: Path) -> None:
    older, newer = make_store(tmp_path / "1"), make_store(tmp_path / "2")
    found = resumable(tmp_path, "key")
    assert found is not None
    assert found.path == newer.path
    assert resumable(tmp_path, "another") is None
    finished(newer)
    assert resumable(tmp_path, "key") is None, "a finished run is not continued, nor skipped for an older one"
    (newer.path / "run.json").write_bytes(b"damaged")
    found = resumable(tmp_path, "key")
    assert found is not None
    assert found.path == older.path


@pytest.mark.parametrize("problem", ["1 requests failed", None])
def test_a_run_with_a_problem_is_unfinished(tmp_path: Path, problem: str | None) -> None:
    store = make_store(tmp_path / "1")
    finished(store)
    assert store.complete
    store.write_server(ServerState("nextn", complete=problem is not None, problem=problem))
    assert not store.complete
    assert resumable(tmp_path, "key") is not None


def test_names_of_new_runs_sort_by_time(tmp_path: Path) -> None:
    names = [new_run_path(tmp_path, "tiny", "0123456789").name for _ in range(3)]
    assert names == sorted(names)
    assert names[0].endswith("-tiny-01234567")
    assert list(tmp_path.iterdir()) == []
