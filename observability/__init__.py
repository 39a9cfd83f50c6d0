"""Observers of events: spans, logs, reports. Nothing below knows that it exists."""
