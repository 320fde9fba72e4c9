"""`python -m runners`: the command line without the installed script."""

from runners.cli import main

main()
