"""Drives a Scheduler without an engine: each pass gets the tokens of `fake_executor.token`."""

from typing import Any

from engine.messages import EngineCoreOutput
from engine.outputs import ModelRunnerOutput, SchedulerOutput
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler
from helpers.fake_executor import fake_config, request, token
from helpers.invariants import check_scheduler


class Driver:
    """Invariants are checked after every call."""

    def __init__(self, num_gpu_blocks: int = 64, **flags: Any) -> None:
        config = fake_config(**flags)
        config.cache_config.num_gpu_blocks = num_gpu_blocks
        self.scheduler = Scheduler(config)
        self.finished: dict[str, str] = {}  # id -> reason
        self.tokens: dict[str, list[int]] = {}
        self.num_added = 0

    def add(self, req_id: str, prompt: list[int] | int = 5, max_tokens: int = 4, **fields: Any) -> None:
        new = request(req_id, prompt, max_tokens, **{"arrival_time": float(self.num_added), **fields})
        self.num_added += 1
        self.scheduler.add_request(Request(new))
        self.tokens[req_id] = []
        self.check()

    def abort(self, *req_ids: str) -> None:
        self.scheduler.finish_requests(req_ids, RequestStatus.FINISHED_ABORTED)
        self.check()

    def run_pass(self) -> SchedulerOutput:
        """Schedule and apply one pass."""
        output = self.schedule()
        self.apply(output)
        return output

    def schedule(self) -> SchedulerOutput:
        """Schedule one pass; `apply` must follow."""
        output = self.scheduler.schedule()
        assert all(count > 0 for count in output.num_scheduled_tokens.values())
        assert output.total_num_scheduled_tokens <= self.scheduler.config.max_num_batched_tokens
        assert set(output.num_scheduled_tokens) <= {request.request_id for request in self.scheduler.running}
        self.check()
        return output

    def apply(self, output: SchedulerOutput) -> list[EngineCoreOutput]:
        """Give each scheduled request that has no more known tokens to compute its next one."""
        ids = list(output.num_scheduled_tokens)
        sampled = [self._sample(req_id) for req_id in ids]
        runner_output = ModelRunnerOutput(ids, {req_id: row for row, req_id in enumerate(ids)}, sampled)
        outputs = self.scheduler.update_from_output(output, runner_output)
        each = [item for client in outputs.values() for item in client.outputs]
        for item in each:
            self.tokens[item.request_id] += item.new_token_ids
            if item.finish_reason:
                self.finished[item.request_id] = item.finish_reason
        self.check()
        return each

    def run(self) -> list[SchedulerOutput]:
        """Run until idle; return what was scheduled."""
        outputs = []
        while self.scheduler.has_requests():
            outputs.append(self.run_pass())
        return outputs

    def blocks(self, req_id: str) -> list[int]:
        return self.scheduler.kv_cache_manager.get_block_ids(req_id)

    def check(self) -> None:
        check_scheduler(self.scheduler)

    def _sample(self, req_id: str) -> list[int]:
        live = self.scheduler.requests.get(req_id)
        if live is None or live.num_computed_tokens < live.num_tokens:
            return []
        return [token(req_id, live.num_output_tokens)]
