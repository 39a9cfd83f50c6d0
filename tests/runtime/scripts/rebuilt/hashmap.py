"""`hashmap`: one sub-heading a key; what a key held before goes first when room is needed."""


def render(ctx):
    entries = ctx["entries"]
    if not entries:
        return ""
    said = ["### " + entry["key"] + "\n" + entry["content"] for entry in entries]
    return "## " + ctx["region"]["name"] + "\n" + "\n\n".join(said)


def on_write(ctx):
    if ctx["entry"]["key"] is None:
        return {"action": "reject", "reason": "it keeps nothing without a key"}
    return None


def on_overflow(ctx):
    newest, first = {}, {}
    for index, entry in enumerate(ctx["entries"]):
        first.setdefault(entry["key"], index)
        newest[entry["key"]] = index
    # The first copy of a key keeps its place among the keys, and the newest its text.
    kept = list(first.values()) + list(newest.values())
    return [index for index in range(len(ctx["entries"])) if index not in kept]
