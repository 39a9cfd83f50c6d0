"""`clearable`: everything goes in one step."""


def render(ctx):
    entries = ctx["entries"]
    if not entries:
        return ""
    return "## " + ctx["region"]["name"] + "\n" + "\n\n".join([entry["content"] for entry in entries])


def on_overflow(ctx):
    return list(range(len(ctx["entries"])))
