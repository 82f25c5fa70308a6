"""`python -m tests.suites`, see `page`."""

from .page import main

if __name__ == "__main__":
    main()
