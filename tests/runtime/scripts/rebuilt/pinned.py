"""`pinned`: with `pinned = true` a write that does not fit is refused, and nothing else has to be said."""


def render(ctx):
    entries = ctx["entries"]
    if not entries:
        return ""
    return "## " + ctx["region"]["name"] + "\n" + "\n\n".join([entry["content"] for entry in entries])
