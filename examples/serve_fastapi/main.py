"""A model behind the Open Inference Protocol v2 in your own application: see README.md."""

import os
from pathlib import Path

from neocpu.serving.app import create_app
from neocpu.serving.repository import ModelEntry
from neocpu.serving.server import InferenceServer, Limits

path = Path(os.environ.get("NEOCPU_MODEL", "resnet50.so"))
server = InferenceServer([ModelEntry(path.stem, path)], Limits(queue=64))
app = create_app(server)


@app.get("/")
async def about() -> dict[str, bool | str]:
    """Return facts about the application; add what your service needs."""
    return {"model": path.stem, "ready": server.ready}
