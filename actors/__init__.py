"""The actor kernel: mailboxes, refs, supervisors. It knows nothing of language models."""
