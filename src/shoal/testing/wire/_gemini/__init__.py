"""Gemini."""
