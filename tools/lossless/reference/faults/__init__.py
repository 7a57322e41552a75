"""Planted faults: ways in which speculative decoding has really gone wrong, to prove that the suite notices.

``--fault NAME[:RATE]`` plants one. ``all_faults()`` lists them with the kind of fault each stands for.
"""

from lossless.reference.faults import acceptance, outputs, states, stopping, transport  # noqa: F401  (they register themselves)
from lossless.reference.faults.base import Commit, Fault, FaultSpec, all_faults, make_fault

__all__ = ["Commit", "Fault", "FaultSpec", "all_faults", "make_fault"]
