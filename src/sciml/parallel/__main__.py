"""`python -m sciml.parallel`; see sweeps/_cli.py."""

import sys

from .sweeps._cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
