"""Real SGLang without a GPU: the unmodified PyPI package over pure-torch stand-ins for its CPU kernels.

``python -m lossless.sglang_cpu VENV_DIR`` builds its virtual environment; README.md says how to start servers.
"""

from pathlib import Path

SGLANG_VERSION = "0.5.19"
PYTHON_VERSION = (3, 11)
"""The only Python version that the pinned packages were measured with."""


def site_path() -> Path:
    """The folder that goes on PYTHONPATH of every server process."""
    return Path(__file__).parent / "site"


def requirements_path() -> Path:
    """The pinned packages; the first one is torch."""
    return Path(__file__).parent / "requirements.txt"
