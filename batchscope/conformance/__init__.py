"""Plays recordings of a real vLLM through Batchscope and compares pass by pass."""
