"""`beam-pipes view`: a page in the browser that shows a cache, from its first record to the batch of a step.

beam-pipes view cache                                     → a link, opened in the browser
beam-pipes view cache --tokens tokenizer.json             → with ids as tokens
beam-pipes view cache --state state.json --batch-size 32  → with the steps of a run
beam-pipes view cache --host 0.0.0.0                      → for other machines, behind a token in the link
"""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.building.references import load_declaration
from beam_pipes.commands import TOKENS_HELP
from beam_pipes.commands.caches import console
from beam_pipes.commands.loading import Reading, Run, make_loader
from beam_pipes.commands.options import with_groups
from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.storage.local import existing_directory


@with_groups
def view_command(
    paths: Annotated[
        list[str], typer.Argument(help="cache directory; for a run over a mixture, several: the first is shown")
    ],
    tokens: Annotated[str | None, typer.Option("--tokens", help=TOKENS_HELP)] = None,
    declaration: Annotated[
        str | None,
        typer.Option("--declaration", help="package.module:name; reads dropped duplicates from the source"),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="rows of a global batch of the run: shows its steps")
    ] = None,
    *,
    run: Run,
    reading: Reading,
    host: Annotated[
        str | None,
        typer.Option("--host", help="address to listen on, such as 0.0.0.0; the link then holds a token [loopback]"),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="port to listen on [a free one]")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page in a browser")] = True,
) -> None:
    """Show a cache in the browser: rows, pictures, sound, tokens, histograms, dead letters, steps of a run, builds.

    Nothing is written, and only what is seen is read. The page is served to this machine until Ctrl-C.

    Example: beam-pipes view .demo/python_source

    Example: beam-pipes view .demo/python_source --split train --batch-size 32 --seed 1 --tokens bytes
    """
    require("starlette", purpose="view")
    require("uvicorn", purpose="view")
    from beam_pipes.view.server import Viewer, serve

    existing_directory(paths[0])
    if batch_size is None and (run.state is not None or reading.plan or len(paths) > 1):
        raise DeclarationError(
            "--state, --plan and several caches describe a run: give its --batch-size, too, and its steps are shown."
        )
    vocabulary = None
    if tokens is not None:
        from beam_pipes.recipes import open_tokenizer

        vocabulary = open_tokenizer(tokens)
    viewer = Viewer(
        paths[0],
        vocabulary=vocabulary,
        loader=None if batch_size is None else make_loader(paths, reading, run, batch_size=batch_size),
        declaration=None if declaration is None else load_declaration(declaration),
        named=declaration or "DECLARATION",
    )
    serve(viewer, host=host, port=port, browser=browser, say=lambda text: console.print(text, markup=False))
