"""Fixtures for all tests of the tool itself."""

pytest_plugins = ["pytester"]
