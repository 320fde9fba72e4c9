"""`beam-pipes view`: one page in the browser that shows a cache; it reads, and writes nothing.

    rows.py      which rows: a condition, a text to search for, a column to sort by; how a column is spread
    shown.py     what a row holds, as JSON: texts, tokens, pictures, sound, boxes, masks
    server.py    the routes, and who may ask: one machine, one token, no other page

`view.html`, `view.js` and `view.css` are the page. Nothing is markup that comes from data: the server sends JSON and
files of fixed types, and the script only sets texts.
"""

from __future__ import annotations
