"""``python -m hsqueue``: the command line."""

from hsqueue.cli.main import main

if __name__ == "__main__":
    main()
