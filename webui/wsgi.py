"""The same page and API under gunicorn. One worker, for there is one engine, and a thread for each open connection:

    gunicorn --workers 1 --threads 200 --bind 127.0.0.1:8000 'webui.wsgi:app(model="smollm2", max_num_seqs=32)'

A viewer of the page, a stream and a waiting request each hold a thread. Set GOMP_SPINCOUNT=3000 in the environment, as
`batchscope serve` does, so that waiting threads of the engine give the cores away.
"""

import atexit
import sys
from typing import Any

from flask import Flask

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig
from webui.app import create_app
from webui.security import Access
from webui.server import addresses


def app(
    host: str = "127.0.0.1",
    port: int = 8000,
    share: bool = False,
    api_key: str | None = None,
    max_queue: int = 256,
    **settings: Any,
) -> Flask:
    """Start an engine and return what serves it. Called by gunicorn in its worker, as shown above.

    host, port: where gunicorn binds. The other settings are the flags of `batchscope serve`, with underscores. Raises
    ValueError where they cannot work and EngineDeadError where the engine cannot start.
    """
    access = Access.make(host, port, share, api_key, max_queue)
    llm = AsyncLLM(EngineConfig.make(**settings))
    flask_app, _ = create_app(llm, access)
    services = flask_app.extensions["batchscope"]
    services.start()
    atexit.register(llm.shutdown)
    atexit.register(services.live.close, timeout=3.0)
    atexit.register(flask_app.extensions["engines"].close)
    if share:
        print("\n".join(addresses(access)), file=sys.stderr, flush=True)
    return flask_app
