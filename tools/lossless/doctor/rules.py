"""The rules in the order in which an expert looks: causes in the files first, then what a run shows."""

from collections.abc import Callable

from lossless.doctor import file_rules, run_rules, task_rules
from lossless.doctor.case import Case
from lossless.doctor.diagnosis import Diagnosis, conclude
from lossless.doctor.finding import Finding

RULES: tuple[Callable[[Case], Finding], ...] = (
    file_rules.files,
    file_rules.configs,
    file_rules.lm_head,
    file_rules.captured_layers,
    file_rules.tokenizer,
    file_rules.rotary,
    run_rules.speculation,
    run_rules.lossless_output,
    run_rules.draft_head,
    run_rules.positions,
    task_rules.tasks,
    task_rules.task_mix,
    run_rules.context_length,
    run_rules.quantization,
    run_rules.temperature,
)


def diagnose(case: Case) -> Diagnosis:
    """Apply every rule to one variant."""
    return conclude(case, [rule(case) for rule in RULES])
