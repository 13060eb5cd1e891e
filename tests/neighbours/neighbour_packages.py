"""Packages that programs use beside neocpu: `python -m tests.neighbours.neighbour_packages`.

They are installed into a separate virtual environment under ``build/neighbours``, so that large
packages do not disturb other tests. It finds everything else, this checkout's neocpu too, in the
environment that runs this script. ``.ready`` is written last, if at least one package could be
installed; ``lacking.json`` says why others could not.
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

#: Modules and pip's names of their packages. Without "+cpu", PyTorch may bring 5 GB for GPUs.
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
    """Make the environment; exit with pip's message if no package can be installed."""
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
    """Install the available packages, and return the reasons for the others."""
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
    """Install packages; return the last line of pip's output if that failed."""
    command = (str(PYTHON), "-m", "pip", "install", "-q", *arguments)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
    return (lines or ["pip failed"])[-1]


if __name__ == "__main__":
    main()
