"""``python -m compact_bilinear`` is ``cbp``; ``torchrun -m compact_bilinear`` needs it so."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
