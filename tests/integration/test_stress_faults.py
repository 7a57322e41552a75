"""Planted faults that only load shows turn the stress test red, and the server's own routes end requests for real."""

import time
from collections.abc import Iterator

import httpx
import pytest
from fault_runs import CHUNK, TARGET, VARIANTS, FaultRuns

from lossless.errors import ProtocolError
from lossless.prompts import PromptSet, Tokenizer, load_prompts
from lossless.protocol import Client, GenerateRequest, Sampling
from lossless.record import stress as module
from lossless.record.plan import AFTER, STRESS
from lossless.reference.background import background
from lossless.report.evidence import status
from lossless.verdict import Kind

PROMPTS = ("list", "stress-story")
IDS = Tokenizer.from_folder(TARGET).encode_text("Tell a short story about a fox named Nadia and a lantern.")
ENDLESS = Sampling(max_new_tokens=3000, ignore_eos=True)  # half a minute of decoding, if nobody ends it


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRuns]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CUT_OFF", 3), ("BURST_TIMES", 1), ("BURST_LEAST", 4)):
            patch.setattr(module, name, value)
        prompts: PromptSet = load_prompts("stress").select(PROMPTS)
        with background(CHUNK) as url:
            yield FaultRuns(tmp_path_factory.mktemp("stress"), url, prompts, 16)


def test_an_honest_server_survives(runs: FaultRuns) -> None:
    analysis = runs.run("dflash", "accept-length-halved", PROMPTS)
    base, variant = analysis.survival
    assert (base.ok, variant.ok) == (True, True), variant.detail
    assert variant.facts is not None
    assert (variant.facts.aborts, variant.facts.aborted, variant.facts.disconnects) == (3, 3, 3)
    assert {j.verdict.kind for j in variant.judged} == {Kind.IDENTICAL}
    assert status(analysis, list(analysis.verdicts())) == "proven"


def test_batch_mixing_is_seen_under_stress_and_nowhere_else(runs: FaultRuns) -> None:
    analysis = runs.run("nextn", "batch-mixed:2", PROMPTS)
    variant = analysis.survival[1]
    assert not variant.ok
    assert {j.stage for j in variant.judged if j.verdict.kind is Kind.DIVERGENT} == {STRESS}
    assert {j.verdict.kind for j in analysis.verdicts()} <= {Kind.IDENTICAL, Kind.NEAR_TIE, Kind.DIVERGENT}
    assert status(analysis, list(analysis.verdicts())) == "divergent"


def test_an_answer_that_changes_from_request_to_request_is_seen(runs: FaultRuns) -> None:
    analysis = runs.run("nextn", "not-repeatable:20", PROMPTS)
    variant = analysis.survival[1]
    assert not variant.ok
    assert any(not j.verdict.passed() for j in variant.judged if j.stage in (STRESS, AFTER))
    assert status(analysis, list(analysis.verdicts())) != "proven"


def test_a_request_that_fails_under_stress_is_named(runs: FaultRuns) -> None:
    # two to warm up, two alone, one at once, one with logprobs; then the stress test's pair
    analysis = runs.run("nextn", "error-at-request:7", PROMPTS)
    variant = analysis.survival[1]
    assert not variant.ok
    assert "HTTP 500" in variant.detail
    assert status(analysis, list(analysis.verdicts())) == "inconclusive"


@pytest.mark.parametrize("leave", [True, False], ids=["disconnect", "abort"])
@pytest.mark.parametrize("options", [CHUNK, (*CHUNK, *VARIANTS["dflash"])], ids=["plain", "dflash"])
def test_a_request_that_is_cut_off_leaves_the_engine(options: tuple[str, ...], leave: bool) -> None:
    """A request id is refused as long as a request of that name is in the engine."""
    request = GenerateRequest(IDS, ENDLESS, rid="the-same")
    with background(options) as url, Client(url, timeout_s=60) as client:
        assert client.cut_off(request, leave=leave)
        short = GenerateRequest(IDS, Sampling(4, ignore_eos=True), rid="the-same")
        end = time.monotonic() + 10
        while True:
            try:
                answer = client.generate(short)
                break
            except ProtocolError as problem:
                if "Duplicate request ID" not in str(problem) or time.monotonic() > end:
                    raise
        assert len(answer.output_ids) == 4
        client.flush_cache(timeout_s=5)


def test_a_request_that_ends_by_itself_was_not_cut_off() -> None:
    with background(CHUNK) as url, Client(url) as client:
        assert not client.cut_off(GenerateRequest(IDS, Sampling(1)), leave=False)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'data: {"error": {"message": "too long"}}\n\n', "too long"),
        (b"data: {nonsense\n\n", "not of the expected shape"),
        (b'data: {"text": "x"}\n\n', "not of the expected shape"),
    ],
)
def test_a_stream_that_breaks_its_promise_is_told(body: bytes, says: str) -> None:
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, content=body))
    with Client("http://127.0.0.1:1", transport=transport) as client, pytest.raises(ProtocolError, match=says):
        client.cut_off(GenerateRequest(IDS, Sampling(4)), leave=True)


def test_a_refused_stream_is_told() -> None:
    transport = httpx.MockTransport(lambda _request: httpx.Response(400, json={"error": {"message": "no"}}))
    with (
        Client("http://127.0.0.1:1", transport=transport) as client,
        pytest.raises(ProtocolError, match="HTTP 400: no"),
    ):
        client.cut_off(GenerateRequest(IDS, Sampling(4)), leave=True)
