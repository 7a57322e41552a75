"""Bodies of /generate, command lines, model folders: what is understood and what is refused."""

import json
import shutil

import pytest

from lossless.errors import UsageError
from lossless.reference import builtin_path
from lossless.reference.builtin import model_folder
from lossless.reference.config import read_draft, read_target
from lossless.reference.dflash import Dflash
from lossless.reference.faults import all_faults, make_fault
from lossless.reference.nextn import Nextn
from lossless.reference.options import ServerOptions, checked, parse_options
from lossless.reference.requests import Limits, parse_body
from lossless.reference.target import Target
from lossless.reference.weights import Weights

GREEDY = {"temperature": 0}
LIMITS = Limits(4096, 4096, 4090)


@pytest.fixture
def parse(bench):
    return lambda body: parse_body(body, bench().models.tokenizer, LIMITS)


def one(batch):
    assert batch.single
    return batch.requests[0]


def test_ids_and_text_are_the_same_request(parse, bench):
    ids = bench().models.tokenizer.encode("<|user|>\nHello<|end|>\n")
    assert ids[0] == 2
    assert ids[-2] == 1
    by_text = one(parse({"text": "<|user|>\nHello<|end|>\n", "sampling_params": GREEDY}))
    by_ids = one(parse({"input_ids": ids, "sampling_params": GREEDY, "rid": "mine"}))
    assert by_text.ids == by_ids.ids == tuple(ids)
    assert by_ids.rid == "mine"
    assert len(by_text.rid) == 32
    assert by_ids.max_new_tokens == 128
    assert by_ids.logprobs is None


def test_a_list_is_a_batch_with_common_or_single_options(parse):
    batch = parse({"input_ids": [[5], [6, 7]], "sampling_params": GREEDY, "rid": ["a", "b"], "return_logprob": True})
    assert not batch.single
    assert [r.ids for r in batch.requests] == [(5,), (6, 7)]
    assert [r.rid for r in batch.requests] == ["a", "b"]
    assert all(r.logprobs for r in batch.requests)
    varied = parse(
        {
            "input_ids": [[5], [6]],
            "sampling_params": [{**GREEDY, "max_new_tokens": 1}, {**GREEDY, "max_new_tokens": 2}],
            "return_logprob": [True, False],
            "token_ids_logprob": [[1, 2], [3]],
            "rid": "x",
        }
    )
    assert [r.max_new_tokens for r in varied.requests] == [1, 2]
    assert [r.logprobs.token_ids if r.logprobs else None for r in varied.requests] == [(1, 2), None]
    assert [r.rid for r in varied.requests] == ["x_0", "x_1"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "must be a JSON object"),
        ({}, "Either text, input_ids"),
        ({"input_ids": []}, "input_ids cannot be empty"),
        ({"input_ids": [[]]}, "input_ids cannot be empty"),
        ({"input_ids": "12"}, "input_ids must be a list"),
        ({"text": 7}, "text must be a string"),
        ({"input_ids": [1, "2"]}, "list of integers"),
        ({"input_ids": [1, 4096]}, r"Token id 4096 is out of vocabulary range \[0, 4095\]"),
        ({"input_ids": [-1]}, "Token id -1 is out of vocabulary"),
        ({"input_ids": [5] * 4096}, r"The input \(4096 tokens\) is longer than the model's context length \(4096"),
        ({"input_ids": [5] * 4090, "max": 1}, r"Input length \(4090 tokens\) exceeds the maximum allowed length"),
        ({"input_ids": [5] * 4000, "max": 97}, "You requested a total of 4097 tokens: 4000 tokens from the input"),
        ({"input_ids": [5], "return_logprob": True, "logprob_start_len": 2}, "req.logprob_start_len=2 is higher"),
        ({"input_ids": [5], "return_logprob": True, "token_ids_logprob": [9999]}, "token_ids_logprob contains 9999"),
        ({"input_ids": [[5], [6]], "rid": ["a", "a"]}, "Duplicate request IDs"),
        ({"input_ids": [[5], [6]], "rid": ["a"]}, "rid has 1 entries for a batch of 2"),
        ({"input_ids": [5], "sampling_params": [GREEDY]}, "sampling_params must be an object"),
    ],
)
def test_bad_bodies_are_refused(parse, body, message):
    if isinstance(body, dict):
        most = body.pop("max", 4)
        body.setdefault("sampling_params", {**GREEDY, "max_new_tokens": most})
    with pytest.raises(ValueError, match=message):
        parse(body)


def test_the_default_cap_is_clipped_to_the_context(parse):
    assert one(parse({"input_ids": [5] * 4000, "sampling_params": GREEDY})).max_new_tokens == 94


# -- command line -----------------------------------------------------------------------------------------------------
def test_a_bare_command_line_serves_the_builtin_target():
    assert parse_options([]) == ServerOptions()


