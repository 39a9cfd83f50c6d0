"""`temporary`: what does not fit goes oldest first by itself."""


def render(ctx):
    entries = ctx["entries"]
    if not entries:
        return ""
    return "## " + ctx["region"]["name"] + "\n" + "\n\n".join([entry["content"] for entry in entries])
