"""`sliding_window` with `max_items = 8`: the newest eight entries, as messages.

A script is not asked when there are too many entries, only when there is no room: until then it leaves them out of what
it shows.
"""

MOST = 8


def render(ctx):
    return {"messages": [{"role": "user", "content": entry["content"]} for entry in ctx["entries"][-MOST:]]}


def on_overflow(ctx):
    return list(range(len(ctx["entries"])))[: 1 - MOST]
