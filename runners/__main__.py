"""`python -m beam_pipes.runners`: the command line without the installed script."""

from beam_pipes.runners.cli import main

main()
