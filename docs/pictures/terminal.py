#!/usr/bin/env python3
"""Draws what `tmux capture-pane -e -p` shows as an SVG: terminal.py < screen > picture.svg"""
import re
import sys
from html import escape

CELL, LINE, PAD, COLUMNS = 8.43, 19, 18, 80
PLAIN, DIM, GROUND = "#d7dae0", "#8b919c", "#14171c"
COLOURS = {30: "#5c6370", 31: "#ff6b6b", 32: "#7ddb83", 33: "#e5c07b", 34: "#6cb2ff", 35: "#e29bff", 36: "#56d4e0", 37: PLAIN}


def pieces(line, style):
    """The parts of a line with one look each; the look goes on into the next line."""
    found = []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not code:
            found += [(part, dict(style))] if part else []
            continue
        for number in (int(it or 0) for it in code[1].split(";")):
            if number == 0:
                style.update(colour=PLAIN, bold=False, dim=False)
            elif number in (1, 2):
                style["bold" if number == 1 else "dim"] = True
            elif number == 39 or number in COLOURS:
                style["colour"] = COLOURS.get(number, PLAIN)
    return found


def picture(text):
    lines = text.rstrip().split("\n")
    style = dict(colour=PLAIN, bold=False, dim=False)
    width, height = COLUMNS * CELL + 2 * PAD, len(lines) * LINE + 2 * PAD
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
        ' role="img" aria-label="segue demo in a terminal, in the middle of a rollout">',
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="14"'
        ' xml:space="preserve">',
    ]
    for row, line in enumerate(lines):
        column = 0
        for words, look in pieces(line, style):
            # Each word at its own place: fonts differ in how wide a block or a space is.
            for word in re.finditer(r"\S+(?: \S+)*", words):
                x, y = PAD + (column + word.start()) * CELL, PAD + row * LINE + 14
                colour = DIM if look["dim"] else look["colour"]
                weight = ' font-weight="bold"' if look["bold"] else ""
                length = len(word[0]) * CELL
                out.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{colour}"{weight} textLength="{length:.1f}"'
                    f' lengthAdjust="spacingAndGlyphs">{escape(word[0])}</text>'
                )
            column += len(words)
    return "\n".join(out + ["</g>", "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(picture(sys.stdin.read()))
