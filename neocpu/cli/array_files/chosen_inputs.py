"""The choice of inputs that ``neocpu run`` reads or draws, among the shapes of an artifact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from neocpu.cli.array_files.arrays import AnyArray, read_archive, read_named
from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_memory
from neocpu.foundation.tensor_spec import TensorSpec, shapes_text
from neocpu.runtime.signatures import Signature, SignatureSet

if TYPE_CHECKING:
    from neocpu.frontend.shapes.input_shapes import Given
    from neocpu.runtime.header import ArtifactHeader

Inputs: TypeAlias = Sequence[TensorSpec]


def chosen_inputs(header: ArtifactHeader, shapes: Mapping[str, Given]) -> list[Inputs]:
    """Return the inputs of the signature that ``--shape`` selects; without it, of all signatures.

    In a set of different batches, it may also name any other batch.

    Raises UsageError: no signature has these shapes, or there is no memory for so large a batch.
    """
    if not shapes:
        return [each.inputs for each in header.each]
    try:
        return [header.of(shapes).inputs]
    except UsageError:
        if (other := _other_batch(header, shapes)) is None:
            raise
        _check_memory(other)
        return [other.inputs]


def _other_batch(header: ArtifactHeader, shapes: Mapping[str, Given]) -> Signature | None:
    """Return the signature of a batch that is composed of others; None if there is none."""
    given = next(iter(shapes.values()))
    if not isinstance(given, tuple):  # a value, which no input has
        return None
    signatures = SignatureSet([Signature(each.inputs, each.outputs) for each in header.each])
    for each in signatures.all:
        other = each.with_rows(given[0])
        agrees = all(other.shapes.get(name) == shape for name, shape in shapes.items())
        if agrees and signatures.batch_plans([*other.shapes.values()]):
            return other
    return None


def _check_memory(signature: Signature) -> None:
    """Refuse a batch that needs more memory than this process may use."""
    specs = (*signature.inputs, *signature.outputs)
    # Drawing and describing the arrays takes a copy in float64.
    needed = sum(math.prod(spec.shape) * (DTYPES[spec.dtype].bytes + 8) for spec in specs)
    if needed > (most := usable_memory()):
        raise UsageError(
            f"{shapes_text(signature.inputs)} needs {needed / 1e9:.1f} GB of memory, and this "
            f"process may use {most / 1e9:.1f} GB: give a smaller batch"
        )


def read_inputs(
    archive: Path | None, named: Sequence[str], choices: Sequence[Inputs]
) -> dict[str, AnyArray]:
    """Read the inputs of the first of ``choices`` that fits the files.

    archive: an ``.npz`` file.
    named: ``[NAME=]FILE.npy`` for inputs that are not in the archive.
    Raises UsageError: the files fit none of the choices.
    """
    problems: dict[str, UsageError] = {}
    for specs in choices:
        try:
            arrays = read_archive(archive, specs) if archive is not None else {}
            for name, array in read_named(named, specs).items():
                if name in arrays:
                    raise UsageError(f"input '{name}' is given both by --inputs and by --input")
                arrays[name] = array
        except UsageError as error:
            problems.setdefault(str(error), error)
        else:
            return arrays
    if len(problems) > 1:
        listed = "; ".join(map(shapes_text, choices))
        hint = "; --shape names another batch" if _differ_in_batch(choices) else ""
        raise UsageError(
            f"the inputs have none of the shapes that it is compiled for: {listed}{hint}"
        )
    raise next(iter(problems.values()))


def _differ_in_batch(choices: Sequence[Inputs]) -> bool:
    signatures = SignatureSet([Signature(tuple(specs), ()) for specs in choices])
    return any(signatures.batch_plans([*each.shapes.values()]) for each in signatures.all)
