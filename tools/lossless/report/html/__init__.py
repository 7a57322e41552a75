"""A run as one self-contained HTML file: ``collect`` what it shows, ``render`` the page."""

from lossless.report.html.data import Report, collect
from lossless.report.html.page import render

__all__ = ["Report", "collect", "render"]
