# @description Count, least, most, mean, median and sum of each column of numbers of a CSV text.
# @description Of other columns, how many different values they have.
# @param csv string required "The table as CSV, its header first."
def fields(line):
    found, field, quoted = [], "", False
    for char in line:
        if char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            found.append(field.strip())
            field = ""
        else:
            field += char
    return [*found, field.strip()]


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def shown(value):
    rounded = round(value, 6)
    return int(rounded) if rounded == int(rounded) else rounded


def column(name, values):
    filled = [value for value in values if value != ""]
    numbers = [number(value) for value in filled]
    if not filled or None in numbers:
        return {"column": name, "rows": len(filled), "empty": len(values) - len(filled), "values": len(set(filled))}
    ordered = sorted(numbers)
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return {
        "column": name,
        "rows": len(ordered),
        "empty": len(values) - len(filled),
        "least": shown(ordered[0]),
        "most": shown(ordered[-1]),
        "mean": shown(sum(ordered) / len(ordered)),
        "median": shown(median),
        "sum": shown(sum(ordered)),
    }


def run(args):
    rows = [fields(line) for line in args["csv"].splitlines() if line.strip()]
    if len(rows) < 2:
        return "[error] there is no row below the header"
    header, body = rows[0], rows[1:]
    odd = [str(at + 2) for at, row in enumerate(body) if len(row) != len(header)]
    if odd:
        return f"[error] the header has {len(header)} fields, and line {odd[0]} has another number"
    return [column(name, [row[at] for row in body]) for at, name in enumerate(header)]
