"""The help of every registered command: pinned, complete, and plain text of at most 100 columns."""

from collections.abc import Iterator
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from typer.main import get_command
from typer.testing import CliRunner

from lossless.cli import app
from lossless.commands.sections import OTHER, SECTIONS

WIDTH = 100
ROOT: Any = get_command(app)


def walk(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, *path, name)


COMMANDS = dict(walk(ROOT))


def name_of(path: tuple[str, ...]) -> str:
    return "-".join(path) or "lossless"


def help_of(path: tuple[str, ...]) -> str:
    """The text as ``--help`` prints it. Nothing is run: some commands hand ``--help`` on to another program."""
    context: Any = None
    command: Any = ROOT
    for name in ("lossless", *path):
        command = ROOT if context is None else context.command.commands[name]
        context = command.make_context(
            name, [], parent=context, resilient_parsing=True, terminal_width=WIDTH, max_content_width=WIDTH
        )
    text: str = command.get_help(context)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.mark.parametrize("path", COMMANDS, ids=name_of)
def test_help_is_pinned(path: tuple[str, ...], snapshot: SnapshotAssertion) -> None:
    assert help_of(path) == snapshot(name=name_of(path))


@pytest.mark.parametrize("path", COMMANDS, ids=name_of)
def test_help_is_plain_text_that_fits(path: tuple[str, ...]) -> None:
    text = help_of(path)
    assert not [line for line in text.splitlines() if len(line) > WIDTH]
    assert not set("\x1b│╭╰") & set(text)
    assert "[bold" not in text


@pytest.mark.parametrize("path", COMMANDS, ids=name_of)
def test_everything_is_explained(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    first = (command.help or "").strip().split("\n\n")[0]
    assert first, "the command has no help"
    assert first[0].isupper()
    assert first.endswith((".", ")")) or "\n\n" in command.help
    for param in command.params:
        told = getattr(param, "help", None)
        assert told, f"{param.name} has no help"
        assert told.rstrip("]").endswith((".", ")")), f"{param.name}: {told}"


def test_every_command_stands_under_a_heading() -> None:
    sectioned = {name for names in SECTIONS.values() for name in names}
    assert {path[0] for path in COMMANDS if path} <= sectioned
    assert f"\n{OTHER}:" not in help_of(())


def test_no_command_is_lost_between_the_headings() -> None:
    text = help_of(())
    for name in ROOT.commands:
        assert f"\n  {name} " in text


def test_no_arguments_show_the_help() -> None:
    result = CliRunner().invoke(app, [], env={"COLUMNS": str(WIDTH)})
    assert "Usage: " in result.output
    assert "Recorded runs:" in result.output


def test_an_unknown_command_is_named_with_what_is_close() -> None:
    result = CliRunner().invoke(app, ["verfy"])
    assert result.exit_code == 2
    assert "verfy" in result.output
    assert "verify" in result.output
