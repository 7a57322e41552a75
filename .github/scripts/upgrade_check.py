"""Whether there is an SGLang that the goldens of a profile have not met. Prints lines for $GITHUB_OUTPUT.

The old version is the newest that wrote a golden or was verified since (``.github/sglang-verified.json``: a golden
whose output stays the same keeps its provenance).
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from versions import RELEASE, checked, newest, order

PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
VERIFIED = Path(".github") / "sglang-verified.json"


def check(given: Mapping[str, str], root: Path) -> dict[str, str]:
    """``PROFILE`` (a shipped one with goldens) and ``TO`` (a version, empty for the newest) as text.

    Raises:
        SystemExit: bad input, or no golden of that profile names a release.
    """
    profile = given.get("PROFILE", "")
    if not PROFILE.fullmatch(profile):
        raise SystemExit(f"profile {profile!r}: expected the name of a shipped profile, such as tiny-sglang-gpu")
    known = verified(root, profile)
    if not known:
        raise SystemExit(f"no golden of {profile} names the SGLang release that wrote it; record goldens first")
    old = max(known, key=order)
    asked = given.get("TO", "").strip()
    new = checked(asked) if asked else newest()
    later = RELEASE.fullmatch(new) is None or order(new) > order(old)
    return {
        "profile": profile,
        "old": old,
        "new": new,
        "needed": json.dumps(new != old if asked else later),
        "branch": f"lossless/sglang-{new}-{profile}",
    }


def verified(root: Path, profile: str) -> set[str]:
    """Every release that wrote a golden of the profile, or was verified against them."""
    found = {
        str(json.loads(path.read_text(encoding="utf-8"))["provenance"]["version"])
        for path in (root / "golden" / profile).glob("*.json")
        if not path.name.startswith("_")
    }
    if (root / VERIFIED).is_file():
        found.add(str(json.loads((root / VERIFIED).read_text(encoding="utf-8")).get(profile, "")))
    return {v for v in found if RELEASE.fullmatch(v)}


def mark(root: Path, profile: str, version: str) -> None:
    """Note that a version was verified."""
    path = root / VERIFIED
    data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    data[profile] = checked(version)
    path.write_text(json.dumps(dict(sorted(data.items())), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["mark"]:
        mark(Path.cwd(), os.environ["PROFILE"], os.environ["NEW"])
    else:
        for name, value in check(os.environ, Path.cwd()).items():
            sys.stdout.write(f"{name}={value}\n")
