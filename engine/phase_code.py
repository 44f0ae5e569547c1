"""Where the code of each phase is, in this engine and in vLLM, and which facts its names stand for."""

from typing import NamedTuple

from tracer.phases import Phase

Names = dict[str, str]  # identifier -> what a placeholder of tracer/template.py may name


class PhaseCode(NamedTuple):
    """Functions are named by the attributes that lead to them from the engine core, `core`, or from the `worker` that
    is in use; ":name" at the end is a function of the module that the object's class comes from.
    """

    function: str
    vllm: str  # its counterpart there, and the file that holds it
    calls: tuple[str, ...] = ()  # what it leaves most of the work to
    names: Names = {}


RUNNER, BATCH = "worker.model_runner", "worker.model_runner.input_batch"
SCHEDULER = "core.scheduler"


def _runner(name: str) -> str:
    return f"GPUModelRunner.{name} (vllm/v1/worker/gpu_model_runner.py)"


def _batch(name: str) -> str:
    return f"InputBatch.{name} (vllm/v1/worker/gpu_input_batch.py)"


def _scheduler(name: str) -> str:
    return f"Scheduler.{name} (vllm/v1/core/sched/scheduler.py)"


def _core(name: str) -> str:
    return f"EngineCore.{name} (vllm/v1/engine/core.py)"


SCHEDULED: Names = {
    "total": "schedule.total_num_scheduled_tokens",
    "total_num_scheduled_tokens": "schedule.total_num_scheduled_tokens",
    "num_scheduled_tokens": "schedule.num_scheduled_tokens",
    "num_reqs": "refresh_metadata.num_reqs",
}
INPUTS: Names = {
    name: f"prepare_inputs.{name}"
    for name in (
        "req_indices", "query_pos", "positions", "token_indices", "input_ids", "query_start_loc", "seq_lens",
        "slot_mapping", "logits_indices", "discard_request_mask",
    )
}  # fmt: skip
REMOVED: Names = {"resumed_req_ids": "schedule.scheduled_cached_reqs.resumed_req_ids"}

