"""A contender without an engine. The model's path says how it behaves."""

import json
import os
import sys
import threading
import time

import numpy as np


def reply(ok):
    print(json.dumps({"ok": ok}), flush=True)


def spin():
    while True:
        pass


behaviour = ""
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "load":
        behaviour = request["path"]
    if behaviour == "crash":
        print("warming up", "no such luck", sep="\n", file=sys.stderr)
        os.abort()
    elif behaviour == "hang":
        time.sleep(60)
    elif behaviour == "gibberish":
        print("Hello!", flush=True)
    elif behaviour == "nonsense":
        print(json.dumps(["ok"]), flush=True)
    elif behaviour == "error":
        print(json.dumps({"error": "ValueError: bad model"}), flush=True)
    elif request["do"] == "load":
        if behaviour == "spin":
            threading.Thread(target=spin, daemon=True).start()
        reply(
            {
                "version": "1.0",
                "seconds": 0.5,
                "outputs": ["y"],
                "computes_in": "",
                "streams": 1,
                "request": request,
            }
        )
    elif request["do"] == "save":
        np.savez(request["path"], np.ones(4))
        reply({})
    elif behaviour == "die":
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        os.abort()
    else:
        assert request["do"] == "run"
        reply({"seconds": [0.25] * request["times"]})
