"""Pack lines of records for shipping: python -m neocpu.tuning_db LINES.jsonl CPU.records."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.files import replacement
from neocpu.tuning_db.packed import pack
from neocpu.tuning_db.record_file import read_records


def main(arguments: list[str] | None = None) -> None:
    """Write a packed file of the records that count in a file of lines.

    Equal lines make equal bytes. Nothing is written if a line is no record.
    """
    parser = argparse.ArgumentParser(prog="python -m neocpu.tuning_db", description=main.__doc__)
    parser.add_argument("source", type=Path, metavar="LINES.jsonl")
    parser.add_argument("packed", type=Path, metavar="CPU.records")
    given = parser.parse_args(arguments)
    try:
        contents = read_records(given.source)
    except NeoCPUError as error:
        sys.exit(str(error))
    if contents.skipped:
        sys.exit(str(contents.skipped[0]))
    data = pack(entry.record for entry in contents.winners().values())
    with replacement(given.packed, 0o644) as new:
        new.write(data)


if __name__ == "__main__":
    main()
