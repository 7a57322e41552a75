"""The evidence format as a type: what ``evidence.json`` holds, field by field, with units.

``evidence.schema.json`` is made from this type (``evidence_schema``), and so is the table in ``docs/evidence.md``.
Parts with a default may be missing; everything else is always there.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from lossless.report.evidence_entries import (
    AcceptanceEntry,
    BrokenRuleEntry,
    ContextAcceptance,
    ContextSpeed,
    ControlEntry,
    Count,
    EpsilonEntry,
    GoldenEntry,
    HintEntry,
    KnownIssueEntry,
    NeedleEntry,
    PromptSet,
    ServerEntry,
    SpeedEntry,
    SurvivalEntry,
    TimingsEntry,
    VerdictEntry,
)

Status = Literal["proven", "divergent", "inconclusive"]


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """What one shard of a merged run found by itself."""

    shard: Annotated[int | None, Meta(description="from 1")]
    of: Annotated[int | None, Meta(description="how many shards there are")]
    key: Annotated[str, Meta(description="digest of everything that decides the shard's answers")]
    prompts: Annotated[int, Meta(description="how many prompts it recorded", ge=0)]
    status: Annotated[Status, Meta(description="the shard's own status")]
    created: Annotated[str, Meta(description="when recording began, ISO 8601 in UTC")]
    versions: Annotated[dict[str, str | None], Meta(description="engine version by server")]
    servers: Annotated[list[ServerEntry], Meta(description="servers that came up, baseline first")]
    epsilon: Annotated[EpsilonEntry, Meta(description="the shard's near-tie bound")]
    controls: Annotated[list[ControlEntry], Meta(description="baseline first")]
    timings: Annotated[dict[str, TimingsEntry], Meta(description="by server")]
    counts: Annotated[dict[str, dict[str, Count]], Meta(description="verdicts by variant and label")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """Everything one run of sglang-lossless proved, disproved or could not tell."""

    schema: Annotated[Literal[1], Meta(description="version of this format")]
    run: Annotated[str, Meta(description="name of the run's folder")]
    status: Annotated[Status, Meta(description="the worst of the run, known issues aside")]
    profile: Annotated[str, Meta(description="which servers were compared", min_length=1)]
    kind: Annotated[str, Meta(description="reference (embedded engine), sglang (launched) or attach")]
    target: Annotated[str, Meta(description="target model")]
    dtype: Annotated[str, Meta(description="dtype of the target's computation")]
    fault: Annotated[str | None, Meta(description="planted fault, embedded engine only")]
    created: Annotated[str, Meta(description="when recording began, ISO 8601 in UTC")]
    tool_version: Annotated[str, Meta(description="version of sglang-lossless that recorded it")]
    prompt_set: Annotated[PromptSet, Meta(description="the prompts that were asked")]
    versions: Annotated[dict[str, str | None], Meta(description="engine version by server")]
    servers: Annotated[list[ServerEntry], Meta(description="servers that came up, baseline first")]
    epsilon: Annotated[EpsilonEntry, Meta(description="the near-tie bound of the run")]
    controls: Annotated[list[ControlEntry], Meta(description="baseline first")]
    counts: Annotated[dict[str, dict[str, Count]], Meta(description="verdicts by variant and label")]
    known_issues: Annotated[dict[str, list[KnownIssueEntry]], Meta(description="by variant")]
    hints: Annotated[dict[str, list[HintEntry]], Meta(description="by variant; empty for a run that passed")]
    verdicts: Annotated[list[VerdictEntry], Meta(description="every answer of every variant")]
    broken_rules: Annotated[list[BrokenRuleEntry], Meta(description="empty for a run that passed")]
    golden: Annotated[list[GoldenEntry], Meta(description="today's baseline against the golden snapshots")]
    acceptance: Annotated[
        dict[str, dict[str, AcceptanceEntry]], Meta(description="by variant and category; `all` is the whole set")
    ]
    speed: Annotated[
        dict[str, dict[str, SpeedEntry]], Meta(description="by server and category; `all` is the whole set")
    ]
    timings: Annotated[dict[str, TimingsEntry], Meta(description="by server")]
    skipped: Annotated[
        dict[str, str] | UnsetType, Meta(description="prompts that could not be sent, with the reason")
    ] = UNSET
    accept_by_context: Annotated[
        dict[str, list[ContextAcceptance]] | UnsetType, Meta(description="by variant, shortest context first")
    ] = UNSET
    speed_by_context: Annotated[
        dict[str, list[ContextSpeed]] | UnsetType, Meta(description="by server, shortest context first")
    ] = UNSET
    needles: Annotated[
        dict[str, NeedleEntry] | UnsetType, Meta(description="by server; empty without such prompts")
    ] = UNSET
    survival: Annotated[list[SurvivalEntry] | UnsetType, Meta(description="by server; empty without a stress test")] = (
        UNSET
    )
    shards: Annotated[list[ShardEntry] | UnsetType, Meta(description="a merged run only: what each shard found")] = (
        UNSET
    )
