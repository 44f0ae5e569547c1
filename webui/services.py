"""What the routes share."""

import itertools
import time

from flask import current_app

from tracer.log import Log
from tracer.recording import Recording
from webui.broadcaster import Broadcaster
from webui.engine_like import EngineLike
from webui.live import Drain, LiveRequests
from webui.metrics import Metrics
from webui.page_facts import PageFacts
from webui.security import Access


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


def services() -> Services:
    """Return the services of the app that handles this request."""
    return current_app.extensions["batchscope"]
