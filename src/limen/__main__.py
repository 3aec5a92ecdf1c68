"""`python -m limen` is the same program as `limen`."""

from limen.cli import main

main()
