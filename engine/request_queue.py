"""Where requests wait: a line for "fcfs", a heap for "priority"."""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator

from engine.request import Request


class RequestQueue(ABC):
    """Iterates in the order in which requests would be admitted."""

    @abstractmethod
    def add_request(self, request: Request) -> None: ...

    @abstractmethod
    def prepend_request(self, request: Request) -> None:
        """Put a preempted request back."""

    @abstractmethod
    def peek_request(self) -> Request:
        """Return the request that is next. Raises IndexError when there is none."""

    @abstractmethod
    def pop_request(self) -> Request:
        """Take the request that is next. Raises IndexError when there is none."""

    @abstractmethod
    def remove_requests(self, requests: Collection[Request]) -> None: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Request]: ...

    @abstractmethod
    def __len__(self) -> int: ...


class FCFSRequestQueue(RequestQueue):
    """First come first served; a preempted request goes to the head."""

    def __init__(self) -> None:
        self._line: deque[Request] = deque()

    def add_request(self, request: Request) -> None:
        self._line.append(request)

    def prepend_request(self, request: Request) -> None:
        self._line.appendleft(request)

    def peek_request(self) -> Request:
        return self._line[0]

    def pop_request(self) -> Request:
        return self._line.popleft()

    def remove_requests(self, requests: Collection[Request]) -> None:
        gone = {id(request) for request in requests}
        self._line = deque(request for request in self._line if id(request) not in gone)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._line)

    def __len__(self) -> int:
        return len(self._line)


class PriorityRequestQueue(RequestQueue):
    """The smallest (priority, arrival time) first, a preempted request among the others."""

    def __init__(self) -> None:
        self._heap: list[Request] = []

    def add_request(self, request: Request) -> None:
        heapq.heappush(self._heap, request)

    def prepend_request(self, request: Request) -> None:
        self.add_request(request)

    def peek_request(self) -> Request:
        return self._heap[0]

    def pop_request(self) -> Request:
        return heapq.heappop(self._heap)

    def remove_requests(self, requests: Collection[Request]) -> None:
        gone = {id(request) for request in requests}
        self._heap = [request for request in self._heap if id(request) not in gone]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._heap))

    def __len__(self) -> int:
        return len(self._heap)


def create_request_queue(policy: str) -> RequestQueue:
    """Return an empty queue for the scheduling policy "fcfs" or "priority"."""
    return PriorityRequestQueue() if policy == "priority" else FCFSRequestQueue()
