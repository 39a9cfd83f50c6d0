"""OpenAI: Chat Completions, Responses, and what servers that copy the former make of it."""
