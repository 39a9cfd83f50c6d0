"""`sliding_window` without `max_items`: messages; what does not fit goes oldest first by itself."""


def render(ctx):
    return {"messages": [{"role": "user", "content": entry["content"]} for entry in ctx["entries"]]}
