"""The models of a server: found by name, reloaded from their files, and unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neocpu.foundation.errors import NeoCPUError, did_you_mean
from neocpu.foundation.json_codec import JsonObject
from neocpu.serving.freed_memory import return_freed_memory
from neocpu.serving.metadata import model_metadata
from neocpu.serving.model import ServedModel
from neocpu.serving.refusals import LoadError, UnavailableError, UnknownModelError
from neocpu.serving.repository import ModelEntry, Stamp, stamp_of, unique
from neocpu.serving.tensors import brief

_FAILURES: Final = (NeoCPUError, MemoryError, OSError)
"""Errors in loading a file that leave the server unchanged."""

OpenModel: TypeAlias = Callable[[ModelEntry], ServedModel]
"""Loads an artifact and warms it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The outcome of loading a changed file."""

    entry: ModelEntry
    problem: str | None  # why it cannot be loaded; the former model then goes on serving


class LoadedModels:
    """Every model that a server knows, loaded or not.

    `start` and `close` block; all other methods belong to one event loop. No other file is ever
    loaded, by ``open_model``, which other threads call.
    """

    def __init__(self, models: Iterable[ModelEntry], open_model: OpenModel) -> None:
        self.entries = unique(models)
        self._open_model = open_model
        self._loaded: dict[str, dict[str, ServedModel]] = {each.name: {} for each in self.entries}
        self._stamps: dict[ModelEntry, Stamp | None] = {}
        self._retiring: set[ServedModel] = set()
        self._retirements: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._started = self._closed = False

    def start(self) -> None:
        for entry in self.entries:
            self._loaded[entry.name][entry.version] = self._open(entry)
        self._started = True

    def close(self) -> None:
        """Close all models, including replaced ones. May be repeated."""
        self._closed = True
        for model in (*self.all(), *self._retiring):
            model.close()

    @property
    def ready(self) -> bool:
        """Whether every model is warmed up, except unloaded ones."""
        return self._started and all(model.ready for model in self.all())

    def all(self) -> Sequence[ServedModel]:
        found = (self._loaded[each.name].get(each.version) for each in self.entries)
        return [model for model in found if model is not None]

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model, by default in its latest version.

        Raises UnknownModelError: there is none; UnavailableError: it is unloaded.
        """
        known = self._versions(name)
        if version is not None and version not in known:
            raise UnknownModelError(
                f"model '{name}' has no version {brief(version)}, only {', '.join(known)}"
            )
        versions = self._loaded[name]
        wanted = max(versions, key=int, default=None) if version is None else version
        if wanted is None or wanted not in versions:
            which = "" if version is None else f" version {version}"
            raise UnavailableError(f"model '{name}'{which} is unloaded")
        return versions[wanted]

    def metadata(self, name: str, version: str | None) -> JsonObject:
        model = self.find(name, version)
        versions = [version] if version else sorted(self._loaded[name], key=int)
        return model_metadata(name, versions, model.signatures, model.sized)

    def index(self, *, only_ready: bool, draining: bool) -> list[dict[str, str]]:
        """Return the repository index: every version of every model, and whether it is ready."""
        listed = []
        for entry in self.entries:
            model = self._loaded[entry.name].get(entry.version)
            ready = model is not None and model.ready and not draining
            if ready or not only_ready:
                state = {"state": "READY" if ready else "UNAVAILABLE"}
                reason = {"reason": "unloaded"} if model is None and self._started else {}
                listed.append({"name": entry.name, "version": entry.version, **state, **reason})
        return listed

    async def load(self, name: str) -> None:
        """Read the files of a model again, and serve their content from now on.

        The former model answers the requests that were accepted before. Raises LoadError: a file
        cannot be loaded; the former model goes on serving.
        """
        self._versions(name)
        async with self._changing:
            await self._retired()
            for entry in self.entries:
                if entry.name == name:
                    try:
                        await self._replace(entry)
                    except _FAILURES as error:
                        raise LoadError(_reason(error)) from error

    async def unload(self, name: str) -> None:
        """Take no more requests for a model, answer those accepted, and free its memory."""
        self._versions(name)
        async with self._changing:
            versions, self._loaded[name] = self._loaded[name], {}
            for model in versions.values():
                self._retire(model)
            del versions
            await self._retired()
        await asyncio.to_thread(return_freed_memory)

    async def reload_changed(self) -> list[Reload]:
        """Load the files again that changed since they were loaded; return the outcomes."""
        found = []
        async with self._changing:
            await self._retired()
            for model in self.all():
                entry, problem = model.entry, None
                if stamp_of(entry.path) == self._stamps.get(entry):
                    continue
                try:
                    await self._replace(entry)
                except _FAILURES as error:
                    problem = _reason(error)
                found.append(Reload(entry=entry, problem=problem))
        return found

    def _versions(self, name: str) -> Sequence[str]:
        if name not in self._loaded:
            hint = did_you_mean(name[:128], self._loaded)
            raise UnknownModelError(f"no model {brief(name)} is served here{hint}")
        return [each.version for each in self.entries if each.name == name]

    def _open(self, entry: ModelEntry) -> ServedModel:
        stamp = stamp_of(entry.path)  # before: a file that changes meanwhile is loaded once more
        model = self._open_model(entry)
        self._stamps[entry] = stamp
        return model

    async def _replace(self, entry: ModelEntry) -> None:
        fresh = await asyncio.to_thread(self._open, entry)
        if self._closed:
            await asyncio.to_thread(fresh.close)
            return
        versions = self._loaded[entry.name]
        former, versions[entry.version] = versions.get(entry.version), fresh
        if former is not None:
            self._retire(former)

    def _retire(self, model: ServedModel) -> None:
        """Close a model that is no longer served, once its requests are answered."""

        async def close() -> None:
            await model.wait_idle()
            await asyncio.to_thread(model.close)
            self._retiring.discard(model)

        self._retiring.add(model)
        task = asyncio.ensure_future(close())
        self._retirements.add(task)
        task.add_done_callback(self._retirements.discard)

    async def _retired(self) -> None:
        """Wait until replaced models are closed, so that no third copy of a model is loaded."""
        if self._retirements:
            await asyncio.wait(self._retirements)


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
