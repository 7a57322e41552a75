"""What a server's log says about itself, read from the text. Pure: no files, no processes.

The wording is that of SGLang 0.5.17, 0.5.19 and 0.5.23 (their sources, and logs recorded from 0.5.19). Every field is
None or empty where the log does not say. GB is what SGLang prints under that name: 1024**3 bytes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lossless.servers.log_tail import READY

_RANK = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?((?: (?:[A-Z]+\d+))*)\] ?")
_FATAL = re.compile(
    r"hit an exception: Traceback|INTERNAL ASSERT FAILED|device-side assert|SIGQUIT received|Received sigquit"
    r"|scheduler died during initialization|^[\w. -]+: error: "
)
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?:: |$)")
_WEIGHTS = re.compile(r"Load weight end\.(?=.*\btype=)")
_POOL = re.compile(r"KV Cache is allocated\..*?#tokens: (\d+)")
_SUMMARY = re.compile(r"\bchunked_prefill_size=-?\w+, .*\bcontext_len=\d+")
_CAP = re.compile(
    r"max_running_requests is capped to (\d+) by the mamba state\s+cache\s*"
    r"\(max_mamba_cache_size=(\d+),\s*(\d+) state slots per\s+request\)"
)
_CAPTURE = re.compile(r"Capture (.+?) (?:CUDA |cuda |CPU |NPU |XPU )?graph (begin|end)\.")
_PROGRESS = re.compile(r"Capturing (?:batches|num tokens)\b.*?\|\s*(\d+)/(\d+)")
_LINEAR = re.compile(r"Linear attention kernel backend: decode=(\w+), prefill=(\w+)(?:, verify=(\w+))?")
_GDN = re.compile(r"GDN kernel dispatcher: decode=(\w+), extend=(\w+)(?:, verify=(\w+))?")
_DRAFT_RUNNER = re.compile(r"Initialized DFLASH draft runner\. attention_backend=(\w+), model=(\w+), block_size=(\d+)")


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """One ``Load weight end`` line: the model class, GB that loading took (of this rank), seconds."""

    type_name: str
    memory_gb: float | None = None
    seconds: float | None = None
    available_gb: float | None = None


@dataclass(frozen=True, slots=True)
class MambaCache:
    """The recurrent-state pool of a hybrid model: slots, and GB of each part."""

    slots: int | None = None
    conv_gb: float = 0.0
    ssm_gb: float = 0.0
    intermediate_ssm_gb: float = 0.0
    intermediate_conv_gb: float = 0.0

    @property
    def total_gb(self) -> float:
        """GB of all parts."""
        return self.conv_gb + self.ssm_gb + self.intermediate_ssm_gb + self.intermediate_conv_gb


@dataclass(frozen=True, slots=True)
class MambaCap:
    """The server lowered its number of concurrent requests, because each takes several state slots."""

    running_requests: int
    slots: int
    slots_per_request: int


@dataclass(frozen=True, slots=True)
class GraphCapture:
    """One capture of CUDA graphs, such as ``target verify``. ``seconds`` is None while it has not ended; it never
    ended in a log of a server that died in it. ``available_gb`` is what was left before it began."""

    what: str
    available_gb: float | None = None
    seconds: float | None = None
    memory_gb: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the log has its end."""
        return self.seconds is not None


