"""When things happened to one live request, in seconds since the epoch."""

from dataclasses import dataclass


@dataclass(slots=True)
class RequestTimes:
    arrival: float
    num_prompt_tokens: int
    max_tokens: int
    scheduled: float | None = None  # its first pass began
    first_token: float | None = None
    last_token: float = 0.0
    num_output_tokens: int = 0
    running: bool = False

    def take_status(self, status: str | None, now: float) -> None:
        """Note a new status; None where it stays."""
        if status is None:
            return
        self.running = status == "RUNNING"
        if self.running and self.scheduled is None:
            self.scheduled = now

    def take_tokens(self, num_tokens: int, now: float) -> None:
        """Note new output tokens."""
        if self.first_token is None:
            self.first_token = now
        self.last_token = now
        self.num_output_tokens += num_tokens

    def summary(self, now: float) -> dict[str, float]:
        """Return what is known at the request's end, by the names of the metrics. An aborted one may know little."""
        known: dict[str, float] = {
            "e2e_request_latency_seconds": now - self.arrival,
            "request_prompt_tokens": self.num_prompt_tokens,
            "request_generation_tokens": self.num_output_tokens,
            "request_params_max_tokens": self.max_tokens,
        }
        if self.scheduled is None:
            return known
        known["request_queue_time_seconds"] = self.scheduled - self.arrival
        if self.first_token is None:
            return known
        decode = self.last_token - self.first_token
        known["request_prefill_time_seconds"] = self.first_token - self.scheduled
        known["request_decode_time_seconds"] = decode
        known["request_inference_time_seconds"] = self.last_token - self.scheduled
        if self.num_output_tokens > 1:
            known["request_time_per_output_token_seconds"] = decode / (self.num_output_tokens - 1)
        return known
