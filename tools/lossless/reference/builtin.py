"""Where the tiny model that ships with the package lies."""

from pathlib import Path

from lossless.errors import UsageError

BUILTIN = "builtin:tiny"


def builtin_path() -> Path:
    """The folder that holds ``target/``, ``dflash2/`` and ``eval_prompts.json`` of the shipped tiny model."""
    return Path(__file__).resolve().parent / "tiny"


def model_folder(name: str, part: str) -> Path:
    """Resolve a ``--model-path`` value.

    Args:
        name: ``builtin:tiny`` or a folder in Hugging Face layout.
        part: which folder of the shipped model ``builtin:tiny`` stands for: ``target`` or ``dflash2``.

    Raises:
        UsageError: unknown ``builtin:`` name, or no such folder, or a folder without ``config.json``.
    """
    if name.startswith("builtin:"):
        if name != BUILTIN:
            raise UsageError(f"unknown built-in model {name!r}: the only one is {BUILTIN!r}")
        return builtin_path() / part
    folder = Path(name)
    if not folder.is_dir():
        raise UsageError(
            f"model folder {name!r} does not exist",
            hint=f"give a folder in Hugging Face layout, or {BUILTIN} for the model that ships with the package",
        )
    if not (folder / "config.json").is_file():
        raise UsageError(f"model folder {name!r} holds no config.json")
    return folder
