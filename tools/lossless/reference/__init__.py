"""The embedded reference engine: a tiny real hybrid model, real drafts and real block verification, in numpy.

It speaks SGLang 0.5.19's native HTTP protocol, so the suite can be tested, shown and taught without a GPU, and it can
be made to fail on purpose (``lossless.reference.faults``), so that the suite itself can be tested.
"""

from lossless.reference.builtin import builtin_path

__all__ = ["builtin_path"]
