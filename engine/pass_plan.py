"""What the scheduler has decided so far for one pass."""

from dataclasses import dataclass, field
from typing import Any

from engine.kv_cache_manager import KVCacheManager
from engine.outputs import BlockIds, CachedRequestData, NewRequestData, SchedulerOutput
from engine.request import Request

Why = list[Any]  # [code, {name: number or id}]


@dataclass(slots=True)
class PassPlan:
    """Filled while scheduling, then made into a SchedulerOutput."""

    token_budget: int
    running: list[Request] = field(default_factory=list)  # scheduled, and running before
    resumed: list[Request] = field(default_factory=list)
    new: list[Request] = field(default_factory=list)
    grammar_ready: list[Request] = field(default_factory=list)  # may be admitted from now on
    preempted: list[Request] = field(default_factory=list)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    new_block_ids: dict[str, BlockIds] = field(default_factory=dict)
    why: dict[str, Why] | None = None  # those not scheduled, as far as noted, for the trace; None: nothing is traced

    @property
    def quiet(self) -> bool:
        """Whether running requests go on and that is all."""
        return not (self.new or self.resumed or self.preempted or self.grammar_ready)

    def schedule(self, request: Request, num_new_tokens: int) -> None:
        """Give the request its tokens out of the budget."""
        self.num_scheduled_tokens[request.request_id] = num_new_tokens
        self.token_budget -= num_new_tokens

    def unschedule(self, request: Request) -> None:
        """Take back the tokens of a running request that is preempted after all."""
        self.running.remove(request)
        self.token_budget += self.num_scheduled_tokens.pop(request.request_id)
        self.new_block_ids.pop(request.request_id, None)

    def to_output(
        self, kv_cache_manager: KVCacheManager, finished_req_ids: set[str], reset_preempted_req_ids: set[str]
    ) -> SchedulerOutput:
        """Return the decision as the runner gets it. Call before the computed-token counts move on."""
        return SchedulerOutput(
            scheduled_new_reqs=[_new_request_data(request, kv_cache_manager) for request in self.new],
            scheduled_cached_reqs=self._cached_request_data(kv_cache_manager),
            num_scheduled_tokens=self.num_scheduled_tokens,
            total_num_scheduled_tokens=sum(self.num_scheduled_tokens.values()),
            scheduled_spec_decode_tokens={},
            finished_req_ids=finished_req_ids,
            preempted_req_ids={request.request_id for request in self.preempted} | reset_preempted_req_ids,
        )

    def _cached_request_data(self, kv_cache_manager: KVCacheManager) -> CachedRequestData:
        requests = self.running + self.resumed if self.resumed else self.running
        get = self.new_block_ids.get
        new_block_ids = [get(request.request_id) for request in self.running]
        new_block_ids += [(kv_cache_manager.get_block_ids(request.request_id),) for request in self.resumed]
        return CachedRequestData(
            req_ids=[request.request_id for request in requests],
            resumed_req_ids={request.request_id for request in self.resumed},
            new_block_ids=new_block_ids,
            num_computed_tokens=[request.num_computed_tokens for request in requests],
            num_output_tokens=[request.num_output_tokens for request in requests],
        )


def _new_request_data(request: Request, kv_cache_manager: KVCacheManager) -> NewRequestData:
    return NewRequestData(
        req_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        sampling_params=request.sampling_params,
        block_ids=(kv_cache_manager.get_block_ids(request.request_id),),
        num_computed_tokens=request.num_computed_tokens,
    )
