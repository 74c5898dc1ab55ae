"""The table of attacks, before and after, that is made of a result file of hostile_suite.py."""
import json
import pathlib

from attacks import ATTACKS, JUDGED

INTRODUCTION = """# Attacks

On the simulator and two CPUs: what hostile clients do to a healthy one and to the daemon, before and after everything that
they can make it spend got a quota and a budget. Made by `tests/fault/hostile/hostile_suite.py record`, which says what is
measured and judged. The attacks are those of `tests/fault/hostile/attacks.py`, of 256 sessions where nothing
else is said; `ctest -R hostile` runs each of them and knows the bounds.

The healthy client is another user's. It copies 64 bytes with high priority, again and again, multiplies 16 rows by 16
columns, or reduces 64 numbers of two ranks; in brackets what it takes beside plain burners that use as much CPU as the attackers or, if that is longer,
alone. What lasted longer than the measurement counts with the measurement's length. "Locked out" is the longest that
anybody took to connect in any round. "Memory" is what the daemon takes above its start: during the attack without what it
shares with clients, and after the attackers have gone. A number after "yes" or "no" names a note on what is not judged.
"""
HEADINGS = ("attack", "", "p50, ms", "p99, ms", "locked out, ms", "memory during / after, MB", "daemon",
            "within bounds")


def milliseconds(us):
    return f"{us / 1e3:.3g}" if us < 99_950 else f"{us / 1e3:.0f}"


def beside(row, key):
    yardstick = row.get(f"yardstick_{key}")
    return milliseconds(row[key]) + (f" ({milliseconds(yardstick)})" if yardstick is not None else "")


def cells(row, note):
    # What a client of a daemon that has ended "takes" means nothing.
    times = ["–"] * 3
    if row["alive"]:
        times = [beside(row, "p50_us"), beside(row, "p99_us"), milliseconds(row["locked_out_us"])]
    memory = f"{row['held_mb']:.0f} / {row['after_mb']:.0f}" if "after_mb" in row and "held_mb" in row else "–"
    return times + [memory, "lives" if row["alive"] else "**ends**", ("**no**" if row["harm"] else "yes") + note]


def line(values):
    return "| " + " | ".join(values) + " |"


def render(data):
    lines = [INTRODUCTION]
    for name, column in data["columns"].items():
        lines.append(f"*{name}*: commit {column['commit']}, {column['date']}, {column['machine']}, "
                     f"{column['seconds']:g} s a measurement. {column['note']}".rstrip() + "\n")
    lines += [line(HEADINGS), line(["---"] * len(HEADINGS))]
    notes = []
    for attack in ATTACKS:
        columns = data["attacks"].get(attack.name, {})
        unjudged = [what for what in JUDGED if what not in attack.judged]
        if unjudged:
            notes.append(f"`{attack.name}` is not judged by {', '.join(unjudged)}: {attack.unjudged_why}.")
        note = f" <sup>{len(notes)}</sup>" if unjudged else ""
        for number, (name, row) in enumerate(columns.items()):
            title = f"**{attack.name}**: {attack.about}" if number == 0 else ""
            lines.append(line([title, name, *cells(row, note)]))
    lines += [""] + [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    harms = [(attack.name, name, row["harm"]) for attack in ATTACKS
             for name, row in data["attacks"].get(attack.name, {}).items() if row["harm"]]
    if harms:
        lines.append("\nBeyond the bounds:\n")
        lines += [f"- `{attack}`, {name}: {'; '.join(harm)}." for attack, name, harm in harms]
    return "\n".join(lines) + "\n"


def write_table(path):
    path.with_suffix(".md").write_text(render(json.loads(pathlib.Path(path).read_text())))
    return 0
