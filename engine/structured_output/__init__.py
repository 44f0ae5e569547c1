"""Grammars: compiled beside the engine's thread, advanced by the tokens of their requests, made into masks."""
