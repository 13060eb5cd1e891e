"""The calls of a module: their arguments checked, then made by the plans that fit them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from neocpu.runtime.arguments import (
    check_named,
    check_named_out,
    check_positional,
    check_positional_out,
)
from neocpu.runtime.array_types import AnyArray

if TYPE_CHECKING:
    from neocpu.runtime.composed.composed_batches import ComposedBatches
    from neocpu.runtime.session import Session
    from neocpu.runtime.signatures import Signature
    from neocpu.runtime.streams import StreamedSession


class Calls:
    """Makes the calls of an open module. Each call refers to it, so that nothing is freed early."""

    __slots__ = ("_batches", "session")

    def __init__(self, session: Session | StreamedSession) -> None:
        self.session: Final = session
        self._batches: ComposedBatches | None = None

    def of(self, inputs: Sequence[Any], out: Any) -> Callable[[], Any]:
        """Check arguments (arrays or one mapping); return the call to make."""
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return self.named(inputs[0], out)
        signature, arrays = check_positional(self.session.signatures, inputs)
        results = None if out is None else check_positional_out(signature.outputs, out)

        def call() -> Any:
            outputs = self._run(signature, arrays, results)
            return outputs[0] if len(outputs) == 1 else outputs

        return call

    def named(self, inputs: Mapping[str, Any], out: Any) -> Callable[[], dict[str, AnyArray]]:
        """Check arguments by name; return the call to make, which gives outputs by name."""
        signature, arrays = check_named(self.session.signatures, inputs)
        specs = signature.outputs
        results = None if out is None else check_named_out(specs, out)

        def call() -> dict[str, AnyArray]:
            outputs = self._run(signature, arrays, results)
            return dict(zip((spec.name for spec in specs), outputs, strict=True))

        return call

    def _run(
        self, signature: Signature, arrays: Sequence[AnyArray], out: Sequence[AnyArray] | None
    ) -> tuple[AnyArray, ...]:
        session = self.session
        if signature.sizes is not None:
            return session.run_sizes(signature.sizes, arrays, out)
        if len(session.signatures.all) == 1:
            return session.run(0, arrays, out)
        if self._batches is None:
            from neocpu.runtime.composed.composed_batches import ComposedBatches

            self._batches = ComposedBatches(session)
        return self._batches.run(signature, arrays, out)
