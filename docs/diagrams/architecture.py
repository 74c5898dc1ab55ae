#!/usr/bin/env python3
"""Draws docs/architecture.svg, the picture of README.md. Needs nothing but Python.

  docs/diagrams/architecture.py > docs/architecture.svg
"""

from html import escape

WIDTH, HEIGHT = 1400, 770
# A panel of its own colour, so that the picture reads the same on light and dark pages.
PANEL, INK, FAINT, LINE = "#fbfaf7", "#1f2430", "#5d6675", "#4a5568"
CLIENT, SHARED, DAEMON, THREAD, PURE, DEVICE = (
    "#dcebfa", "#fdf0cf", "#f1f0ec", "#ffffff", "#dff3e4", "#ece4f7")

parts = []


def text(x, y, words, size=13, weight="normal", color=INK, anchor="middle"):
    parts.append(f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{color}" '
                 f'text-anchor="{anchor}">{escape(words)}</text>')


def box(x, y, width, height, title="", lines=(), fill=THREAD, dashed=False, top=False):
    """A rounded box; title and lines are centred in it, or begin at its top."""
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" fill="{fill}" '
                 f'stroke="{LINE}" stroke-width="1.3"{dash}/>')
    rows = ([(title, 15, "bold", INK)] if title else []) + [(line, 12.5, "normal", FAINT) for line in lines]
    step = 18
    baseline = y + 24 if top else y + height / 2 - (len(rows) - 1) * step / 2 + 5
    for index, (words, size, weight, color) in enumerate(rows):
        text(x + width / 2, baseline + index * step, words, size, weight, color)


def arrow(points, both=False, color=LINE):
    path = " ".join(f"{x},{y}" for x, y in points)
    start = ' marker-start="url(#tip)"' if both else ""
    parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.7" '
                 f'stroke-linejoin="round" marker-end="url(#tip)"{start}/>')


def step_number(x, y, number):
    parts.append(f'<circle cx="{x}" cy="{y}" r="10" fill="{INK}"/>')
    text(x, y + 4.5, str(number), 12.5, "bold", "#ffffff")


def clients():
    for y, name in ((110, "server A"), (290, "server B")):
        box(30, y, 180, 140, name, ["a client process"], CLIENT, top=True)
        box(45, y + 66, 150, 60, "libconcert", ["C, C++"])


def shared_memory():
    box(320, 74, 190, 400, fill=SHARED, dashed=True)
    text(415, 98, "shared memory", 15, "bold")
    text(415, 116, "two regions per session", 12.5, color=FAINT)
    box(335, 132, 160, 150, "daemon region", ["read-only for the client", "", "timelines", "completions"],
        top=True)
    box(335, 304, 160, 152, "client region", ["written by the client", "", "a ring per GPU:",
                                              "descriptors, tail", "user timelines"], top=True)


def daemon():
    box(600, 74, 520, 672, fill=DAEMON)
    text(860, 98, "concertd", 17, "bold")
    # The second dispatcher peeks out behind the first.
    box(634, 122, 474, 298, fill=THREAD)
    box(622, 112, 474, 298, fill=THREAD)
    text(636, 136, "dispatcher", 15, "bold", anchor="start")
    text(736, 136, "a thread per GPU", 12.5, color=FAINT, anchor="start")
    box(636, 190, 118, 72, "admission", ["copy, check"], "#f7f7f5")
    box(792, 190, 132, 72, "scheduler", ["pure step"], PURE)
    box(970, 190, 112, 72, "launch", ["in plan order"], "#f7f7f5")
    box(792, 318, 132, 72, "policy", ["pure function"], PURE)

    box(622, 476, 200, 84, "control thread", ["sessions, buffers,", "communicators"])
    box(896, 476, 200, 84, "collective issuer", ["rendezvous of ranks,", "one order on all GPUs"])
    box(622, 640, 200, 84, "admin gRPC", ["AdminService", "on its own socket"])
    box(896, 640, 200, 84, "telemetry", ["statistics,", "recent plans"])


def device():
    box(1230, 74, 140, 500, fill=DEVICE)
    text(1300, 98, "device", 15, "bold")
    text(1300, 116, "device.h: cuda or sim", 12, color=FAINT)
    box(1243, 138, 114, 56, "", ["8 normal lanes"])
    box(1243, 204, 114, 56, "", ["4 high lanes"])
    box(1243, 488, 114, 66, "", ["2 collective", "lanes"])
    text(1300, 310, "SMs", 13, color=FAINT)
    text(1300, 332, "copy engines", 13, color=FAINT)
    text(1300, 354, "GPU memory", 13, color=FAINT)


def flow():
    # Submit, admit, decide, launch, complete.
    arrow([(210, 386), (335, 386)])
    step_number(232, 366, 1)
    text(250, 371, "submit", anchor="start")
    arrow([(495, 386), (560, 386), (560, 226), (636, 226)])
    step_number(525, 366, 2)
    text(518, 406, "admit", anchor="start")
    arrow([(754, 226), (792, 226)])
    arrow([(842, 262), (842, 318)])
    arrow([(874, 318), (874, 262)])
    step_number(820, 291, 3)
    text(800, 295, "snapshot", 12.5, color=FAINT, anchor="end")
    text(884, 295, "plan", 12.5, color=FAINT, anchor="start")
    arrow([(924, 226), (970, 226)])
    arrow([(1082, 212), (1230, 212)])
    step_number(1144, 193, 4)
    text(1160, 198, "launch", anchor="start")
    text(1173, 230, "order, signal", 12.5, color=FAINT)
    # The GPU's stores, over the top.
    arrow([(1300, 74), (1300, 40), (545, 40), (545, 200), (495, 200)])
    step_number(748, 40, 5)
    text(764, 31, "complete: the GPU stores timeline values", anchor="start")
    # The dispatcher reads the same words.
    arrow([(545, 165), (622, 165)])
    text(572, 157, "reads", 12.5, color=FAINT)
    arrow([(335, 200), (210, 200)])
    text(272, 168, "poll, futex,", 12.5, color=FAINT)
    text(272, 186, "stream wait", 12.5, color=FAINT)


def side_paths():
    # Collectives.
    arrow([(1026, 262), (1026, 476)], both=True)
    text(1018, 452, "parts", 12.5, color=FAINT, anchor="end")
    arrow([(1096, 520), (1243, 520)])
    text(1174, 510, "all ranks", 12.5, color=FAINT)
    text(1174, 538, "together", 12.5, color=FAINT)
    # Sessions.
    arrow([(120, 430), (120, 518), (622, 518)], both=True)
    text(366, 508, "Unix socket: connect, register, join", 13)
    arrow([(722, 476), (722, 410)], both=True)
    text(732, 452, "mailboxes", 12.5, color=FAINT, anchor="start")
    # Watching.
    arrow([(860, 410), (860, 604), (996, 604), (996, 640)])
    text(872, 596, "records", 12.5, color=FAINT, anchor="start")
    arrow([(896, 682), (822, 682)])
    box(30, 640, 180, 84, "concertctl", ["status, top, plans,", "policy, drain"], CLIENT)
    arrow([(622, 682), (210, 682)], both=True)
    text(416, 672, "gRPC on admin.sock", 13)


def main():
    parts.append(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="Inter, Helvetica, Arial, sans-serif">\n'
        '<title>How concert works: clients, rings in shared memory, concertd, device</title>\n'
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{LINE}"/>'
        '</marker></defs>')
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="{PANEL}"/>')
    for draw in (clients, shared_memory, daemon, device, flow, side_paths):
        draw()
    parts.append("</svg>")
    print("\n".join(parts))


if __name__ == "__main__":
    main()
