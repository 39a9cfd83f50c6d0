"""Servers that speak Chat Completions, each in its own way."""

from __future__ import annotations

from typing import Literal, TypeAlias

FlavourName: TypeAlias = Literal["openai", "llama.cpp", "vllm", "ollama", "openrouter", "deepseek", "mistral", "azure"]
