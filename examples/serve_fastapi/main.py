"""A model behind the Open Inference Protocol v2, in an application of your own: see README.md."""

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
    """Show that it is an application like any other: add what your service needs."""
    return {"model": path.stem, "ready": server.ready}
