"""From the inputs of the nightly workflow to its matrix. Reads the environment, prints lines for $GITHUB_OUTPUT."""

import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from versions import checked, newest

PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
SETS = ("quick", "standard", "full", "long", "stress")
MAX_SHARDS = 32


def plan(given: Mapping[str, str], *, now: datetime) -> dict[str, str]:
    """``profiles`` (JSON list or words), ``prompts``, ``shards`` (a number) and ``sglang`` (a version, empty for the
    newest, or ``none`` where the profiles bring their own servers), all as text.

    Raises:
        SystemExit: an input that is not what it should be; the message has the value and what is allowed.
    """
    text = given.get("PROFILES", "").strip()
    names = json.loads(text) if text.startswith("[") else text.split()
    if not names or not all(isinstance(n, str) and PROFILE.fullmatch(n) and "--" not in _slug(n) for n in names):
        raise SystemExit(f"profiles {text!r}: expected names such as tiny-sglang-gpu, or paths of .toml files")
    shards = given.get("SHARDS", "") or "1"
    if not re.fullmatch(r"[0-9]{1,2}", shards) or not 1 <= int(shards) <= MAX_SHARDS:
        raise SystemExit(f"shards {shards!r}: expected a number from 1 to {MAX_SHARDS}")
    prompts = given.get("PROMPTS", "") or "standard"
    if prompts not in SETS:
        raise SystemExit(f"prompts {prompts!r}: expected one of {', '.join(SETS)}")
    asked = given.get("SGLANG", "").strip()
    sglang = asked if asked == "none" else checked(asked) if asked else newest()
    profiles = [{"profile": n, "slug": _slug(n)} for n in dict.fromkeys(names)]
    if len({p["slug"] for p in profiles}) < len(profiles):
        raise SystemExit(f"profiles {text!r}: two have the same name")
    several = int(shards) > 1
    parts = [
        {**p, "index": str(k), "shard": f"{k}/{shards}" if several else ""}
        for p in profiles
        for k in range(1, int(shards) + 1)
    ]
    return {
        "matrix": json.dumps({"include": parts}),
        "profiles": json.dumps({"include": profiles}),
        "sglang": sglang,
        "prompts": prompts,
        "night": now.strftime("%Y-%m-%d"),
    }


def _slug(profile: str) -> str:
    """What names a profile's artifacts and folders."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", profile.removesuffix(".toml").rpartition("/")[2])


if __name__ == "__main__":
    for name, value in plan(os.environ, now=datetime.now(UTC)).items():
        sys.stdout.write(f"{name}={value}\n")
