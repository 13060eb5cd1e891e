"""``python -m neocpu``: the same as the ``neocpu`` command."""

from neocpu.cli.main import run

if __name__ == "__main__":
    run()
