"""The commands.

To add one, write ``neocpu/cli/NAME.py`` with a click command named ``command`` in it, and add its
line to `COMMANDS`.
"""

from __future__ import annotations

from typing import Final

# The lines of `neocpu --help`. They are here so that printing it imports no command.
COMMANDS: Final[dict[str, str]] = {
    "compile": "Compile an ONNX model to a shared object.",
    "quantize": "Write a model in 8 bits, as standard ONNX.",
    "tune": "Measure convolution schemes and keep the results in the tuning database.",
    "run": "Run a compiled model.",
    "inspect": "Describe a compiled file, and whether it runs here, without loading it.",
    "explain": "Show the decisions that were made when a model was compiled, and why.",
    "compare": "Find the operator at which a compiled model departs from its model.",
    "reduce": "Write the smallest part of a model that still fails.",
    "serve": "Serve compiled models over HTTP: the Open Inference Protocol v2.",
    "bundle": "Write a folder that runs a compiled model from C and C++, without Python.",
    "bench": "Measure models, beside other engines and the limits of the machine.",
    "db": "Show, check, merge, prune and export tuning databases.",
    "models": "List the built-in networks, or write one as an .onnx file.",
    "doctor": "Check that this machine can compile and run models.",
    "completion": "Print a script that lets bash, zsh or fish complete command lines.",
}
