"""``python -m lossless`` is the ``lossless`` command."""

from lossless.cli import main

if __name__ == "__main__":
    main()
