"""Holds the lock of a folder until it is killed, without JAX, to be quick: `holding.py SRC FOLDER HOST [fork]`."""

import os
import pathlib
import socket
import sys
import time
import types

for name, path in (("sciml", "sciml"), ("sciml.stores", "sciml/stores")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [f"{sys.argv[1]}/{path}"]

from sciml.stores import _lock  # noqa: E402

folder, host = pathlib.Path(sys.argv[2]), sys.argv[3]
if host:
    socket.gethostname = lambda: host
with _lock.owned_file(folder / ".lock", "the folder"):
    if "fork" in sys.argv and os.fork() == 0:
        os.close(1)
        time.sleep(60)
    print(os.getpid(), flush=True)
    time.sleep(60)
