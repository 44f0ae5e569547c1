"""How a method call reaches the workers: in this process, or over a queue to others."""

from engine.executor.abstract import Executor
from engine.executor.uniproc import UniProcExecutor

__all__ = ["Executor", "UniProcExecutor"]
