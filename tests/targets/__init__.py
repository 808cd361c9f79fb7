"""Targets for tests and benchmarks: tokenizers and templates as folders, without weights."""
