"""`python -m lockstep`, for engines such as torchrun that start a module."""

from lockstep.cli.main import main

if __name__ == "__main__":
    main()
