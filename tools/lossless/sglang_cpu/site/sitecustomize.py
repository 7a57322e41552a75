# mypy: ignore-errors
"""Python runs this at start-up, in the server and in every process it spawns, because the
folder is on PYTHONPATH.  It only arms import hooks; nothing heavy is imported here."""

import sglang_cpu_patches

sglang_cpu_patches.install()
