"""`python -m polarvit.cli`, the same as `polarvit`."""

from polarvit.cli import main

main()
