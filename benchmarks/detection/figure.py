"""``python -m benchmarks.detection.figure [--out docs]``: sensitivity.png and sensitivity.svg from detection.json.

Needs matplotlib, which nothing else does.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams.update(
    {"svg.hashsalt": "lossless", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
)

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

STYLES = {  # color-blind safe (Okabe and Ito); the shift keeps lines apart that say the same
    "text equality": ("#E69F00", "s", "--", 0.024),
    "match rate over 60%": ("#56B4E9", "^", ":", 0.012),
    "top-5 at first mismatch": ("#009E73", "D", "-.", -0.012),
    "greedy gap 0.25, budget 1%": ("#CC79A7", "v", "--", -0.024),
    "ours": ("#000000", "o", "-", 0.0),
}
PANELS = (
    ("size", "One wrong token, by its size", "regret of the wrong token, nats"),
    ("share", "Wrong tokens beyond 2 epsilon, by their share", "share of wrong tokens, %"),
    ("small", "Wrong tokens under epsilon each, by their share", "share of wrong tokens, %"),
)


def draw(data: dict[str, Any]) -> Figure:
    """Three panels: detection against regret, and against the share of wrong tokens above and under epsilon."""
    sensitivity = data["sensitivity"]
    alarms = data["noise"]["with_recorded_gpu"]["rules"]
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.9), sharey=True)
    for axis, (panel, title, label) in zip(axes, PANELS, strict=True):
        bins = sensitivity["panels"][panel]
        for name, (color, marker, line, shift) in STYLES.items():
            xs = [b["regret"] if panel == "size" else 100 * b["share"] for b in bins]
            ys = [b["detected"][name] + shift for b in bins]
            ours = name == "ours"
            axis.plot(
                xs,
                ys,
                line,
                color=color,
                marker=marker,
                markersize=7 if ours else 6,
                linewidth=2.4 if ours else 1.5,
                label=_label(name, alarms[name]),
                zorder=3 if ours else 2,
            )
        axis.set_title(f"{title}\n({sum(b['outputs'] for b in bins)} outputs)", fontsize=11)
        axis.set_xlabel(label)
        axis.grid(alpha=0.25)
    _size_axis(axes[0], sensitivity["epsilon"])
    axes[0].set_ylabel("share of corrupted outputs that are noticed")
    axes[0].set_ylim(-0.06, 1.08)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="lower center", ncol=3, frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    return figure


def _size_axis(axis: Axes, epsilon: float) -> None:
    axis.set_xscale("log")
    axis.axvline(epsilon, color="black", linewidth=1, alpha=0.6)
    axis.annotate(
        f"epsilon of this run: {epsilon:.3g} nats",
        (epsilon, 0.62),
        xytext=(-5, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        rotation=90,
        fontsize=9,
    )
    ticks = [0.1, 0.25, 0.5, 1, 2, 4, 8, 16]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()


def _label(name: str, alarms: dict[str, int]) -> str:
    """The rule and how often it calls an honest run of ten pairs wrong."""
    share = alarms["runs"] / alarms["of_runs"] if alarms["of_runs"] else 0.0
    return f"{name}: {share:.0%} of honest runs called wrong"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection.figure", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), metavar="DIR", help="holds detection.json")
    args = parser.parse_args()
    data = json.loads((args.out / "detection.json").read_text(encoding="utf-8"))
    figure = draw(data)
    figure.savefig(args.out / "sensitivity.png", dpi=150)
    figure.savefig(args.out / "sensitivity.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
