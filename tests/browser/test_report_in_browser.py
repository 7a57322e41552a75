"""The HTML report in a real browser: filters, keyboard, details, themes, phone width, print, and hostile text."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chromium import Window
from made_run import LONG

pytestmark = pytest.mark.browser

DETAIL = "return !document.getElementById('detail').hidden && !!document.querySelector('#token dl')"


def _count(window: Window) -> tuple[int, int]:
    """Answers shown, and all of them."""
    text = window.one("#count").text.replace(",", "")
    found = re.match(r"(?:All )?(\d+) answers?(?: of (\d+))?", text)
    assert found, text
    return int(found[1]), int(found[2] or found[1])


def _shown_cells(window: Window) -> int:
    return int(window.run("return document.querySelectorAll('#grid .cell:not([hidden])').length"))


def _open(window: Window, page: Path, place: str = "") -> None:
    window.open(page, place)
    window.wait(DETAIL)


# ---------------------------------------------------------------------------------------------------------- loading
@pytest.mark.parametrize("name", ["honest", "lossy", "hostile"])
def test_the_page_asks_for_nothing_and_complains_of_nothing(
    window: Window, name: str, request: pytest.FixtureRequest
) -> None:
    page: Path = request.getfixturevalue(name)
    _open(window, page)
    window.click(window.one("#list button"))
    window.wait(DETAIL)
    assert window.messages() == []
    assert [url for url in window.requests() if not url.startswith(("blob:", "data:"))] == [page.as_uri()]


def test_the_policy_stops_what_it_should(window: Window, honest: Path) -> None:
    _open(window, honest)
    window.driver.execute_async_script(
        "const done = arguments[0]; const image = new Image(); image.onerror = image.onload = () => done();"
        "image.src = 'https://example.invalid/x.png'"
    )
    assert any("Content Security Policy" in m for m in window.messages())


# ---------------------------------------------------------------------------------------------------------- filters
def test_a_verdict_chip_narrows_grid_and_list(window: Window, honest: Path) -> None:
    _open(window, honest)
    everything, cells = _count(window)[0], _shown_cells(window)
    chip = window.one('.chip[data-bucket="known"]')
    expected = int(chip.find_element("css selector", ".count").text)
    window.click(chip)
    assert chip.get_attribute("aria-pressed") == "true"
    assert _count(window) == (expected, everything)
    assert 0 < _shown_cells(window) < cells
    assert {b.text for b in window.all("#grid .cell:not([hidden])")} == {"K"}
    assert len(window.all("#list tbody tr")) == expected
    window.click(chip)
    assert _count(window) == (everything, everything)


@pytest.mark.parametrize(
    ("field", "value", "column"),
    [("variant", "dflash", 2), ("stage", "together", 1), ("category", "json", 1), ("group", "stop", None)],
)
def test_a_choice_narrows_the_answers(window: Window, honest: Path, field: str, value: str, column: int | None) -> None:
    _open(window, honest)
    window.choose(f'[name="{field}"]', value)
    shown, every = _count(window)
    assert 0 < shown < every
    rows = window.all("#list tbody tr")
    assert rows
    if column is not None:
        cells = [row.find_elements("css selector", "td")[column].text for row in rows]
        assert all(value in re.split(r"[ \n·]+", text) for text in cells)


def test_search_finds_prompts_and_clear_brings_all_back(window: Window, honest: Path) -> None:
    _open(window, honest)
    every = _count(window)[1]
    window.one('[name="text"]').send_keys("stop-at-cap-19")
    window.wait("return document.getElementById('count').textContent.includes(' of ')")
    assert _count(window)[0] < 10
    assert {b.text for b in window.all("#list tbody button")} == {"stop-at-cap-19"}
    window.one('[name="text"]').send_keys("no such thing")
    window.wait("return document.getElementById('count').textContent.startsWith('0 ')")
    assert "No answer matches" in window.one("#list tbody").text
    window.click(window.one('#filters [type="reset"]'))
    window.wait("return document.getElementById('count').textContent.startsWith('All')")
    assert _count(window) == (every, every)


def test_the_list_turns_its_pages(window: Window, lossy: Path) -> None:
    _open(window, lossy)
    first = window.one("#list tbody tr").text
    assert window.one("#previous").get_attribute("disabled")
    window.click(window.one("#next"))
    assert window.one("#page").text.startswith("Page 2 of ")
    assert window.one("#list tbody tr").text != first
    window.click(window.one("#previous"))
    assert window.one("#list tbody tr").text == first


def test_the_count_is_announced(window: Window, honest: Path) -> None:
    _open(window, honest)
    assert window.one("#count").get_attribute("aria-live") == "polite"


# ----------------------------------------------------------------------------------------------------------- detail
def test_a_token_under_the_pointer_shows_its_numbers(window: Window, lossy: Path) -> None:
    _open(window, lossy, "#prompt=summary&variant=nextn&stage=plain")
    token = window.one("#detail .right .t.diff")
    window.point_at(token)
    window.wait("return document.querySelector('#detail .right .t.diff').classList.contains('on')")
    said = window.one("#token").text
    assert re.search(r"Position \d+, re-scored by the baseline", said)
    assert re.search(r"id \d+", said)
    for label in ("logprob", "top-2", "gap", "regret"):
        assert label in said
    judged = re.search(r"first difference is ([\d.]+) nats", window.one("#detail .said").text)
    shown = re.findall(r"regret\s+([\d.]+) nats", said)
    assert judged
    assert shown[-1] == judged[1], "the numbers of the page are those of the verdict"


def test_the_detail_says_why_where_and_what_next(window: Window, lossy: Path) -> None:
    _open(window, lossy, "#prompt=summary&variant=nextn&stage=plain")
    said = window.one("#detail").text
    for part in ("divergent (gap)", "nats from the baseline's argmax", "First difference", "Reconverged", "Epsilon",
                 "Perhaps", "Below argmax", "lossless replay latest --prompt summary --variant nextn"):  # fmt: skip
        assert part in said
    label = window.one("#detail .plot svg").get_attribute("aria-label")
    assert re.search(r"largest regret [\d.]+ nats; epsilon [\d.]+ nats", label)
    assert window.all("#detail .plot line.epsilon")
    assert window.all("#detail .plot .regret.over")


def test_a_link_opens_its_answer(window: Window, honest: Path) -> None:
    _open(window, honest, "#prompt=cache-names&variant=dflash&stage=hit&turn=1")
    assert "cache-names" in window.one("#detail-title").text
    assert "dflash · hit 2" in window.one("#detail-title").text
    assert window.one('#detail .others [aria-current="true"]').text.endswith("dflash · hit 2")


def test_what_is_identical_is_shown_once(window: Window, honest: Path) -> None:
    _open(window, honest, "#prompt=list&variant=nextn&stage=plain")
    assert len(window.all("#detail .side")) == 1
    assert "baseline and nextn" in window.one("#detail .side h4").text


# --------------------------------------------------------------------------------------------------------- keyboard
def test_the_grid_is_one_stop_and_arrows_move_in_it(window: Window, honest: Path) -> None:
    _open(window, honest)
    assert len(window.all('#grid .cell[tabindex="0"]')) == 1
    cell = window.one('#grid .cell[tabindex="0"]')
    window.run("arguments[0].focus()", cell)
    names = []
    for key in ("right", "down", "left", "end", "home"):
        window.press(key)
        names.append(window.run("return document.activeElement.getAttribute('aria-label')"))
    assert len(set(names)) == len(names)
    assert names[-1] == cell.get_attribute("aria-label")
    assert len(window.all('#grid .cell[tabindex="0"]')) == 1


def test_enter_opens_a_cell_and_moves_the_focus(window: Window, honest: Path) -> None:
    _open(window, honest)
    window.run("document.querySelector('#grid .cell.reconverged').focus()")
    name = window.run("return document.activeElement.getAttribute('aria-label')")
    window.press("enter")
    window.wait("return document.activeElement.id === 'detail-title'")
    assert window.one("#detail-title").text.startswith(name.split(",")[0])


def test_arrows_and_n_move_through_the_tokens(window: Window, lossy: Path) -> None:
    _open(window, lossy, "#prompt=summary&variant=nextn&stage=plain")
    window.run("document.querySelector('#detail .right .tokens').focus()")

    def position() -> int:
        found = re.search(r"Position ([\d,]+)", window.one("#token").text)
        assert found
        return int(found[1].replace(",", ""))

    start = position()
    window.press("right")
    assert position() == start + 1
    window.press("left", "home")
    assert position() == 0
    window.press("n")
    assert position() == start
    assert window.one("#token").get_attribute("aria-live") == "polite"


def test_focus_can_be_seen_everywhere(window: Window, honest: Path) -> None:
    _open(window, honest)
    window.run("document.body.focus()")
    for _ in range(25):
        window.press("tab")
        found = window.run(
            "const s = getComputedStyle(document.activeElement);"
            "return [document.activeElement.tagName, s.outlineStyle, parseFloat(s.outlineWidth)]"
        )
        assert found[0] == "BODY" or (found[1] != "none" and found[2] > 0), found


def test_names_and_headings_serve_a_screen_reader(window: Window, lossy: Path) -> None:
    _open(window, lossy)
    nameless = window.run(
        "return [...document.querySelectorAll('button:not([hidden]), a, select, input')].filter((e) =>"
        " !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"
    )
    levels = window.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    tables = window.run(
        "return [...document.querySelectorAll('table')].filter((t) =>"
        " !t.caption && !t.getAttribute('aria-labelledby')).length"
    )
    assert nameless == 0
    assert tables == 0
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    stops = window.run("return [...document.querySelectorAll('[tabindex]')].map((e) => e.tabIndex)")
    assert set(stops) <= {0, -1}, "the order of the document is the order of the keyboard"


# --------------------------------------------------------------------------------------------------- looks and paper
def _contrast(window: Window, selector: str) -> list[float]:
    """WCAG contrast of text and background of each element that has a background of its own."""
    colors = window.run(
        "return [...document.querySelectorAll(arguments[0])].map((e) =>"
        " { const s = getComputedStyle(e); return [s.color, s.backgroundColor]; })",
        selector,
    )

    def light(color: str) -> float:
        parts = [int(x) / 255 for x in re.findall(r"\d+", color)[:3]]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    found = []
    for pair in colors:
        low, high = sorted(map(light, pair))
        found.append((high + 0.05) / (low + 0.05))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["honest", "lossy"])
def test_verdicts_can_be_read_in_both_themes(
    window: Window, name: str, theme: str, request: pytest.FixtureRequest
) -> None:
    window.emulate(theme=theme)
    _open(window, request.getfixturevalue(name))
    ratios = _contrast(window, "body, .badge, .cell:not([hidden]), .chip .letter, section")
    assert len(ratios) > 100
    assert min(r for r in ratios if r > 1.01) >= 4.5
    letters = window.run("return [...document.querySelectorAll('.cell:not([hidden])')].map((c) => c.textContent)")
    assert set(letters) <= set("D?KFRI"), "color is never the only sign"


def test_the_button_switches_the_theme(window: Window, honest: Path) -> None:
    _open(window, honest)
    window.run("localStorage.clear()")
    before = window.run("return getComputedStyle(document.body).backgroundColor")
    button = window.one("#theme")
    window.click(button)
    assert button.get_attribute("aria-pressed") == "true"
    assert window.run("return getComputedStyle(document.body).backgroundColor") != before
    window.click(button)
    assert button.get_attribute("aria-pressed") == "false"
    assert window.run("return getComputedStyle(document.body).backgroundColor") == before
    window.run("localStorage.clear()")


@pytest.mark.parametrize("name", ["honest", "lossy", "hostile"])
def test_a_phone_needs_no_sideways_scrolling(window: Window, name: str, request: pytest.FixtureRequest) -> None:
    window.emulate(width=360)
    _open(window, request.getfixturevalue(name))
    wide = window.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0


def test_paper_shows_what_matters(window: Window, lossy: Path) -> None:
    _open(window, lossy)
    window.run(
        "addEventListener('beforeprint', () => { window.printed = ["
        " document.querySelectorAll('#list tbody tr').length,"
        " document.querySelectorAll('details[data-print]:not([open])').length]; })"
    )
    printed = window.driver.execute_cdp_cmd("Page.printToPDF", {})
    assert len(printed["data"]) > 50_000
    rows, closed = window.run("return window.printed")
    assert rows > 100
    assert closed == 0
    assert len(window.all("#list tbody tr")) == 12, "the screen is as before"
    window.emulate(media="print", theme="dark")
    assert window.run("return getComputedStyle(document.querySelector('.pager')).display") == "none"
    assert window.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


# ----------------------------------------------------------------------------------------------------- hostile texts
def _hacked(window: Window) -> Any:
    return window.run("return [window.hacked ?? null, document.images.length, document.scripts.length]")


def test_hostile_output_does_nothing_but_show(window: Window, hostile: Path) -> None:
    _open(window, hostile)
    scripts = _hacked(window)[2]
    for button in [b.text for b in window.all("#list tbody button")]:
        window.click(next(b for b in window.all("#list tbody button") if b.text == button))
        window.wait(DETAIL)
        assert _hacked(window) == [None, 0, scripts]
    _open(window, hostile)
    evil = next(b for b in window.all("#list tbody button") if b.text.startswith("evil"))
    assert "</script><img src=x onerror=" in evil.text
    assert "⟨U+202E⟩" in evil.text
    window.click(evil)
    window.wait("return document.getElementById('detail-title').textContent.startsWith('evil')")
    said = window.one("#detail .right .tokens").get_attribute("textContent")
    assert "<script>window.hacked='script'</script>" in said.replace("⏎", "")
    assert "⟨U+0000⟩" in said
    whole = window.run("return document.body.innerText")
    assert not re.search("[\x00\u202a-\u202e\u2066-\u2069]", whole)
    assert "{{ 7*7 }}" in whole
    assert window.messages() == []


def test_a_very_long_output_is_folded(window: Window, hostile: Path) -> None:
    _open(window, hostile, "#prompt=long&variant=nextn&stage=plain")
    spans = "return document.querySelectorAll('#detail .t').length"
    before = window.run(spans)
    assert before < 1000
    fold = window.one("#detail .right .fold")
    assert re.fullmatch(r"… [\d,]+ equal tokens …", fold.text)
    assert re.fullmatch(r"Show 1500 of [\d,]+ equal tokens", fold.get_attribute("aria-label"))
    window.run("arguments[0].click()", fold)
    assert window.run(spans) > before + 2000
    assert f"{LONG + 1:,} tokens" in window.one("#detail .right h4").text