@dataclass(frozen=True, slots=True)
class KernelBackends:
    """Names of kernels by phase, as the log gives them."""

    decode: str
    prefill: str
    verify: str | None = None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What one log says.

    weights           every loaded model in the log's order (one rank's): the target, then the drafts
    kv_pool_tokens    tokens that all requests together may hold
    kv_pool_sizes     tokens of every pool allocated, in the log's order
    memory_after_pools_gb, available_gb   GB left after the pools, and when the server began to serve
    draft_block_size  tokens a verified block, of a DFLASH draft
    capture_progress  the last (done, of) of a capture
    accept_lengths, gen_throughputs       one value a ``Decode batch`` line: tokens a verify step, tokens a second
    fatal_lines       the lines that speak of a failure, in order, at most 300 characters each
    """

    weights: tuple[LoadedWeights, ...] = ()
    kv_pool_tokens: int | None = None
    kv_pool_sizes: tuple[int, ...] = ()
    chunked_prefill_size: int | None = None
    max_running_requests: int | None = None
    context_len: int | None = None
    available_gb: float | None = None
    memory_after_pools_gb: float | None = None
    mamba_cache: MambaCache | None = None
    mamba_cap: MambaCap | None = None
    attention_backend: str | None = None
    draft_attention_backend: str | None = None
    draft_block_size: int | None = None
    linear_attention: KernelBackends | None = None
    gdn_kernels: KernelBackends | None = None
    captures: tuple[GraphCapture, ...] = ()
    capture_progress: tuple[int, int] | None = None
    accept_lengths: tuple[float, ...] = ()
    gen_throughputs: tuple[float, ...] = ()
    startup_seconds: float | None = None
    version: str | None = None
    ready: bool = False
    fatal_lines: tuple[str, ...] = ()

    @property
    def target(self) -> LoadedWeights | None:
        """The first model loaded."""
        return self.weights[0] if self.weights else None

    @property
    def drafts(self) -> tuple[LoadedWeights, ...]:
        """The models loaded after the target."""
        return self.weights[1:]

    @property
    def draft_memory_gb(self) -> float | None:
        """GB of all drafts; None without a draft, or where a line does not say."""
        sizes = [draft.memory_gb for draft in self.drafts]
        return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None

    @property
    def mean_accept_length(self) -> float | None:
        """The plain mean over the ``Decode batch`` lines: a rough figure for people. Each line covers the same number
        of steps but not of requests; the exact figure of a prompt comes from its answer."""
        return _mean(self.accept_lengths)

    @property
    def mean_gen_throughput(self) -> float | None:
        """The plain mean over the ``Decode batch`` lines, tokens a second; start-up and idle lines included."""
        return _mean(self.gen_throughputs)


def parse_log(log: str) -> LogFacts:
    """Read a log's text. Never fails: what it does not find stays None or empty. Of several tensor-parallel ranks
    the first that reports its weights is read, as all say the same."""
    lines = [line for line in re.split(r"[\r\n]+", log) if line.strip()]
    weights = list(_first_rank(lines))
    pools = [int(found[1]) for line in lines if (found := _POOL.search(line))]
    summary = next((line for line in lines if _SUMMARY.search(line) and "server_args=" not in line), "")
    decode = [line for line in lines if "Decode batch" in line]
    arguments = next((line for line in lines if "server_args=" in line), "")
    runner = _last(_DRAFT_RUNNER, lines)
    after_pools = _numbers(r"Memory pool end\. avail mem=([\d.]+)", lines)
    startup = _numbers(r"Engine startup timings.*tokenizer_e2e=([\d.]+)", lines)
    progress = _last(_PROGRESS, lines)
    total = _number(r"max_total_num_tokens=(\d+)", summary)
    return LogFacts(
        weights=tuple(weights),
        kv_pool_tokens=int(total) if total is not None else (pools[0] if pools else None),
        kv_pool_sizes=tuple(pools),
        chunked_prefill_size=_int(r"chunked_prefill_size=(-?\d+)", summary),
        max_running_requests=_int(r"max_running_requests=(\d+)", summary),
        context_len=_int(r"context_len=(\d+)", summary),
        available_gb=_number(r"available_[gc]pu_mem=([\d.]+)", summary),
        memory_after_pools_gb=after_pools[-1] if after_pools else None,
        mamba_cache=_mamba_cache(lines),
        mamba_cap=_mamba_cap(log),
        attention_backend=_argument("attention_backend", arguments),
        draft_attention_backend=runner[1] if runner else _argument("speculative_draft_attention_backend", arguments),
        draft_block_size=int(runner[3]) if runner else None,
        linear_attention=_backends(_last(_LINEAR, lines)),
        gdn_kernels=_backends(_last(_GDN, lines)),
        captures=tuple(_captures(lines)),
        capture_progress=(int(progress[1]), int(progress[2])) if progress else None,
        accept_lengths=tuple(_numbers(r"(?<!block )accept len: ([\d.]+)", decode)),
        gen_throughputs=tuple(_numbers(r"gen throughput \(token/s\): ([\d.]+)", decode)),
        startup_seconds=startup[-1] if startup else None,
        version=_version(lines),
        ready=any(READY in line for line in lines),
        fatal_lines=fatal_lines(lines),
    )


def fatal_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines that speak of a server's end, until it was asked to end: what follows is its shutting down.

    A serving process prints the traceback of a request that it refuses, too, and goes on; so after the ready line an
    exception counts only once a line has said that a process of the server failed.
    """
    found: list[str] = []
    serving = False
    for line in lines:
        if "SIGTERM received" in line:
            break
        if READY in line:
            serving = True
            found.clear()  # it was not fatal then
        if _FATAL.search(line) or (_EXCEPTION.search(line) and (found or not serving)):
            found.append(line.strip()[:300])
    return tuple(found)


