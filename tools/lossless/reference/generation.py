"""One request being computed: prefill in pieces, then one token, or one verified block, a step."""

import time
from dataclasses import dataclass, field

from lossless.reference.drafting import Drafter
from lossless.reference.faults.base import Fault
from lossless.reference.gdn import GatedDeltaNet
from lossless.reference.logprobs import LogprobLists
from lossless.reference.ops import F32
from lossless.reference.prefix_cache import BLOCK_TOKENS, TRACK_INTERVAL, PrefixCache, copies
from lossless.reference.requests import Request
from lossless.reference.sampling import Penalties
from lossless.reference.state import GDNState
from lossless.reference.stops import Finish, StopRules
from lossless.reference.target import Block, Target
from lossless.reference.text import TextStream, Tokenizer


@dataclass(frozen=True)
class Models:
    """What a server serves. ``chunk`` is the most prompt tokens one engine step prefills."""

    target: Target
    drafter: Drafter | None
    tokenizer: Tokenizer
    cache: PrefixCache | None
    chunk: int


@dataclass
class Tally:
    """Verify steps of one request: ``histogram[i]`` of them accepted i drafts."""

    histogram: list[int] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Verify steps."""
        return sum(self.histogram)

    @property
    def correct(self) -> int:
        """Accepted draft tokens."""
        return sum(i * n for i, n in enumerate(self.histogram))

    def add(self, accepted: int) -> None:
        """Count one verify step. Like SGLang's, the list is only as long as needed."""
        self.histogram.extend([0] * (accepted + 1 - len(self.histogram)))
        self.histogram[accepted] += 1


