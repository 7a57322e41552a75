"""``python -m lossless.reference``: serve the embedded reference engine."""

import os
import sys

# One BLAS thread a server: several share a small machine, and these matrices are too small to split. This has to be set
# before numpy is imported, and wins over the environment's own setting on purpose.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

from lossless.errors import LosslessError  # noqa: E402
from lossless.reference.server import serve  # noqa: E402


def main() -> int:
    """Run the server; returns the exit status."""
    try:
        serve(sys.argv[1:])
    except LosslessError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
