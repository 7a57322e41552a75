"""Makes the pictures of the README from a recorded run.

    python docs/screenshots/make.py RUN [--prompt ID]

Writes ``report-light.png`` (the top of the report), ``report-dark.png`` (its answers) and ``report-prompt.png`` (one
answer in full), taken in a headless Chromium and drawn from a palette of 128 colors so that they stay small, and
``terminal.svg``, what ``lossless verify RUN`` prints. Needs the extras ``browser`` and ``bench`` (Pillow comes with
matplotlib), Chromium and its driver.
"""

import argparse
import base64
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from lossless.analysis import Analysis, analyze
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report.evidence import status
from lossless.report.hint import run_lines
from lossless.report.html import collect, render
from lossless.report.summary import known_lines, summary

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1180, 1180
COLORS = 128
SHOWN = 4  # divergent answers in the terminal's picture
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")


def browser(profile: str) -> webdriver.Chrome:
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if None in programs.values():
        sys.exit("chromium or chromedriver not found: apt-get install chromium chromium-driver")
    options = Options()
    options.binary_location = str(programs["chromium"])
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(str(programs["chromedriver"])))


def show(driver: webdriver.Chrome, page: Path, theme: str, place: str = "") -> None:
    """Open the page at ``place`` and wait until its first detail is drawn."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False},
    )
    features = [{"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get("about:blank")
    driver.get(f"{page.as_uri()}{place}")
    wait = "document.documentElement.dataset.ready !== undefined" + (
        " && document.querySelector('#token dl')" if place else ""
    )
    driver.execute_async_script(
        f"const done = arguments[0]; const ask = () => ({wait}) ? done() : requestAnimationFrame(ask); ask();"
    )


def take(driver: webdriver.Chrome, name: str, selector: str | None = None) -> None:
    """The top of the page, or one element of it, as a small PNG."""
    box = driver.execute_script(
        "const e = document.querySelector(arguments[0]); if (!e) return null;"
        "const b = e.getBoundingClientRect(); return [b.top + scrollY - 12, b.height + 24];",
        selector or "no such element",
    )
    top, height = box or (0, HEIGHT)
    clip: dict[str, Any] = {"x": 0, "y": top, "width": WIDTH, "height": min(height, HEIGHT * 1.3), "scale": 1}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    picture = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(HERE / name, optimize=True)
    print(f"{HERE / name} ({(HERE / name).stat().st_size / 1024:.0f} KiB)")


def terminal(analysis: Analysis) -> None:
    """What ``lossless verify`` prints, as SVG; of many divergent answers only the first."""
    console = Console(record=True, width=124, file=io.StringIO(), highlight=False, force_terminal=True)
    judged = list(analysis.verdicts())
    outcome = status(analysis, judged)
    bad = [j for j in judged if not j.verdict.passed() and not analysis.is_known(j)]
    console.print(Text("$ lossless verify latest", style="bold"))
    console.print(summary(analysis))
    for line in known_lines(analysis):
        console.print(line, markup=False)
    for j in bad[:SHOWN]:
        console.print(f"{j.prompt.id} · {j.variant} · {j.stage}: {j.verdict.label}: {j.verdict.detail}", markup=False)
    if len(bad) > SHOWN:
        console.print(f"… {len(bad) - SHOWN} more", style="dim")
    for name in dict.fromkeys(j.variant for j in bad):
        for line in run_lines(analysis, name):
            console.print(line, markup=False)
    console.print(Text(outcome, style="bold green" if outcome == "proven" else "bold red"))
    text = console.export_svg(title="lossless verify", theme=MONOKAI)
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)  # a picture asks for nothing
    (HERE / "terminal.svg").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a run folder, its name, or latest")
    parser.add_argument("--prompt", help="the prompt shown in full (default: the worst)")
    parser.add_argument("--runs", type=Path, default=DEFAULT_ROOT)
    options = parser.parse_args()
    analysis = analyze(find_run(options.runs, options.run))
    judged = [j for j in analysis.verdicts() if options.prompt in (None, j.prompt.id) and j.verdict.differences]
    worst = max(judged, key=lambda j: (not j.verdict.passed(), len(j.verdict.differences)), default=None)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render(collect(analysis, command="latest")), encoding="utf-8")
        driver = browser(f"{folder}/profile")
        try:
            show(driver, page, "light")
            take(driver, "report-light.png")
            show(driver, page, "dark")
            take(driver, "report-dark.png", "section[aria-labelledby=answers]")
            if worst is not None:
                place = f"#prompt={worst.prompt.id}&variant={worst.variant}&stage={worst.stage}&turn={worst.turn}"
                show(driver, page, "light", place)
                take(driver, "report-prompt.png", "#detail")
        finally:
            driver.quit()
    terminal(analysis)


if __name__ == "__main__":
    main()
