"""Draft triage: why a draft is accepted less than it should be. Pure rules over the files and one recorded run."""

from lossless.doctor.case import Case, Measured, Reference
from lossless.doctor.diagnosis import Diagnosis, Outcome, worst_outcome
from lossless.doctor.finding import Finding, Status
from lossless.doctor.gather import cases
from lossless.doctor.rules import RULES, diagnose

__all__ = [
    "RULES",
    "Case",
    "Diagnosis",
    "Finding",
    "Measured",
    "Outcome",
    "Reference",
    "Status",
    "cases",
    "diagnose",
    "worst_outcome",
]