def _first_rank(lines: Sequence[str]) -> Iterator[LoadedWeights]:
    rank: str | None = None
    for line in lines:
        if not _WEIGHTS.search(line):
            continue
        found = _RANK.match(line)
        label = found[1] if found else ""
        if rank is None:
            rank = label
        if label == rank:
            kind = re.search(r"\btype=(\w+)", line)
            assert kind is not None
            yield LoadedWeights(
                type_name=kind[1],
                memory_gb=_number(r"\bmem usage=(-?[\d.]+)", line),
                seconds=_number(r"\belapsed=([\d.]+)", line),
                available_gb=_number(r"\bavail mem=([\d.]+)", line),
            )


def _mamba_cache(lines: Sequence[str]) -> MambaCache | None:
    line = next((line for line in lines if "Mamba Cache is allocated" in line), None)
    if line is None:
        return None
    return MambaCache(
        slots=_int(r"max_mamba_cache_size: (\d+)", line),
        conv_gb=_number(r"\bconv_state size: ([\d.]+)", line) or 0.0,
        ssm_gb=_number(r"\bssm_state size: ([\d.]+)", line) or 0.0,
        intermediate_ssm_gb=_number(r"intermediate_ssm_state_cache size: ([\d.]+)", line) or 0.0,
        intermediate_conv_gb=_number(r"intermediate_conv_window_cache size: ([\d.]+)", line) or 0.0,
    )


def _mamba_cap(log: str) -> MambaCap | None:
    found = _CAP.search(log)  # over the whole text: copied logs have it folded over lines
    return MambaCap(int(found[1]), int(found[2]), int(found[3])) if found else None


def _captures(lines: Sequence[str]) -> list[GraphCapture]:
    captures: list[GraphCapture] = []
    for line in lines:
        found = _CAPTURE.search(line)
        if not found:
            continue
        what, memory = found[1], _number(r"\bavail mem=([\d.]+)", line)
        if found[2] == "begin":
            captures.append(GraphCapture(what, memory))
            continue
        for at, begun in enumerate(captures):
            if begun.what == what and not begun.finished:
                seconds = _number(r"\belapsed=([\d.]+)", line)
                captures[at] = GraphCapture(
                    what, begun.available_gb, seconds or 0.0, _number(r"\bmem usage=(-?[\d.]+)", line)
                )
                break
    return captures


def _version(lines: Sequence[str]) -> str | None:
    # No release logs its version by itself; a body of /server_info or a pip line in the log does.
    found = _last(re.compile(r"""(?:'version': '|"version": "|\bsglang(?:==|[ -]version[:= ]+))(\d[\w.+]*)"""), lines)
    return found[1].rstrip(".") if found else None


def _argument(name: str, line: str) -> str | None:
    """One of the arguments a server prints when it starts: ``'name': 'value'`` or ``name='value'``."""
    found = re.search(rf"(?:'{name}': |\b{name}=)'([^']*)'", line)
    return found[1] if found else None


def _backends(found: re.Match[str] | None) -> KernelBackends | None:
    return KernelBackends(found[1], found[2], found[3]) if found else None


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> re.Match[str] | None:
    for line in reversed(lines):
        if found := pattern.search(line):
            return found
    return None


def _numbers(pattern: str, lines: Sequence[str]) -> list[float]:
    compiled = re.compile(pattern)
    return [float(found[1]) for line in lines if (found := compiled.search(line))]


def _number(pattern: str, line: str) -> float | None:
    found = re.search(pattern, line)
    return float(found[1].rstrip(".")) if found else None


def _int(pattern: str, line: str) -> int | None:
    value = _number(pattern, line)
    return None if value is None else int(value)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
