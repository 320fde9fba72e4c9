"""Writes the pages that are made from the code: `python -m reference_pages`."""

from __future__ import annotations

from reference_pages.pages import made_pages, write_pages

if __name__ == "__main__":
    for path in write_pages(made_pages()):
        print(path)
