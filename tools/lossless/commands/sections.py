"""``lossless --help``: the commands under headings, each with its whole first sentence."""

from typing import Any

from typer.core import TyperGroup

SECTIONS: dict[str, tuple[str, ...]] = {
    "Set up": ("init", "profiles", "doctor", "serve"),
    "Recorded runs": ("runs", "verify", "replay", "compare", "report", "summary", "export", "merge"),
    "From run to run": ("golden", "upgrade", "suspects", "bench"),
    "For scripts": ("schema",),
}
"""Headings in the order of the help; a command that is in none of them stands under ``Other``."""
OTHER = "Other"


class SectionedGroup(TyperGroup):
    """The group of all commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections. Plain text, so that it reads the same in a terminal and in a pipe."""
        found = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}
        shown = {name: command for name, command in found.items() if not command.hidden}
        sectioned = {name for names in SECTIONS.values() for name in names}
        sections = {**SECTIONS, OTHER: tuple(name for name in shown if name not in sectioned)}
        width = max((len(name) for name in shown), default=0)
        for title, names in sections.items():
            rows = [(name.ljust(width), _sentence(shown[name])) for name in names if name in shown]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _sentence(command: Any) -> str:
    """The first sentence of a command's help, not cut to the line."""
    text = " ".join((command.short_help or command.help or "").split("\n\n")[0].split())
    return text if text.endswith((".", ")")) or not text else f"{text}."
