"""The one list of phases that the code, the trace, the page and the notebooks share."""

from enum import StrEnum


class Phase(StrEnum):
    """A step of one pass, in the order in which a pass goes through them."""

    SCHEDULE = "schedule"
    EXECUTE_MODEL = "execute_model"
    SYNCHRONIZE_INPUT_PREP = "synchronize_input_prep"
    REMOVE_FINISHED = "remove_finished"
    REMOVE_UNSCHEDULED = "remove_unscheduled"
    UPDATE_CACHED = "update_cached"
    ADD_REQUESTS = "add_requests"
    CONDENSE = "condense"
    REORDER = "reorder"
    REFRESH_METADATA = "refresh_metadata"
    PREPARE_INPUTS = "prepare_inputs"
    ATTENTION_METADATA = "attention_metadata"
    FORWARD = "forward"
    PARK_LOGITS = "park_logits"
    GRAMMAR_BITMASK = "grammar_bitmask"
    SAMPLE_TOKENS = "sample_tokens"
    BOOKKEEPING = "bookkeeping"
    PROCESS_ABORTS = "process_aborts"
    UPDATE_FROM_OUTPUT = "update_from_output"


PHASE_ORDER: dict[str, int] = {phase: i for i, phase in enumerate(Phase)}  # by name: a Phase is its name
