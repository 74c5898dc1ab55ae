"""Tables in Markdown."""


def markdown_row(cells):
    return "| " + " | ".join(cells) + " |"


def number(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def percent(share):
    return "–" if share is None else f"{100 * share:.0f} %"


def table_of(head, rows, text_columns=1):
    """The first columns hold words, the others numbers."""
    numbers = len(head) - text_columns
    return [markdown_row(head), markdown_row(["---"] * text_columns + ["---:"] * numbers), *map(markdown_row, rows)]
