"""`python -m beam_pipes`: the command line without the installed script."""

from beam_pipes.cli import main

main()
