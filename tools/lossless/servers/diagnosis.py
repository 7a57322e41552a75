"""Why a server failed, in plain words, from its log. Pure: no files, no processes."""

import re
from dataclasses import dataclass, replace

from lossless.servers.capacity import draft_memory_problem, pool_problem, slots_problem
from lossless.servers.known_failures import KNOWN, KnownFailure
from lossless.servers.log_facts import LogFacts, parse_log
from lossless.servers.log_tail import READY

__all__ = ["Diagnosis", "diagnose", "draft_memory_problem", "explain", "pool_problem", "slots_problem"]

_EVIDENCE = 300
_NO_PREFILL_GRAPHS = 'set cuda-graph-backend-prefill = "disabled"'
_SOURCE_LINE = re.compile(r"^    .*\n?", re.M)
_PIECES = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A failure that is known. ``name`` is a slug; ``what_happened`` is a clause without a full stop, ``why`` one or
    two sentences or empty, ``remedy`` a clause, ``evidence`` the line of the log that gave it away (at most 300
    characters; empty where the exit status did)."""

    name: str
    what_happened: str
    why: str
    remedy: str
    evidence: str

    def paragraph(self) -> str:
        """All of it as one paragraph, to follow ``server 'x' ended: ``."""
        parts = [f"{self.what_happened}.", self.why, f"Remedy: {self.remedy}." if self.remedy else ""]
        if self.evidence:
            parts.append(f"The log says: {self.evidence}")
        return " ".join(part for part in parts if part)


def diagnose(log: str, *, exit_status: int | None = None, facts: LogFacts | None = None) -> Diagnosis | None:
    """The known failure that a log (or the body of a refused request) tells of; None where it tells of none.

    Of a server that had become ready, only what came after that counts, and never what came after it was asked to
    end. Where nothing is known, show the log's last lines.

    Args:
        log: the log's text.
        exit_status: as in :mod:`subprocess`, negative for a signal; None while the process lives.
        facts: ``parse_log(log)``, where the caller has it already.
    """
    facts = parse_log(log) if facts is None else facts
    text = _last_life(log)
    for known in KNOWN:
        if known.refusal and facts.fatal_lines:
            continue
        found = known.pattern.search("\n".join(facts.fatal_lines) if known.only_fatal else text)
        if found:
            return _refine(_diagnosis(known, found), text, facts)
    # SGLang ends itself with SIGKILL after a failure of its own (kill_process_tree), so the signal alone says little.
    if exit_status == -9 and not facts.fatal_lines and "kill_process_tree called" not in text:
        killed = next(known for known in KNOWN if known.name == "killed")
        return Diagnosis(killed.name, killed.what, killed.why, killed.remedy, "")
    return None


def explain(log: str) -> str | None:
    """:func:`diagnose` as one paragraph with its remedy: an ``Explain`` for `lossless.servers.make_server`."""
    found = diagnose(log)
    return found.paragraph() if found else None


def _last_life(log: str) -> str:
    text = re.sub(r"\r\n?", "\n", log)
    text = text[text.rfind(READY) :] if READY in text else text
    # The source lines of a traceback hold messages that were not raised.
    return _SOURCE_LINE.sub("", text.partition("SIGTERM received")[0])


def _diagnosis(known: KnownFailure, found: re.Match[str]) -> Diagnosis:
    start = found.string.rfind("\n", 0, found.start()) + 1
    end = found.string.find("\n", found.start() + 1)
    evidence = found.string[start : end if end >= 0 else None].strip()

    def fill(text: str) -> str:
        return _PIECES.sub(lambda piece: (found[int(piece[1])] or "").strip(), text)

    return Diagnosis(known.name, fill(known.what), fill(known.why), fill(known.remedy), evidence[:_EVIDENCE])


def _refine(diagnosis: Diagnosis, text: str, facts: LogFacts) -> Diagnosis:
    """What the rest of the log adds."""
    if diagnosis.name in ("out-of-memory", "graph-capture-memory"):
        return _memory(diagnosis, facts)
    if diagnosis.name == "no-model-folder" and re.search(r"speculative|draft", text.partition(diagnosis.evidence)[2]):
        return replace(diagnosis, remedy="correct `draft` of the variant (--lossless-draft)")
    if diagnosis.name == "no-model-folder":
        return replace(diagnosis, remedy="correct `target` in the profile (--lossless-target)")
    return diagnosis


def _memory(diagnosis: Diagnosis, facts: LogFacts) -> Diagnosis:
    """Says in which stage the memory ran out, and what helps in that one."""
    capture = next((capture for capture in facts.captures if not capture.finished), None)
    if capture is not None and not facts.ready:
        left = f", with {capture.available_gb:g} GB left before it" if capture.available_gb is not None else ""
        what = f"the GPU ran out of memory while capturing CUDA graphs ({capture.what}{left})"
        if diagnosis.name == "graph-capture-memory":
            return replace(diagnosis, what_happened=what)
        less = _NO_PREFILL_GRAPHS if "prefill" in capture.what else "set a smaller cuda-graph-max-bs-decode"
        why = "The KV pool takes what mem-fraction-static gives it; graphs have to do with the rest."
        return replace(diagnosis, what_happened=what, why=why, remedy=f"lower mem-fraction-static, or {less}")
    if diagnosis.name == "graph-capture-memory":
        return diagnosis
    if facts.ready:
        when, why = "while serving", "Long prompt chunks and many requests at once need memory outside the pool."
        remedy = "lower mem-fraction-static, chunked-prefill-size or max-running-requests"
    elif facts.kv_pool_tokens is None:
        loaded = ", ".join(f"{w.type_name} {w.memory_gb:g} GB" for w in facts.weights if w.memory_gb is not None)
        when = f"while loading{f' (loaded before: {loaded})' if loaded else ''}"
        why = "The weights of target and draft do not fit, or another process holds part of the card."
        remedy = "look with nvidia-smi for other processes; use smaller (quantized) weights, or more cards with tp_size"
    else:
        when = "while starting"
        why = "The KV pool takes what mem-fraction-static gives it, and what comes after has to do with the rest."
        remedy = "lower mem-fraction-static, max-mamba-cache-size or max-running-requests"
    return replace(diagnosis, what_happened=f"{diagnosis.what_happened} {when}", why=why, remedy=remedy)
