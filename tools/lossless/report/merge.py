"""The shards of a merged run as a table."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from lossless.analysis import Analysis, Judged
from lossless.analysis.merge import MergedAnalysis
from lossless.report.evidence import status

STYLES = {"proven": "green", "divergent": "bold red", "inconclusive": "yellow"}


def shard_status(shard: Analysis, judged: Sequence[Judged]) -> str:
    """The status of one shard by itself, from the merged run's verdicts."""
    return status(shard, [j for j in judged if j.prompt.id in shard.prompts])


def shard_table(analysis: MergedAnalysis, judged: Sequence[Judged]) -> Table:
    """One line a shard: its prompts, status, epsilon (nats), and the controls that failed in it."""
    table = Table(title="shards", title_justify="left", box=None, padding=(0, 2), pad_edge=False)
    for column in ("shard", "prompts", "status", "epsilon", "failed controls"):
        table.add_column(column, justify="right" if column in ("prompts", "epsilon") else "left")
    for shard in analysis.shards:
        own = shard_status(shard, judged)
        failed = [f"{c.scope} {c.name}" for c in shard.controls if not c.ok]
        table.add_row(
            str(shard.manifest.shard),
            str(len(shard.prompts)),
            Text(own, STYLES[own]),
            "none" if shard.epsilon.problem else f"{shard.epsilon.value:.4g}",
            Text(", ".join(failed) or "-"),
        )
    return table
