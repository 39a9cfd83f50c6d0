# @description Count and add up a column of a CSV text by the values of another column, largest sum first.
# @param csv string required "The table as CSV, its header first."
# @param by string required "The column whose values make the groups."
# @param of string required "The column of numbers that is added up."
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


def shown(value):
    rounded = round(value, 6)
    return int(rounded) if rounded == int(rounded) else rounded


def run(args):
    rows = [fields(line) for line in args["csv"].splitlines() if line.strip()]
    if len(rows) < 2:
        return "[error] there is no row below the header"
    header, groups, left = rows[0], {}, 0
    for name in (args["by"], args["of"]):
        if name not in header:
            return f"[error] there is no column {name!r}; there is {', '.join(header)}"
    by, of = header.index(args["by"]), header.index(args["of"])
    for row in rows[1:]:
        try:
            value = float(row[of])
        except (ValueError, IndexError):
            left += 1
            continue
        count, total = groups.get(row[by], (0, 0.0))
        groups[row[by]] = (count + 1, total + value)
    ordered = sorted(groups.items(), key=lambda item: (-item[1][1], item[0]))
    table = [{args["by"]: name, "rows": count, "sum": shown(total)} for name, (count, total) in ordered]
    return {"groups": table, "rows without a number": left}
