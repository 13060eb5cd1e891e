"""Packages that programs use beside neocpu: `python -m tests.neighbours.neighbour_packages`.

They are installed into a virtual environment of their own under ``build/neighbours``, which finds
all else, this checkout's neocpu too, in the one that runs this script: large packages do not get
into the way of other tests. ``.ready`` is written last, if at least one of them could be had; of
the others ``lacking.json`` says why not.
"""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "neighbours"
PYTHON = FOLDER / "bin" / "python"
LACKING = FOLDER / "lacking.json"

#: What is imported, and what to ask pip for. PyTorch says "+cpu": without, 5 GB for GPUs may come.
PACKAGES = {
    "torch": "torch==2.13.0+cpu",
    "tensorflow": "tensorflow-cpu>=2.21",
    "cv2": "opencv-python-headless>=5",
    "onnxruntime": "onnxruntime>=1.20",
    "openvino": "openvino>=2025.0",
}
#: Where that build of PyTorch is, if the usual places do not have it.
MORE = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")


def main() -> None:
    """Make the environment; end with what pip said if there is nothing to put into it."""
    (FOLDER / ".ready").unlink(missing_ok=True)
    venv.create(FOLDER, clear=True, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": FOLDER, "platbase": FOLDER}))
    # As a folder of packages, not as a path alone: an editable installation is found by a .pth.
    base = sysconfig.get_path("purelib")
    (site / "checkout.pth").write_text(f"import site; site.addsitedir({base!r})\n")
    lacking = {} if install(*PACKAGES.values()) is None else install_each()
    if len(lacking) == len(PACKAGES):
        sys.exit("\n".join(lacking.values()))
    LACKING.write_text(json.dumps(lacking))
    (FOLDER / ".ready").touch()


def install_each() -> dict[str, str]:
    """Install what can be had, and return why not of what cannot."""
    lacking = {}
    for module, requirement in PACKAGES.items():
        why = install(requirement)
        if why is not None and module == "torch":
            why = install(requirement, *MORE)
        if why is not None:
            lacking[module] = f"{requirement} could not be installed: {why}"
            print(lacking[module], file=sys.stderr)
    return lacking


def install(*arguments: str) -> str | None:
    """Install packages; return the last line of what pip said if that failed."""
    command = (str(PYTHON), "-m", "pip", "install", "-q", *arguments)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
    return (lines or ["pip failed"])[-1]


if __name__ == "__main__":
    main()
