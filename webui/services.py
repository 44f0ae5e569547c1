"""What the routes share."""

import itertools
import time

from flask import current_app, has_request_context, request

from tracer.log import Log
from tracer.recording import Recording
from webui.broadcaster import Broadcaster
from webui.engine_like import EngineLike
from webui.errors import ApiError
from webui.live import Drain, LiveRequests
from webui.metrics import Metrics
from webui.page_facts import MAIN, PageFacts
from webui.security import Access

MAIN_ONLY = ("/v1", "/metrics")  # what is always the served engine's
LAST_WORDS_S = 0.5  # that the requests of a preset's engine have to end


class Services:
    """One engine, or a recording of one, and what serves it. Routes reach it by `services()`."""

    def __init__(
        self,
        llm: EngineLike,
        facts: PageFacts,
        access: Access,
        broadcaster: Broadcaster,
        recording: Recording | None = None,
    ) -> None:
        self.llm = llm
        self.facts = facts
        self.access = access
        self.broadcaster = broadcaster
        self.recording = recording
        self.live = LiveRequests(llm, access.max_queue)
        self.drain = Drain(self.live)
        self.metrics = Metrics(llm.log, facts.model_name)
        self.created = int(time.time())
        self.next_number = itertools.count(1).__next__  # numbers the requests that the page makes

    @property
    def model_name(self) -> str:
        """The name under which the model is served."""
        return self.facts.model_name

    def start(self) -> None:
        self.broadcaster.start()
        self.drain.start()
        if isinstance(self.llm.log, Log):  # a recording does not grow
            self.metrics.start()
        if self.recording:
            self.recording.start()

    def start_beside(self) -> None:
        """Start what an engine beside the served one needs: it is neither measured nor recorded."""
        self.broadcaster.start()
        self.drain.start()

    def stop_beside(self) -> None:
        """Abort what runs, and end what `start_beside` started."""
        self.live.close(LAST_WORDS_S)
        self.drain.stop()
        self.broadcaster.stop()
        self.broadcaster.join()


def services() -> Services:
    """Return the services of the engine that this request is about: ?engine=ID, by default the served one.

    Raises ApiError where no such engine runs, or where the route is the served one's alone.
    """
    engine_id = request.args.get("engine", MAIN) if has_request_context() else MAIN
    if engine_id != MAIN and request.path.startswith(MAIN_ONLY):
        raise ApiError(400, f"{request.path} is always the served engine's: leave ?engine= out", "engine")
    return current_app.extensions["engines"].services(engine_id)
