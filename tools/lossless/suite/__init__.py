"""One suite run: options become a plan, the plan a recorded run, the run an analysis. Used by pytest and the CLI."""

from lossless.suite.options import Options
from lossless.suite.session import SuiteSession

__all__ = ["Options", "SuiteSession"]
