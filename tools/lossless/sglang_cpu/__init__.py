"""Real SGLang without a GPU: the unmodified PyPI package over pure-torch stand-ins for its CPU kernels.

``python -m lossless.sglang_cpu VENV_DIR`` builds its virtual environment; README.md says how to start servers.
"""

from pathlib import Path

SGLANG_VERSIONS = ("0.5.19", "0.5.23")
"""The SGLang versions that were tried with the stand-ins; each has its own pinned packages."""
SGLANG_VERSION = "0.5.19"
"""The version that is built when none is named."""
PYTHON_VERSION = (3, 11)
"""The only Python version that the pinned packages were measured with."""


def site_path() -> Path:
    """The folder that goes on PYTHONPATH of every server process, whatever its SGLang version."""
    return Path(__file__).parent / "site"


def requirements_path(version: str = SGLANG_VERSION) -> Path:
    """The pinned packages of one of SGLANG_VERSIONS; the first one is torch."""
    return Path(__file__).parent / f"requirements-{version}.txt"