class Generation:
    """A request in flight. ``step`` moves it on until ``finish`` is set.

    ``output`` is what the client sees; ``last`` is the token the model goes on from; ``known`` are the tokens that the
    state stands for. They fit together except under faults. ``overrun`` counts tokens computed beyond the end.
    """

    def __init__(self, models: Models, request: Request, fault: Fault, peers: "list[Generation] | None" = None) -> None:
        self.models, self.request, self.fault = models, request, fault
        self.peers: list[Generation] = peers if peers is not None else [self]
        self.arrived = time.perf_counter()
        room = len(request.ids) + request.max_new_tokens + (models.drafter.width if models.drafter else 1)
        self.state = models.target.new_state(room)
        self.draft = models.drafter.new_state(room) if models.drafter else None
        self.ids = list(request.ids)
        self.known = list(request.ids)
        self.output: list[int] = []
        self.last = self.ids[-1]
        self.cached = 0
        self.steps = 0
        self.overrun = 0
        self.tally = Tally()
        self.finish: Finish | None = None
        self.abort_requested = False
        eos = models.target.files.eos_token_ids
        self.limit = fault.max_new_tokens(self, request.max_new_tokens)
        self.rules = StopRules(request.params, eos, self.limit, models.tokenizer)
        self.penalties = Penalties(request.params, eos, models.target.config.vocab_size)
        self.logprobs = LogprobLists(request.logprobs) if request.logprobs else None
        self.text = TextStream(
            models.tokenizer,
            self.ids,
            skip_special_tokens=request.params.skip_special_tokens,
            no_stop_trim=request.params.no_stop_trim,
        )

    def step(self) -> None:
        """One unit of work: a prompt chunk, a token, or a verified block."""
        if self.abort_requested:
            self.finish = Finish("abort", len(self.output), message="Aborted")
        elif not self.steps and self.state.length < len(self.ids):
            self._prefill()
        elif self.models.drafter is not None and self.fault.speculates(self):
            self._verify()
        else:
            self._decode()
        if self.finish is not None:
            self.fault.finished(self)

    # -- prefill ----------------------------------------------------------------------------------------------------
    def _prefill(self) -> None:
        if not self.state.length:
            self._restore()
            self.fault.started(self)
        end = min(len(self.ids), self.state.length + self.models.chunk)
        while self.state.length < end:
            start = self.state.length
            stop = min(end, start - start % BLOCK_TOKENS + BLOCK_TOKENS)
            self._prefill_piece(start, stop)

    def _restore(self) -> None:
        cache, ask = self.models.cache, self.request.logprobs
        if cache is None:
            return
        # The last prompt token is always computed, for its logits; asked-for input logprobs need all from there on.
        limit = len(self.ids) - 1
        if ask is not None and ask.start >= 0:
            limit = min(limit, ask.start)
        node = cache.match(self.ids, limit, self.request.namespace)
        if node is None:
            return
        self.cached = cache.restore(node, self.state, self.draft)
        if self.models.drafter is not None and cache.lag:
            assert node.hidden is not None
            assert self.draft is not None
            before = Block(node.hidden[None], None, [])
            self.models.drafter.feed(self.draft, before, 1, [self.ids[self.cached]])

    def _prefill_piece(self, start: int, stop: int) -> None:
        target, drafter = self.models.target, self.models.drafter
        block = target.extend(self.ids[start:stop], self.state, drafter.aux_layers if drafter else ())
        target.commit(self.state, block, stop - start)
        self._input_logprobs(block, start, stop)
        following = self.ids[start + 1 : stop + 1]
        if stop == len(self.ids):
            row = target.logits(block.hidden[-1:])
            if self.limit == 0:
                if self.logprobs:
                    self.logprobs.add_next(row[0])
                self.finish = Finish("length", 0)
                following = [*following, self.ids[-1]]
            else:
                row = self.penalties.adjust(row, [])
                first = int(row[0].argmax())
                following = [*following, first]
        if drafter is not None:
            assert self.draft is not None
            drafter.feed(self.draft, block, stop - start, following)
        self.fault.prefilled(self, start, stop)
        if stop % BLOCK_TOKENS == 0:
            self._keep(stop, copies(self.state.gdn), block.hidden[-1])
        if stop == len(self.ids) and self.finish is None:
            self._emit([first], [first], row, 0)

    def _input_logprobs(self, block: Block, start: int, stop: int) -> None:
        if self.logprobs is None or self.logprobs.ask.start < 0:
            return
        first = self.logprobs.ask.start
        if start <= first < stop:
            self.logprobs.add_input(self.ids[first], None)
        low, high = max(start, first), min(stop, len(self.ids) - 1)
        if low < high:
            logits = self.models.target.logits(block.hidden[low - start : high - start])
            for i, row in enumerate(logits, low):
                self.logprobs.add_input(self.ids[i + 1], row)

    # -- decoding ---------------------------------------------------------------------------------------------------
    def _decode(self) -> None:
        target = self.models.target
        before = self.state.length
        block = target.extend([self.last], self.state, self._aux(), self.fault.rope_shift(self))
        row = self.penalties.adjust(target.logits(block.hidden), [])
        pick = int(row[0].argmax())
        self._settle(block, 1, [pick], before)
        self._emit([pick], self.fault.shown(self, [pick], 0), row, 0)

    def _verify(self) -> None:
        target, drafter = self.models.target, self.models.drafter
        assert drafter is not None
        assert self.draft is not None
        before = self.state.length
        drafts = self.fault.drafts(self, drafter.propose(self.draft, self.last, before))
        block = target.extend([self.last, *drafts], self.state, self._aux(), self.fault.rope_shift(self))
        rows = self.penalties.adjust(target.logits(block.hidden), drafts)
        picks: list[int] = rows.argmax(axis=-1).tolist()
        count = 0
        while count < len(drafts) and drafts[count] == picks[count]:
            count += 1
        count = self.fault.accepted(self, drafts, picks, count)
        tokens = [*drafts[:count], picks[count]]
        self.tally.add(count)
        self._settle(block, count + 1, tokens, before)
        self._emit(tokens, self.fault.shown(self, tokens, count), rows, count)

    def _aux(self) -> tuple[int, ...]:
        return self.models.drafter.aux_layers if self.models.drafter else ()

    def _settle(self, block: Block, count: int, tokens: list[int], before: int) -> None:
        """Commit ``count`` tokens of the block, feed the draft, and keep a state at a tracked boundary."""
        target, drafter = self.models.target, self.models.drafter
        boundary = (before + count) // TRACK_INTERVAL * TRACK_INTERVAL
        kept = None
        if self.models.cache is not None and boundary > before:
            kept = copies(self.state.gdn)
            for mixer, state, pending in zip(target.gdn_layers, kept, block.pending, strict=True):
                mixer.commit(state, pending, boundary - before)
        self._commit(block, count)
        if drafter is not None:
            assert self.draft is not None
            drafter.feed(self.draft, block, count, tokens)
        self.known.extend([self.last, *tokens[:-1]])
        if kept is not None:
            self._keep(boundary, kept, block.hidden[boundary - before - 1])
        self.fault.committed(self, before)

    def _commit(self, block: Block, count: int) -> None:
        size = self.fault.commit(self, block.tokens, count)
        layers: list[GatedDeltaNet] = self.models.target.gdn_layers
        for mixer, state, pending in zip(layers, self.state.gdn, block.pending, strict=True):
            if size.conv:
                mixer.commit_conv(state, pending, size.conv)
            if size.recurrent:
                mixer.commit_recurrent(state, pending, size.recurrent)
        for cache in self.state.kv:
            cache.length += size.kv
        self.state.length += size.position

    def _keep(self, end: int, states: list[GDNState], hidden: F32) -> None:
        if self.models.cache is not None:
            self.models.cache.insert(self.known[:end], states, hidden, self.state, self.draft, self.request.namespace)

    def _emit(self, tokens: list[int], shown: list[int], rows: F32, accepted: int) -> None:
        """Put out ``shown``; ``rows[i]`` are the logits of ``tokens[i]``. A stop rule may end the request here."""
        self.last = tokens[-1]
        self.steps += 1
        self.penalties.record(self.fault.counted(self, tokens), self.fault.produced(self, len(tokens)))
        self.output.extend(shown)
        if self.logprobs is not None:
            for i, token in enumerate(shown):
                self.logprobs.add_output(token, rows[min(i, accepted)])
        new = len(shown)
        self.finish = self.rules.check(
            self.output,
            new,
            token_window=self.fault.token_window(self, new),
            text_window=self.fault.text_window(self, new),
        )
        if self.finish is not None:
            self.finish = self.fault.ended(self, self.finish)
            self.overrun = len(self.output) - self.finish.kept
            del self.output[self.finish.kept :]
            if self.logprobs is not None:
                self.logprobs.cut(self.finish.kept)
