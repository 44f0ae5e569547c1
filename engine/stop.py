"""When a request is done, as far as its tokens tell."""

from engine.request import Request, RequestStatus


def check_stop(request: Request, max_model_len: int) -> bool:
    """Set the request's status, and stop_reason where a stop token ended it, if its last token is its last.

    Before min_tokens only the lengths count, and a grammar that allows nothing more.
    """
    params = request.sampling_params
    if request.num_output_tokens >= params.min_tokens:
        last_token_id = request.token_ids[-1]
        if last_token_id == params.eos_token_id and not params.ignore_eos:
            request.status = RequestStatus.FINISHED_STOPPED
            return True
        if params.stop_token_ids and last_token_id in params.stop_token_ids:
            request.status = RequestStatus.FINISHED_STOPPED
            request.stop_reason = last_token_id
            return True
    structured = request.structured_output_request
    if structured is not None and structured.grammar is not None and structured.grammar.is_terminated():
        request.status = RequestStatus.FINISHED_STOPPED
        return True
    if request.num_output_tokens >= request.max_tokens or request.num_tokens >= max_model_len:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return True
    return False
