"""When something broke, for people: the range of SGLang builds between the last good night and the first bad one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from shlex import quote
from typing import Any

from packaging.version import InvalidVersion, Version

from lossless.analysis.history import Night, Series, Suspects
from lossless.report.markdown import block, code, escape

SHOWN = 12
WORDS = {"green": "green", "red": "RED", "unknown": "nothing is known"}


def suspects_text(found: Sequence[Series]) -> str:
    """Plain text, a paragraph a series."""
    return "\n\n".join("\n".join(_lines(s)) for s in found) or "the history holds no night"


def suspects_markdown(found: Sequence[Series]) -> str:
    """The same for a step summary; green series are one line each."""
    return "\n\n".join(part for s in found for part in _markdown(s)) + "\n" if found else ""


def suspects_json(found: Sequence[Series]) -> list[dict[str, Any]]:
    """The same for scripts."""
    return [
        {
            "profile": s.profile,
            "prompt_set": s.prompt_set,
            "gpu": s.gpu,
            "color": s.color,
            "first_red": s.first_red,
            "nights": len(s.nights),
            "latest": asdict(s.nights[-1]),
            "flapping": list(s.flapping),
            "suspects": [
                {
                    "items": list(r.items),
                    "good": None if r.good is None else asdict(r.good),
                    "bad": asdict(r.bad),
                    "between": [asdict(n) for n in r.between],
                    "same_build": r.same_build,
                    "commands": commands(r),
                }
                for r in s.suspects
            ],
        }
        for s in found
    ]


def commands(r: Suspects) -> list[str]:
    """What narrows a range down: installing its ends, or git bisect where both are named."""
    if r.good is None or r.same_build:
        return [f"lossless verify {quote(r.bad.run)}"]
    found = []
    ends = [_release(n) for n in (r.good, r.bad)]
    if all(ends):
        found += [
            f"pip install 'sglang=={ends[0]}'    # passed",
            f"pip install 'sglang=={ends[1]}'    # fails",
        ]
    good, bad = _revision(r.good), _revision(r.bad)
    if good and bad:
        found.append(f"git bisect start {quote(bad)} {quote(good)}    # in a clone of SGLang")
    names = " or ".join(dict.fromkeys(i.partition("/")[2] for i in r.items[:SHOWN]))
    found.append(f"pytest -m lossless --lossless-profile {quote(r.bad.profile)} -k {quote(names)}")
    return found


def _title(s: Series) -> str:
    return " · ".join(part for part in (s.profile, f"prompts {s.prompt_set}", s.gpu) if part)


def _lines(s: Series) -> Iterator[str]:
    yield f"{_title(s)}: {_state(s)}"
    for r in s.suspects:
        yield f"  suspects: {_range(r)}"
        yield f"    {_nights(r)}"
        yield f"    failing: {_items(r.items)}"
        for command in commands(r):
            yield f"    {command}"
    if s.flapping:
        yield f"  {_flapping(s)}"


def _markdown(s: Series) -> Iterator[str]:
    yield f"### {escape(_title(s))}: {escape(_state(s))}"
    for r in s.suspects:
        items = ", ".join(code(i) for i in r.items[:SHOWN]) + (" …" if len(r.items) > SHOWN else "")
        yield f"**Suspects:** {escape(_range(r))}  \n{escape(_nights(r))}  \nfailing: {items}"
        yield block("\n".join(commands(r)), "bash")
    if s.flapping:
        yield escape(_flapping(s))


def _state(s: Series) -> str:
    latest = s.nights[-1]
    words = WORDS[s.color]
    if s.first_red:
        words += ", the first red night after a green one"
    if latest.color == "unknown":
        words += f"; the latest night ({_day(latest)}) was inconclusive and does not count"
    return words


def _range(r: Suspects) -> str:
    if r.good is None:
        return f"up to {r.bad.build}: no earlier night saw these pass"
    if r.same_build:
        return (
            f"not SGLang, which was {r.bad.build} both times: the environment, the driver, the model"
            + (
                ""
                if r.good.tool_version == r.bad.tool_version
                else f", sglang-lossless ({r.good.tool_version} → {r.bad.tool_version})"
            )
            + ", or chance"
        )
    return f"after {r.good.build}, up to {r.bad.build}"


def _nights(r: Suspects) -> str:
    words = f"first bad night {_day(r.bad)}"
    if r.good is not None:
        words = f"last good night {_day(r.good)}, {words}"
    if r.between:
        words += f"; {len(r.between)} night{'s' * (len(r.between) != 1)} between told nothing about them"
    return words


def _items(items: Iterable[str]) -> str:
    every = list(items)
    return ", ".join(every[:SHOWN]) + (f" … and {len(every) - SHOWN} more" if len(every) > SHOWN else "")


def _flapping(s: Series) -> str:
    return f"both green and red: {', '.join(s.flapping)}; a range that rests on such a build cannot be trusted"


def _day(n: Night) -> str:
    return n.date.partition("T")[0]


def _release(n: Night) -> str | None:
    """A version pip can install: no local part, no build of one's own."""
    try:
        parsed = Version(n.version or "")
    except InvalidVersion:
        return None
    return None if parsed.local else str(parsed)


def _revision(n: Night) -> str | None:
    """What git calls it: the commit, or the tag of a release (SGLang tags v0.5.19)."""
    release = _release(n)
    return n.commit or (f"v{release}" if release and not Version(release).is_prerelease else None)
