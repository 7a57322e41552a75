# mypy: ignore-errors
"""SGLang imports this module; nothing of it is used while serving on CPU."""
