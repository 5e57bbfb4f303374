"""notebook.py -- runs a notebook's code cells and compares what they print with the book.

Book: chapters 01 to 08.
Usage: notebook.py NOTEBOOK RESULT PROGRAM ...
A code cell that prints has the id of a section of the book ("03-wy"), which one of the
programs prints after "== 03-wy". Every section of chapters 01 to 08 needs a cell, and a
cell must print the same numbers in the same order. RESULT is the notebook with outputs.
"""
import contextlib
import io
import json
import re
import subprocess
import sys

source, result, programs = sys.argv[1], sys.argv[2], sys.argv[3:]
book = {}
for program in programs:
    text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    for section in re.split(r"(?m)^== ", text)[1:]:
        name, _, body = section.partition("\n")
        book[name] = body


def values(text):
    return re.findall(r"-?\d+(?:\.\d+)?|\byes\b|\bno\b", text)


def same(x, y):
    number = re.compile(r"-?\d")
    if number.match(x) and number.match(y):
        return abs(float(x) - float(y)) <= 1.5e-6          # one unit of the last digit
    return x == y


wrong, compared, scope = [], 0, {}
with open(source, encoding="utf-8") as f:
    notebook = json.load(f)
cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
for n, cell in enumerate(cells):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), scope)
    printed, name = printed.getvalue(), cell["id"]
    cell["execution_count"] = n + 1
    cell["outputs"] = [{"output_type": "stream", "name": "stdout",
                        "text": printed.splitlines(True)}]
    mine, theirs = values(printed), values(book.pop(name, ""))
    compared += len(mine)
    wrong += [f"{name}: value {i}: the notebook prints {x}, the book {y}"
              for i, (x, y) in enumerate(zip(mine, theirs)) if not same(x, y)]
    if len(mine) != len(theirs):
        wrong += [f"{name}: the notebook prints {len(mine)} values, the book {len(theirs)}"]
wrong += [f"{name}: no cell has this id" for name in book if re.match("0[1-8]-", name)]
for line in wrong:
    print(f"{source}: {line}")
if wrong:
    sys.exit(1)
with open(result, "w", encoding="utf-8") as f:
    json.dump(notebook, f, indent=1)
print(f"notebook: {len(cells)} cells print the book's {compared} values")