PHASE_CODE: dict[Phase, PhaseCode] = {
    Phase.SCHEDULE: PhaseCode(
        f"{SCHEDULER}.schedule",
        _scheduler("schedule"),
        (f"{SCHEDULER}._schedule_running", f"{SCHEDULER}._schedule_waiting"),
        {
            "num_scheduled_tokens": "num_scheduled_tokens", "running": "running", "waiting": "waiting",
            "finished_req_ids": "finished_req_ids", "preempted": "preempted_req_ids",
        },
    ),
    Phase.EXECUTE_MODEL: PhaseCode(
        "core.step",
        _core("step"),
        ("core.model_executor.collective_rpc", "worker.execute_model", f"{RUNNER}.execute_model"),
        SCHEDULED | INPUTS | {"future.result()": "execute_model.returned", "num_tokens": "forward.num_tokens"},
    ),
    Phase.SYNCHRONIZE_INPUT_PREP: PhaseCode(
        f"{RUNNER}.synchronize_input_prep", _runner("synchronize_input_prep")
    ),
    Phase.REMOVE_FINISHED: PhaseCode(
        f"{RUNNER}._remove_finished",
        _runner("_update_states"),
        (f"{BATCH}.remove_request",),
        {"finished_req_ids": "finished_req_ids"},
    ),
    Phase.REMOVE_UNSCHEDULED: PhaseCode(
        f"{RUNNER}._remove_unscheduled",
        _runner("_update_states"),
        (f"{BATCH}.remove_request",),
        REMOVED | {"scheduled_req_ids": "schedule.num_scheduled_tokens", "unscheduled_req_ids": "unscheduled_req_ids"},
    ),
    Phase.UPDATE_CACHED: PhaseCode(
        f"{RUNNER}._update_cached",
        _runner("_update_states"),
        (f"{BATCH}.update_computed_tokens", f"{BATCH}.append_blocks"),
        REMOVED | {"rows": "rows", "absent": "absent", "counts": "@changes|with:set|at:-1|at:3"},
    ),
    Phase.ADD_REQUESTS: PhaseCode(
        f"{RUNNER}._update_states",
        _runner("_update_states"),
        (f"{BATCH}.add_request", f"{RUNNER}._new_requests"),
        {"reqs_to_add": "req_ids", "rows": "rows"},
    ),
    Phase.CONDENSE: PhaseCode(
        f"{BATCH}.condense", _batch("condense"), (f"{BATCH}._move_row", f"{RUNNER}._update_states"), {"moves": "moved"}
    ),
    Phase.REORDER: PhaseCode(
        f"{RUNNER}._may_reorder_batch",
        _runner("_may_reorder_batch"),
        (f"{RUNNER}:reorder_batch", f"{BATCH}.swap_states"),
        {"swaps": "moved", "num_scheduled_tokens": "schedule.num_scheduled_tokens"},
    ),
    Phase.REFRESH_METADATA: PhaseCode(
        f"{BATCH}.refresh_metadata",
        _batch("refresh_metadata"),
        (f"{BATCH}._make_sampling_metadata", f"{RUNNER}._update_states"),
        {"num_reqs": "num_reqs", "rebuilt": "rebuilt"},
    ),
    Phase.PREPARE_INPUTS: PhaseCode(
        f"{RUNNER}._prepare_inputs",
        _runner("_prepare_inputs"),
        (f"{RUNNER}:cumsum_and_arange", f"{RUNNER}:flat_token_indices", f"{BATCH}.block_table.compute_slot_mapping"),
        SCHEDULED
        | INPUTS
        | {
            "counts": "num_scheduled_tokens", "req_ids": "refresh_metadata.req_ids", "row_width": "row_width",
            "block_size": "attention_metadata.block_size",
        },
    ),
    Phase.ATTENTION_METADATA: PhaseCode(
        f"{RUNNER}._build_attention_metadata",
        _runner("_build_attention_metadata"),
        (f"{RUNNER}:set_forward_context",),
        SCHEDULED
        | INPUTS
        | {name: name for name in ("num_actual_tokens", "max_query_len", "max_seq_len")},
    ),
    Phase.FORWARD: PhaseCode(
        f"{RUNNER}.execute_model",
        _runner("execute_model"),
        (f"{RUNNER}.model.forward",),
        SCHEDULED | INPUTS | {"num_tokens": "num_tokens", "device": "device", "dtype": "dtype"},
    ),
    Phase.PARK_LOGITS: PhaseCode(
        f"{RUNNER}.execute_model",
        _runner("execute_model"),
        (f"{RUNNER}.model.compute_logits",),
        SCHEDULED | INPUTS | {"num_tokens": "forward.num_tokens", "logits.shape": "logits_shape"},
    ),
    Phase.GRAMMAR_BITMASK: PhaseCode(
        "core.step",
        _core("step"),
        (f"{SCHEDULER}.get_grammar_bitmask", f"{SCHEDULER}.structured_output_manager.grammar_bitmask"),
        {"future.result()": "execute_model.returned", "grammars": "structured_output_request_ids"},
    ),
    Phase.SAMPLE_TOKENS: PhaseCode(
        f"{RUNNER}.sample_tokens",
        _runner("sample_tokens"),
        (f"{RUNNER}.sampler.__call__",),
        SCHEDULED
        | {"sampled_np": "sampled", "masked.rows": "masked_rows", "all_greedy": "all_greedy"},
    ),
    Phase.BOOKKEEPING: PhaseCode(
        f"{RUNNER}._bookkeeping",
        _runner("_bookkeeping_sync"),
        (f"{BATCH}.append_tokens",),
        {
            "sampled": "sample_tokens.sampled", "sampled_token_ids": "sampled_token_ids",
            "num_reqs": "refresh_metadata.num_reqs", "discard_request_mask": "prepare_inputs.discard_request_mask",
        },
    ),
    Phase.PROCESS_ABORTS: PhaseCode(
        "core._process_aborts_queue",
        _core("_process_aborts_queue"),
        (f"{SCHEDULER}.finish_requests",),
        {"aborted": "aborted"},
    ),
    Phase.UPDATE_FROM_OUTPUT: PhaseCode(
        f"{SCHEDULER}.update_from_output",
        _scheduler("update_from_output"),
        (),
        SCHEDULED | {"sampled": "bookkeeping.sampled_token_ids"},
    ),
}  # fmt: skip
