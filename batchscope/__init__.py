"""The front door of Batchscope: public names and the command line."""

from batchscope.environment import check_environment, let_threads_give_way

check_environment()
let_threads_give_way()

from batchscope.llm import LLM, Completion  # noqa: E402
from batchscope.trace import record  # noqa: E402
from engine.config import ConfigError  # noqa: E402
from engine.sampling_params import SamplingParams  # noqa: E402

__all__ = ["LLM", "Completion", "ConfigError", "SamplingParams", "record"]
