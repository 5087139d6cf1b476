"""The tables of planner_check.py, and of which rows their figures are."""
import statistics

README = "dev/README.md"


def figures(found):
    """Number of rows, median error, share within 25%."""
    errors = [abs(f["error"]) for f in found]
    return len(found), statistics.median(errors), sum(e <= 0.25 for e in errors) / len(errors)


def beyond(error):
    return abs(error) > 0.25


def memory_error(f):
    return f["memory_gb"] / f["measured_gb"] - 1


def outliers(errors, reasons):
    """Rows beyond 25% with the reason, if one is known. errors: by row."""
    far = {row: error for row, error in errors.items() if beyond(error)}
    known = {row: group["reason"] for group in reasons for row in group["rows"]}
    why = {row: known.get(row, "no reason is known") for row in far}
    lines = ["", "Beyond 25%:", ""]
    for reason in dict.fromkeys(why.values()):
        rows = ", ".join(f"{row} ({far[row]:+.0%})" for row in far if why[row] == reason)
        lines.append(f"- {rows}: {reason}")
    return lines


def summary(found, name):
    rows, median, within = figures(found)
    return f"{name}: {rows} rows, median error {median:.1%}, {within:.0%} within 25%."


def by_source(found):
    lines = ["| source | system | rows | median error | within 25% |", "|---|---|---|---|---|"]
    for source, system in sorted({(f["source"], f["system"]) for f in found}):
        rows, median, within = figures([f for f in found if (f["source"], f["system"]) == (source, system)])
        lines.append(f"| {source} | {system} | {rows} | {median:.1%} | {within:.0%} |")
    return lines


def in_bf16(found):
    """What the targets are about: rows in bf16 on A100 and H100."""
    return [f for f in found if f["gpu"] in ("a100", "h100") and f["precision"] == "bf16"]


def held_out(found):
    return [f for f in found if not f["fitted"]]


def left_out(groups):
    """Rows that no plan can be held against."""
    return ["", "Left out:", "", *[f"- {', '.join(g['rows'])}: {g['reason']}" for g in groups]]


def table(found):
    lines = ["| row | system | GPUs | predicted | measured | error |", "|---|---|---|---|---|---|"]
    for f in found:
        star = " *" if f["fitted"] else ""
        lines.append(f"| {f['id']}{star} | {f['system']} | {f['ranks']} {f['gpu']} | "
                     f"{f['predicted']:.3g} s | {f['measured']:.3g} s | {f['error']:+.0%} |")
    held = len(held_out(found))
    given = f"With a star: the {len(found) - held} rows that `--fit` reads; {held} are held back."
    return lines + ["", given]


def memory_table(found):
    """Of the rows whose source states a peak."""
    own = [f for f in found if f["measured_gb"]]
    lines = ["| row | this program's tensors | as their system keeps them | measured | error |",
             "|---|---|---|---|---|"]
    for f in own:
        lines.append(f"| {f['id']} | {f['own_gb']:.1f} GB | {f['memory_gb']:.1f} GB | "
                     f"{f['measured_gb']:.1f} GB | {memory_error(f):+.0%} |")

    def median(key):
        return statistics.median(abs(f[key] / f["measured_gb"] - 1) for f in own)
    low = sum(memory_error(f) < 0 for f in own)
    return lines + ["", f"Memory: {len(own)} rows, median error {median('memory_gb'):.1%}, {low} planned too "
                    f"low; of this program's tensors alone {median('own_gb'):.1%}."]


def put(lines, name):
    """Replaces the text between the marks of a name in README."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = open(README, encoding="utf-8").read()
    before, after = text.split(begin)[0], text.split(end)[1]
    with open(README, "w", encoding="utf-8") as f:
        f.write("\n".join([before + begin, *lines, end]) + after)
