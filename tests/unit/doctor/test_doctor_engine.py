"""The doctor on the embedded engine: real drafts with faults that lower what is accepted, and none of the output."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from doctor_cases import TINY, edited, untrain

from lossless.analysis import Analysis, analyze
from lossless.doctor import Diagnosis, cases, diagnose
from lossless.prompts import Tokenizer, load_prompts
from lossless.protocol import GenerateRequest
from lossless.protocol.client import Client
from lossless.record.plan import AGAIN, PLAIN
from lossless.record.store import Manifest, Record, RunStore, ServerState
from lossless.reference.background import background
from lossless.suite.prepare import recorded_prompt

pytestmark = pytest.mark.slow

CATEGORIES = ("list", "logic", "code", "story")
ROOT = Path(__file__).parents[3]
DFLASH = ("--speculative-algorithm", "DFLASH", "--speculative-num-draft-tokens", "8")
Answers = dict[str, list[dict[str, Any]]]


class Engine:
    """Asks embedded servers a few prompts of the standard set; the baseline is asked once for all tests."""

    def __init__(self, stack: ExitStack) -> None:
        tokenizer = Tokenizer.from_folder(TINY / "target")
        parity = load_prompts("standard").in_group("parity")
        few = [p for category in CATEGORIES for p in [q for q in parity if q.category == category][:2]]
        self.prompts = tuple(recorded_prompt(p, tokenizer, 64) for p in few)
        self.tokenizer = tokenizer
        self.stack = stack
        self.baseline = self.ask()

    def ask(self, *options: str) -> tuple[dict[str, Any], Answers]:
        with background(["--model-path", "builtin:tiny", *options]) as url, Client(url) as client:
            raw = {p.id: [client.generate(GenerateRequest(p.ids, p.sampling)).raw] for p in self.prompts}
            return client.server_info(), raw

    def run(self, folder: Path, *options: str) -> Analysis:
        """A run of the baseline and the variant ``dflash`` with these options."""
        store = RunStore(folder)
        fields: dict[str, Any] = dict.fromkeys(("key", "prompt_digest", "tokenizer_digest", "tool_version"), "-")
        manifest = Manifest(
            **fields,
            profile="tiny",
            kind="reference",
            target="builtin:tiny",
            dtype="float32",
            variants=("dflash",),
            prompt_set="few",
            model_digest=None,
            eos_ids=(1,),
            concurrency=1,
            created="2026-01-01T00:00:00+00:00",
            algorithms={"dflash": "DFLASH"},
            epsilon=0.001,
        )
        store.create(manifest, self.prompts, {}, self.tokenizer.content)
        for name, (info, answers) in {"baseline": self.baseline, "dflash": self.ask(*DFLASH, *options)}.items():
            store.write_server(ServerState(name, True, server_info=info))
            for prompt, raw in answers.items():
                for stage in (PLAIN, AGAIN) if name == "baseline" else (PLAIN,):
                    store.append(name, Record(stage, prompt, answer=raw[0]))
        return analyze(store)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with ExitStack() as stack:
        yield Engine(stack)


@pytest.fixture(scope="module")
def honest(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    draft = "--speculative-draft-model-path"
    return engine.run(tmp_path_factory.mktemp("honest") / "run", draft, "builtin:tiny")


Triage = Callable[..., Diagnosis]


@pytest.fixture
def triage(engine: Engine, honest: Analysis, tmp_path: Path) -> Triage:
    """A run with a draft and a fault, compared with the honest one."""

    def find(draft: str | Path = "builtin:tiny", *options: str) -> Diagnosis:
        analysis = engine.run(tmp_path / "run", "--speculative-draft-model-path", str(draft), *options)
        (case,) = cases(None, analysis, against=honest)
        return diagnose(case)

    return find


def statuses(found: Diagnosis) -> dict[str, str]:
    return {f.rule: f.status for f in found.findings}


def test_an_honest_draft_is_fine_against_the_golden_lengths(honest: Analysis) -> None:
    (case,) = cases(None, honest, golden=ROOT / "golden" / "tiny")
    found = diagnose(case)
    assert found.outcome == "fine", found.conclusion
    assert set(statuses(found).values()) <= {"ok", "unknown"}


@pytest.mark.parametrize(
    ("fault", "rule"),
    [("random-draft", "draft-head"), ("accept-length-halved", "positions"), ("speculation-off", "speculation")],
)
def test_a_fault_that_lowers_acceptance_is_named(triage: Triage, fault: str, rule: str) -> None:
    found = triage("builtin:tiny", "--fault", fault)
    assert found.outcome == "wrong"
    assert found.conclusion.startswith(f"first thing wrong: {rule}: ")


def test_a_random_head_is_seen_in_its_weights(triage: Triage, tmp_path: Path) -> None:
    draft = edited(TINY / "dflash2", tmp_path / "draft")
    untrain(draft / "model.safetensors")
    found = triage(draft)
    assert found.conclusion.startswith("first thing wrong: lm-head: every norm weight of the draft is one constant")


def test_other_captured_layers_show_in_tasks_of_all_kinds(triage: Triage, tmp_path: Path) -> None:
    """Layers that exist, but not those that the draft was trained on: no file says so, only what is accepted."""

    def change(config: dict[str, Any]) -> None:
        config["dflash_config"]["target_layer_ids"] = [0, 1, 2, 3]

    found = triage(edited(TINY / "dflash2", tmp_path / "draft", change))
    assert statuses(found)["captured-layers"] == "ok"
    assert statuses(found)["draft-head"] == "ok"
    assert found.conclusion.startswith(("first thing wrong: tasks: ", "first thing wrong: task-mix: "))
    assert json.dumps([dict(f.numbers) for f in found.findings])
