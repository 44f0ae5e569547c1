"""Logits processors: what changes the logits before a token is drawn, each with a state that follows its rows."""

from runner.logits_processors.interface import BatchUpdate, LogitsProcessor, MoveDirectionality, update_rows
from runner.logits_processors.processors import LogitsProcessors

__all__ = ["BatchUpdate", "LogitsProcessor", "LogitsProcessors", "MoveDirectionality", "update_rows"]
