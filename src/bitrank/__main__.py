"""`python -m bitrank`: the command line."""

from bitrank.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
