"""Keys do not reach messages, logs or records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.protocol.redact import MASK, redact, redact_object, secrets_of

KEYS = st.text("ABCDEFabcdef0123456789_-", min_size=8, max_size=40)


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=60), KEYS, st.text(max_size=60))
def test_a_known_secret_never_survives(before: str, key: str, after: str) -> None:
    assert key not in redact(f"{before}{key}{after}{key}", [key])


@settings(deadline=None, max_examples=50)
@given(
    KEYS,
    st.sampled_from(
        [
            "Authorization: Bearer {}",
            "--api-key {} --port 1",
            "--api-key={}",
            "--admin-api-key {}",
            "server_args=ServerArgs(port=1, api_key='{}', host='x')",
            '{{"api_key": "{}", "port": 1}}',
            "HF_TOKEN={}",
            "http://user:{}@host:1/x",
            "token hf_abcdefgh{}",
        ],
    ),
)
def test_what_looks_like_a_key_is_masked(key: str, template: str) -> None:
    # A longer key of letters, so that it cannot be a part of the template itself.
    key = f"Qz{key}Qz"
    shown = redact(template.format(key))
    assert key not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    "line",
    [
        "server_args={'api_key': None, 'admin_api_key': None, 'port': 31000}",
        "max_total_num_tokens=20000, context_len=4096",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 20000",
        "AssertionError: Can not alloc mamba cache",
        "http://127.0.0.1:31000/model_info",
    ],
)
def test_ordinary_log_lines_stay_as_they_are(line: str) -> None:
    assert redact(line) == line


def test_short_values_are_left_alone() -> None:
    assert redact("true is true", ["true"]) == "true is true"


def test_secrets_are_known_by_their_names() -> None:
    env = {
        "HF_TOKEN": "a1",
        "MY_API_KEY": "b2",
        "SMTP_PASSWORD": "c3",
        "PATH": "/bin",
        "MAX_TOKEN": "5",
        "EMPTY_TOKEN": "",
    }
    assert secrets_of(env) == ("a1", "b2", "c3")


def test_objects_are_masked_through_and_through() -> None:
    info = {
        "api_key": "abc",
        "admin_api_key": None,
        "eos_token": "</s>",
        "max_total_num_tokens": 5,
        "launch_command": "python -m x --api-key abcdefgh --port 1",
        "internal_states": [{"api_key": "abc", "page_size": 1}],
    }
    assert redact_object(info) == {
        "api_key": MASK,
        "admin_api_key": None,
        "eos_token": "</s>",
        "max_total_num_tokens": 5,
        "launch_command": f"python -m x --api-key {MASK} --port 1",
        "internal_states": [{"api_key": MASK, "page_size": 1}],
    }
