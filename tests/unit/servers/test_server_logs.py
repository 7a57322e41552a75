"""Following a log, and what a failure says."""

from pathlib import Path

import pytest

from lossless.servers.failure import Failure, exit_words
from lossless.servers.log_tail import LogTail, last_lines, log_text, stage_of


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("[2026-11-29 14:18:17] Load weight begin. avail mem=137.41 GB", "loading weights"),
        ("Multi-thread loading shards:  33% Completed | 1/3 [00:00<00:00, 112.61it/s]", "loading weights 1/3"),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<?, ?it/s]", "loading weights 1/2"),
        (
            "Load weight end. elapsed=0.02 s, type=Qwen3_5ForCausalLMMTP, avail mem=137.37 GB, mem usage=5.53 GB.",
            "weights loaded: Qwen3_5ForCausalLMMTP, 5.53 GB",
        ),
        ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 20000, K size: 0.02 GB", "KV pool: 20000 tokens"),
        ("Capture target verify CUDA graph begin. backend=full, bs=[1, 2]", "capturing graphs: target verify"),
        ("Capturing batches (bs=6 avail_mem=136.44 GB):  38%|###| 3/8 [00:18<02:10]", "capturing graphs 3/8"),
        ("max_total_num_tokens=14161, chunked_prefill_size=8192", "KV pool: 14161 tokens in all"),
        ("[2026] INFO:     Application startup complete.", "answering, warming up"),
        ("Decode batch, #running-req: 1, accept len: 2.90", None),
    ],
)
def test_stages(line: str, stage: str | None) -> None:
    assert stage_of(line) == stage


def test_a_log_is_followed_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    tail = LogTail(path)
    assert tail.new_lines() == []
    with path.open("wb") as log:
        for written, lines in [
            (b"one\ntw", ["one"]),
            (b"o\r 50%\r 100%", ["two", " 50%"]),
            (b"\n\n\xe6\x97", [" 100%"]),
            (b"\xa5\n", ["日"]),
            (b"", []),
        ]:
            log.write(written)
            log.flush()
            assert tail.new_lines() == lines


def test_the_text_of_a_long_log_keeps_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"skipped\n" + b"first\n" + b"x" * (3 << 20) + b"\nlast\n")
    text = log_text(path, start=8)
    assert text.startswith("first\n")
    assert text.endswith("\nlast\n")
    assert "[...]" in text
    assert len(text) < 1.1 * (1 << 20)
    assert log_text(tmp_path / "none.log") == ""


def test_last_lines_skip_blank_ones() -> None:
    assert last_lines("a\n\nb\n  \nc\n", 2) == "    b\n    c"


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit status 0"), (2, "exit status 2"), (-9, "killed by SIGKILL"), (-200, "killed by signal 200")],
)
def test_exit_words(code: int, words: str) -> None:
    assert exit_words(code) == words


def failure(log: str, tmp_path: Path) -> Failure:
    return Failure(
        name="nextn",
        happened="ended while starting (exit status 1)",
        command=("python", "-m", "x", "--api-key", "keykeykey", "two words"),
        exit_code=1,
        log_text=log,
        log_path=tmp_path / "nextn.log",
        secrets=("hush-hush",),
    )


def test_a_failure_shows_the_end_of_the_log_and_the_command(tmp_path: Path) -> None:
    error = failure("".join(f"line {i}\n" for i in range(100)), tmp_path).start_error(None)
    assert "server 'nextn' ended while starting (exit status 1)" in error.message
    assert "line 99" in error.message
    assert "line 75" in error.message
    assert "line 74" not in error.message
    assert "'two words'" in error.message
    assert str(tmp_path / "nextn.log") in (error.hint or "")


def test_a_failure_shows_no_keys(tmp_path: Path) -> None:
    text = str(failure("api_key='abcabcabc'\nTOKEN hush-hush\n", tmp_path).died(None))
    assert not any(secret in text for secret in ("keykeykey", "abcabcabc", "hush-hush"))


def test_an_explanation_comes_first_and_sees_the_whole_log(tmp_path: Path) -> None:
    seen: list[str] = []

    def explain(log: str) -> str | None:
        seen.append(log)
        return "out of state slots: raise --max-mamba-cache-size"

    log = "first line\n" * 200
    message = failure(log, tmp_path).died(explain).message
    assert seen == [log]
    assert message.splitlines()[0].endswith("(exit status 1): out of state slots: raise --max-mamba-cache-size")


@pytest.mark.parametrize(
    ("log", "hint"),
    [
        ("launch_server: error: unrecognized arguments: --page-sise 1", "does not know --page-sise 1"),
        ("launch_server: error: argument --page-size: invalid int value: 'x'", "refuses the value of --page-size"),
        ("/usr/bin/python: Error while finding module: No module named 'sglang'", "LOSSLESS_SGLANG_PYTHON"),
        ("/usr/bin/python: No module named sglang.launch_server", "LOSSLESS_SGLANG_PYTHON"),
    ],
)
def test_simple_mistakes_are_named(tmp_path: Path, log: str, hint: str) -> None:
    assert hint in (failure(log, tmp_path).start_error(None).hint or "")
