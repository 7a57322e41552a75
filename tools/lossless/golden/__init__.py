"""Golden snapshots: one readable file a prompt, compared by the verdict core, written only when a pair passed."""

from lossless.golden.extension import GoldenExtension
from lossless.golden.files import GoldenFile, Provenance, read_golden, read_goldens

__all__ = ["GoldenExtension", "GoldenFile", "Provenance", "read_golden", "read_goldens"]
