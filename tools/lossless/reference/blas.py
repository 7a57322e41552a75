"""One BLAS thread.

The engine's matrices are too small to split: a second OpenBLAS thread makes it slower, several times so on a busy
machine. ``OPENBLAS_NUM_THREADS`` is read when numpy is loaded, which may have happened long before; this always works.
"""

import ctypes
from pathlib import Path

import numpy as np

_SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def use_one_thread() -> bool:
    """Tell the OpenBLAS inside numpy's wheel to use one thread; False where there is none to tell (other builds)."""
    for library in (Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"):
        loaded = ctypes.CDLL(str(library))
        for name in _SETTERS:
            setter = getattr(loaded, name, None)
            if setter is not None:
                setter(ctypes.c_int(1))
                return True
    return False
