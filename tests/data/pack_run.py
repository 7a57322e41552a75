"""Pack a recorded run as test data: ``python tests/data/pack_run.py RUN OUT.tar.xz``.

Kept is what an analysis reads; logs, request ids and time stamps are dropped, and paths of the machine it ran on become
``/models/…``. The tokenizer is left out where it is the shipped tiny model's: the test puts it back.
"""

import io
import json
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

DROPPED = frozenset(
    {
        "id",
        "e2e_latency",
        "response_sent_to_client_ts",
        "weight_version",
        "weight_versions",
        "cached_tokens_details",
        "dp_rank",
        "reasoning_tokens",
        "spec_accepted_drafts",
        "spec_proposed_drafts",
        "spec_accept_histogram",
        "spec_num_correct_drafts",
        "spec_num_proposed_drafts",
        "spec_accept_rate",
        "output_token_logprobs_length",
    }
)
PATH = re.compile(r"(?:/[\w.+-]+)+/(target|dflash2)\b")
OTHER = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|opt|usr)(?:/[\w.+-]+)*")


def clean(value: Any, dropped: frozenset[str] = frozenset()) -> Any:
    """Without volatile fields and machine paths."""
    if isinstance(value, dict):
        return {k: clean(v, dropped) for k, v in value.items() if k not in dropped}
    if isinstance(value, list):
        return [clean(v, dropped) for v in value]
    if isinstance(value, str):
        return OTHER.sub("/somewhere", PATH.sub(r"/models/tiny/\1", value))
    return value


def main(run: Path, out: Path) -> None:
    with tarfile.open(out, "w:xz", preset=9) as archive:
        for path in sorted(run.rglob("*")):
            name = path.relative_to(run).as_posix()
            if not re.fullmatch(r"(run|prompts|goldens)\.json|servers/\w+\.json|records/\w+\.jsonl", name):
                continue
            text = path.read_text(encoding="utf-8")
            if name.endswith(".jsonl"):
                lines = [
                    json.dumps(clean(json.loads(line), DROPPED), ensure_ascii=False, separators=(",", ":"))
                    for line in text.splitlines()
                ]
                data = "\n".join(lines) + "\n"
            else:
                data = json.dumps(clean(json.loads(text)), ensure_ascii=False)
            member = tarfile.TarInfo(name)
            member.size = len(data.encode())
            archive.addfile(member, io.BytesIO(data.encode()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
