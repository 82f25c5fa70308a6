"""`python -m sciml.parallel`; see _command.py."""

import sys

from ._command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
