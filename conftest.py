"""The suite's options, fixtures and summary come from the plugin ``lossless.plugin`` (an entry point of the package).

This file only loads it where the package is on the path but not installed.
"""

from importlib.metadata import entry_points

if not any(e.value == "lossless.plugin" for e in entry_points(group="pytest11")):
    pytest_plugins = ["lossless.plugin"]
