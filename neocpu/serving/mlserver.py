"""A runtime for MLServer.

In ``model-settings.json``, set ``"implementation"`` to ``"neocpu.serving.mlserver.NeoCPURuntime"``
and ``"parameters": {"uri": …}`` to the artifact. Next to ``"uri"``, ``"extra": {"threads": 2,
"instances": 1, "queue": 64}`` stands for those options of ``neocpu serve``, and MLServer's own
``"max_batch_size"`` and ``"max_batch_time"`` for ``--max-batch`` and ``--max-delay``. Set
``"parallel_workers": 0`` in ``settings.json``: another process would only copy tensors.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial
from pathlib import Path

import prometheus_client
from mlserver import MLModel, ModelSettings
from mlserver.errors import MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor, ResponseOutput
from mlserver.utils import get_model_uri

from neocpu.foundation.errors import UsageError
from neocpu.foundation.json_codec import JsonObject
from neocpu.serving.batches.batching import Batching, check_delay
from neocpu.serving.datatypes import DATATYPES, AnyArray
from neocpu.serving.metadata import model_metadata
from neocpu.serving.metrics import Metrics
from neocpu.serving.model import ServedModel
from neocpu.serving.refusals import RequestError, UnavailableError
from neocpu.serving.repository import FIRST_VERSION, ModelEntry
from neocpu.serving.request import RequestedOutput, parse_document
from neocpu.serving.response import json_data
from neocpu.serving.server import Limits
from neocpu.serving.workers import Worker


class NeoCPURuntime(MLModel):  # type: ignore[misc]
    """Serves one artifact."""

    _workers: tuple[Worker, ...] = ()
    _model: ServedModel | None = None

    def __init__(self, settings: ModelSettings) -> None:
        most, delay = settings.max_batch_size, settings.max_batch_time
        self._batching: Batching | None = None
        if most > 1:
            self._batching = Batching(most, check_delay(max(0.0, delay), "max_batch_time"))
        # MLServer's own batching must be off: there, one wrong request fails a whole batch.
        super().__init__(settings.model_copy(update={"max_batch_size": 0}))

    async def load(self) -> bool:
        uri = await get_model_uri(self.settings)
        entry = ModelEntry(self.name, Path(uri), self.version or FIRST_VERSION)
        limits = _limits(self.settings.parameters.extra if self.settings.parameters else None)
        await asyncio.to_thread(self._open, entry, limits)
        assert self._model is not None
        model = self._model
        metadata = model_metadata(self.name, [entry.version], model.signatures, model.sized)
        self.inputs = [MetadataTensor(**tensor) for tensor in metadata["inputs"]]
        self.outputs = [MetadataTensor(**tensor) for tensor in metadata["outputs"]]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        model = self._model
        if model is None:
            raise MLServerError(f"model '{self.name}' is not loaded", UnavailableError.status)
        try:
            with model.answering():
                return await self._answer(model, payload)
        except RequestError as error:
            raise MLServerError(str(error), error.status) from error

    async def unload(self) -> bool:
        await asyncio.to_thread(self._close)
        return True

    async def _answer(self, model: ServedModel, payload: InferenceRequest) -> InferenceResponse:
        document = {
            "id": payload.id,
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": str(getattr(tensor.datatype, "value", tensor.datatype)),
                    "shape": tensor.shape,
                    "data": tensor.data.root,
                }
                for tensor in payload.inputs
            ],
            "outputs": [{"name": output.name} for output in payload.outputs or []],
        }
        parse = partial(parse_document, document, memoryview(b""), model.signatures, model.sized)
        pictures = any(spec.picture for spec in model.signatures[0].inputs)
        request = await asyncio.to_thread(parse) if pictures else parse()
        results = await model.infer(request.signature, request.inputs)
        return InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            outputs=[_output(wanted, results[wanted.name]) for wanted in request.outputs],
        )

    def _open(self, entry: ModelEntry, limits: Limits) -> None:
        workers = tuple(Worker(limits.threads_per_instance) for _ in range(limits.instances))
        try:
            self._model = ServedModel(entry, workers, limits.queue, _metrics(), self._batching)
        finally:
            self._workers = workers
            if self._model is None:
                self._close()

    def _close(self) -> None:
        if self._model is not None:
            self._model.close()
        for worker in self._workers:
            worker.pool.close()


@cache
def _metrics() -> Metrics:
    # MLServer shows the process's registry, which can have each name only once.
    return Metrics(prometheus_client.REGISTRY)


def _limits(extra: JsonObject | None) -> Limits:
    settings = extra or {}
    known = ("instances", "threads", "queue")
    for name, value in settings.items():
        if name not in known or type(value) is not int or value < (name != "queue"):
            raise UsageError(
                f"model-settings.json, parameters.extra: {name} = {value!r} is not one of "
                f"{', '.join(known)} with a positive number"
            )
    return Limits(**settings)


def _output(wanted: RequestedOutput, array: AnyArray) -> ResponseOutput:
    return ResponseOutput(
        name=wanted.name,
        shape=list(array.shape),
        datatype=DATATYPES[wanted.dtype],
        data=json_data(wanted, array).tolist(),
    )
