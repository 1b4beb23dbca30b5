"""`python -m tpmdp` is the command line."""

from tpmdp.cli.main import main

if __name__ == "__main__":
    main()
