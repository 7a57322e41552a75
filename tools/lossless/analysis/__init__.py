"""From a recorded run to verdicts: reads the run folder, applies the pure core, needs no server."""

from lossless.analysis.acceptance import Acceptance, Speed
from lossless.analysis.analysis import Analysis, analyze
from lossless.analysis.controls import Control
from lossless.analysis.judged import Judged

__all__ = ["Acceptance", "Analysis", "Control", "Judged", "Speed", "analyze"]
