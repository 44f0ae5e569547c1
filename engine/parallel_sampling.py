"""One prompt, n answers: the request that the user knows and the children that the engine runs."""

import msgspec

from engine.messages import EngineCoreRequest


class ParentRequest:
    """Knows which of its children still run. A request with n = 1 is its own and only child."""

    def __init__(self, request: EngineCoreRequest) -> None:
        self.request_id = request.request_id
        self.submission = request.submission
        self.children = self._fan_out(request)
        self.open = {child.request_id for child in self.children}

    @staticmethod
    def _fan_out(request: EngineCoreRequest) -> list[EngineCoreRequest]:
        """Return n requests of one answer each: ids 0_ID, 1_ID, ..., and seeds that count up from the request's."""
        params = request.sampling_params
        if params.n == 1:
            return [request]
        return [
            msgspec.structs.replace(
                request,
                request_id=f"{index}_{request.request_id}",
                sampling_params=msgspec.structs.replace(
                    params, n=1, seed=None if params.seed is None else _wrapped(params.seed + index)
                ),
            )
            for index in range(params.n)
        ]


def _wrapped(seed: int) -> int:
    """Keep a seed within 64 bits."""
    return (seed + 2**63) % 2**64 - 2**63
