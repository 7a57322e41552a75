"""Prefix cache: a tree of 64-token blocks with their keys and values, and recurrent states at some block ends.

Attention can resume anywhere its keys are kept, a recurrent layer only where its state was: a hit therefore ends at
the deepest block that has a state. SGLang 0.5.19 behaves so on hybrid models (recorded: prompts of 65 and more tokens
hit at 64), and keeps states of generated text every 256 tokens (``mamba_track_interval``).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lossless.reference.drafting import DraftState
from lossless.reference.ops import F32
from lossless.reference.state import GDNState, KVCache, TargetState

BLOCK_TOKENS = 64
TRACK_INTERVAL = 256
"""Generated text leaves a state every so many tokens."""

Segment = tuple[F32, F32]


@dataclass(slots=True)
class Node:
    """One block. ``draft`` holds the draft's keys and values of the block, moved ``lag`` tokens to the left."""

    parent: "Node | None"
    key: tuple[int, ...]
    target: list[Segment] = field(default_factory=list)
    draft: list[Segment] = field(default_factory=list)
    states: list[GDNState] | None = None
    hidden: F32 | None = None
    children: dict[tuple[int, ...], "Node"] = field(default_factory=dict)
    used: int = 0

    def path(self) -> list["Node"]:
        """The blocks from the first one to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class PrefixCache:
    """At most ``max_blocks`` blocks; the least recently used leaf goes first.

    ``lag`` is the draft's: with 1, the draft's entry of a token depends on the following token, so a block keeps the
    draft's entries one token earlier and the last one is computed anew after a hit.
    """

    def __init__(self, max_blocks: int, lag: int = 0) -> None:
        self.max_blocks, self.lag = max_blocks, lag
        self._roots: dict[str, Node] = {}
        self._clock = 0
        self._count = 0

    def __len__(self) -> int:
        """Blocks held."""
        return self._count

    def clear(self) -> None:
        """Forget everything."""
        self._roots.clear()
        self._count = 0

    def match(self, ids: list[int], limit: int, namespace: str = "") -> Node | None:
        """The deepest block with a state that ends within the first ``limit`` tokens of ``ids``, or None."""
        node, found = self._roots.get(namespace), None
        start = 0
        while node is not None and start + BLOCK_TOKENS <= limit:
            node = node.children.get(tuple(ids[start : start + BLOCK_TOKENS]))
            if node is None:
                break
            start += BLOCK_TOKENS
            if node.states is not None:
                found = node
        if found is not None:
            self._touch(found)
        return found

    def restore(self, node: Node, state: TargetState, draft: DraftState | None) -> int:
        """Load an empty ``state`` (and draft state) with the blocks up to ``node``; returns the tokens restored."""
        path = node.path()
        assert node.states is not None
        for kept, layer in zip(node.states, state.gdn, strict=True):
            layer.s, layer.conv = kept.s.copy(), kept.conv.copy()
        for block in path:
            for cache, segment in zip(state.kv, block.target, strict=True):
                cache.put(*segment)
                cache.length += segment[0].shape[1]
            for cache, segment in zip(draft.caches() if draft else (), block.draft, strict=True):
                cache.put(*segment)
                cache.length += segment[0].shape[1]
        state.length = len(path) * BLOCK_TOKENS
        return state.length

    def insert(
        self,
        ids: list[int],
        states: list[GDNState],
        hidden: F32,
        state: TargetState,
        draft: DraftState | None,
        namespace: str = "",
    ) -> None:
        """Keep the blocks of ``ids`` (a multiple of the block length), with ``states`` and ``hidden`` at their end.

        Args:
            ids: the tokens, all of them committed in ``state``.
            states: recurrent states after the last of them; kept as they are, so pass copies.
            hidden: the target's final hidden state [hidden] of the last of them.
            state: where keys and values are copied from.
            draft: the draft's state, fed at least ``len(ids) - lag`` tokens.
            namespace: separate trees do not see each other (SGLang's ``extra_key``).
        """
        node = self._roots.setdefault(namespace, Node(None, ()))
        for start in range(0, len(ids), BLOCK_TOKENS):
            key = tuple(ids[start : start + BLOCK_TOKENS])
            child = node.children.get(key)
            if child is None:
                child = Node(node, key)
                child.target = [cache.read(start, start + BLOCK_TOKENS) for cache in state.kv]
                begin, end = max(0, start - self.lag), start + BLOCK_TOKENS - self.lag
                child.draft = [cache.read(begin, end) for cache in (draft.caches() if draft else ())]
                node.children[key] = child
                self._count += 1
            node = child
        if node.states is None:
            node.states, node.hidden = states, hidden.copy()
        self._touch(node)
        self._evict(keep=node)

    def _touch(self, node: Node) -> None:
        self._clock += 1
        for each in node.path():
            each.used = self._clock

    def _leaves(self) -> Iterator[Node]:
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if not node.children and node.parent is not None:
                yield node
            stack.extend(node.children.values())

    def _evict(self, keep: Node) -> None:
        kept = set(map(id, keep.path()))
        while self._count > self.max_blocks:
            leaf = min((n for n in self._leaves() if id(n) not in kept), key=lambda n: n.used, default=None)
            if leaf is None:  # one prompt alone is longer than the cache: cut it from its end
                leaf = keep
                kept.discard(id(leaf))
                keep = leaf.parent or leaf
            assert leaf.parent is not None
            del leaf.parent.children[leaf.key]
            self._count -= 1


def copies(states: list[GDNState]) -> list[GDNState]:
    """Independent copies of recurrent states."""
    return [state.copy() for state in states]


__all__ = ["BLOCK_TOKENS", "TRACK_INTERVAL", "KVCache", "Node", "PrefixCache", "copies"]
