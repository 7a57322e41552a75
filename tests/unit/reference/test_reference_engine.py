"""The engine thread: turns, waiting, aborts, broken requests, figures."""

import queue

import pytest

from lossless.reference.answers import answer
from lossless.reference.engine import Engine
from lossless.reference.faults import Fault
from lossless.reference.requests import Request
from lossless.reference.sampling import SamplingParams


class Sink:
    """Collects what the engine says of one request."""

    def __init__(self):
        self.said = queue.Queue()
        self.seen = []

    def __call__(self, body, last):
        self.seen.append(body.get("output_ids"))
        self.said.put((body, last))

    def last(self):
        while True:
            body, last = self.said.get(timeout=30)
            if last:
                return body


def request(rid, ids, tokens=4, *, stream=False):
    return Request(rid, tuple(ids), SamplingParams(max_new_tokens=tokens, ignore_eos=True), tokens, None, stream)


@pytest.fixture
def start(bench):
    engines = []

    def make(fault=None, max_running=8, kind=None):
        engine = Engine(bench(kind, cached=True).models, fault or Fault(), max_running)
        engine.start()
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.stop()


def test_more_requests_than_places_wait_their_turn(start, prompts, honest):
    engine = start(max_running=2)
    sinks = [Sink() for _ in range(5)]
    for i, sink in enumerate(sinks):
        engine.submit(request(f"r{i}", prompts[i]["ids"]), sink)
    for i, sink in enumerate(sinks):
        assert sink.last()["output_ids"] == honest(None, prompts[i]["ids"], 4, ignore_eos=True).output
    assert engine.pending == 0


def test_an_id_in_flight_is_refused(start, prompts):
    engine = start()
    sink = Sink()
    engine.submit(request("same", prompts[0]["ids"], 400), sink)
    with pytest.raises(ValueError, match="Duplicate request ID detected: same"):
        engine.submit(request("same", prompts[0]["ids"]), Sink())
    engine.abort("same")
    assert sink.last()["meta_info"]["finish_reason"]["type"] == "abort"
    again = Sink()
    engine.submit(request("same", prompts[0]["ids"], 1), again)
    assert again.last()["meta_info"]["completion_tokens"] == 1


def test_a_waiting_request_can_be_aborted(start, prompts):
    engine = start(max_running=1)
    first, second = Sink(), Sink()
    engine.submit(request("first", prompts[0]["ids"], 3000), first)
    engine.submit(request("second", prompts[1]["ids"], 3000), second)
    engine.abort("second")
    engine.abort("first")
    assert first.last()["meta_info"]["finish_reason"]["type"] == "abort"
    body = second.last()
    assert body["output_ids"] == []
    assert body["meta_info"]["finish_reason"]["message"] == "Aborted"


def test_a_broken_request_takes_no_other_down(start, prompts, capsys):
    class Breaks(Fault):
        def prefilled(self, g, *_):
            if g.request.rid == "bad":
                raise RuntimeError("boom")

    engine = start(Breaks())
    bad, good = Sink(), Sink()
    engine.submit(request("bad", prompts[0]["ids"]), bad)
    engine.submit(request("good", prompts[0]["ids"]), good)
    assert bad.last() == {"error": {"message": "Internal error: RuntimeError: boom", "code": 500}}
    assert len(good.last()["output_ids"]) == 4
    assert engine.alive
    assert "boom" in capsys.readouterr().err


def test_a_stream_reports_each_step(start, prompts):
    engine, sink = start(kind="dflash"), Sink()
    engine.submit(request("s", prompts[0]["ids"], 12, stream=True), sink)
    sink.last()
    lengths = [len(ids) for ids in sink.seen]
    assert lengths[0] == 1
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == 12


def test_figures_are_kept_until_a_flush(start, prompts):
    engine, sink = start(kind="nextn"), Sink()
    engine.submit(request("s", prompts[0]["ids"], 16), sink)
    body = sink.last()
    assert engine.stats.tokens == 16
    assert engine.stats.verified == body["meta_info"]["spec_verify_ct"]
    assert 1 < engine.stats.accept_length <= 4
    assert engine.flush()
    assert engine.stats.accept_length is None
    assert len(engine.models.cache) == 0


def test_a_flush_is_refused_while_requests_are_pending(start, prompts):
    engine, sink = start(), Sink()
    engine.submit(request("s", prompts[0]["ids"], 3000), sink)
    assert not engine.flush()
    engine.abort(everything=True)
    sink.last()
    assert engine.flush()


def test_an_unfinished_answer_says_so(bench, prompts):
    g = bench().start(prompts[0]["ids"], 8)
    g.step()
    body = answer(g, final=False)
    assert body["meta_info"]["finish_reason"] is None
    assert body["output_ids"] == g.output
    assert len(g.output) == 1
