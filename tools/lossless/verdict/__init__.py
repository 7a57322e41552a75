"""The pure core: no I/O, no pytest, no HTTP. Everything a verdict is made of, and the verdict itself."""

from lossless.verdict.adjust import Adjustment, adjust
from lossless.verdict.alignment import Alignment, Hunk, align, common_prefix
from lossless.verdict.budget import Budget, allow
from lossless.verdict.judge import Evidence, Failure, judge
from lossless.verdict.kinds import Kind, Reason
from lossless.verdict.noise import Epsilon, NoiseFloor, NoiseSample, calibrate, given, measure
from lossless.verdict.scores import Candidate, OutputScores, Regret, summarize
from lossless.verdict.stops import Detokenize, Violation, expected_text, violations
from lossless.verdict.transcript import Finish, StopRules, Transcript
from lossless.verdict.verdict import Difference, TokenAt, Verdict

__all__ = [
    "Adjustment",
    "Alignment",
    "Budget",
    "Candidate",
    "Detokenize",
    "Difference",
    "Epsilon",
    "Evidence",
    "Failure",
    "Finish",
    "Hunk",
    "Kind",
    "NoiseFloor",
    "NoiseSample",
    "OutputScores",
    "Reason",
    "Regret",
    "StopRules",
    "TokenAt",
    "Transcript",
    "Verdict",
    "Violation",
    "adjust",
    "align",
    "allow",
    "calibrate",
    "common_prefix",
    "expected_text",
    "given",
    "judge",
    "measure",
    "summarize",
    "violations",
]