def test_options_are_read():
    line = (
        "--speculative-algorithm DFLASH --speculative-draft-model-path builtin:tiny --port 0 --fault trickle --seed 3"
    )
    options = parse_options(line.split())
    assert (options.speculative_algorithm, options.port, options.fault, options.seed) == ("DFLASH", 0, "trickle", 3)
    assert not options.nextn


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--host 0.0.0.0", "loopback addresses only"),
        ("--host example.org", "loopback addresses only"),
        ("--port 70000", "0 to 65535"),
        ("--port x", "invalid int value"),
        ("--dtype float16", "invalid choice"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
        ("--max-running-requests 0", "at least 1"),
        ("--chunked-prefill-size 0", "at least 1, or -1"),
        ("--speculative-num-steps 3", "without --speculative-algorithm"),
        ("--speculative-draft-model-path builtin:tiny", "without --speculative-algorithm"),
        ("--speculative-algorithm DFLASH", "needs --speculative-draft-model-path"),
        ("--speculative-algorithm NEXTN --speculative-num-draft-tokens 3", "a chain of 3 steps verifies 4"),
        ("--speculative-algorithm NEXTN --speculative-num-steps 0", "1 to 15"),
        ("--speculative-algorithm NEXTN --speculative-eagle-topk 4", "only 1 is possible"),
    ],
)
def test_bad_command_lines_are_refused(line, message):
    with pytest.raises(UsageError, match=message):
        parse_options(line.split())


def test_loopback_names_are_allowed():
    assert checked(ServerOptions(host="localhost")).host == "localhost"
    assert checked(ServerOptions(host="::1")).host == "::1"


def test_an_unknown_fault_lists_all():
    with pytest.raises(UsageError) as caught:
        make_fault("no-such-fault", 0)
    for spec in all_faults():
        assert spec.name in str(caught.value)
    with pytest.raises(UsageError, match="takes a positive number, the share of blocks; got '-1'"):
        make_fault("accept-unverified:-1", 0)
    with pytest.raises(UsageError, match="takes no number; got '2'"):
        make_fault("speculation-off:2", 0)


# -- model folders ----------------------------------------------------------------------------------------------------
def test_the_builtin_model_is_complete():
    assert sorted(path.name for path in builtin_path().iterdir()) == [
        "README.md",
        "dflash2",
        "eval_prompts.json",
        "target",
    ]
    assert model_folder("builtin:tiny", "dflash2") == builtin_path() / "dflash2"
    files = read_target(builtin_path() / "target")
    assert files.eos_token_ids == {0, 1}
    assert files.config.layer_types.count("full_attention") == 2


def test_missing_and_unfit_folders_are_named(tmp_path):
    with pytest.raises(UsageError, match="the only one is 'builtin:tiny'"):
        model_folder("builtin:large", "target")
    with pytest.raises(UsageError, match="does not exist"):
        model_folder(str(tmp_path / "absent"), "target")
    with pytest.raises(UsageError, match=r"holds no config\.json"):
        model_folder(str(tmp_path), "target")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert model_folder(str(tmp_path), "target") == tmp_path
    with pytest.raises(UsageError, match=r"not the configuration of a supported model: .*text_config"):
        read_target(tmp_path)
    with pytest.raises(UsageError, match=r"holds no \*\.safetensors files"):
        Weights.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(UsageError, match="cannot read weights from"):
        Weights.load(tmp_path)


def test_layer_types_must_fit(tmp_path):
    raw = json.loads((builtin_path() / "target" / "config.json").read_text("utf-8"))
    raw["text_config"]["layer_types"][0] = "sliding_attention"
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(UsageError, match="layer_types must name 8 layers"):
        read_target(tmp_path)


def test_a_draft_must_belong_to_the_target(tmp_path):
    target = read_target(builtin_path() / "target").config
    raw = json.loads((builtin_path() / "dflash2" / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**raw, "vocab_size": 100}))
    with pytest.raises(UsageError, match="this draft has vocabulary 100"):
        read_draft(tmp_path, target)
    raw["dflash_config"]["target_layer_ids"] = [1, 8]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(UsageError, match="beyond the target's 8 layers"):
        read_draft(tmp_path, target)


def test_missing_tensors_are_named(tmp_path, load_target):
    draft = builtin_path() / "dflash2"
    with pytest.raises(UsageError, match=r"no NEXTN head \(no mtp"):
        Nextn(load_target("float32"), Weights.load(draft), 3)
    shutil.copy(builtin_path() / "target" / "config.json", tmp_path)
    shutil.copy(draft / "model.safetensors", tmp_path)
    with pytest.raises(UsageError, match=r"lacks the tensor 'model\.embed_tokens\.weight'"):
        Target.load(tmp_path, "float32")
    with pytest.raises(UsageError, match="unknown dtype 'int8'"):
        Target.load(builtin_path() / "target", "int8")


@pytest.mark.parametrize("width", [1, 9])
def test_a_block_wider_than_the_draft_is_refused(load_target, width):
    target, draft = load_target("float32"), builtin_path() / "dflash2"
    with pytest.raises(UsageError, match="its block size is 8, so 2 to 8 are possible"):
        Dflash(target, read_draft(draft, target.config), Weights.load(draft), width)
