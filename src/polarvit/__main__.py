"""`python -m polarvit`, the same as `polarvit`; `torchrun -m polarvit` starts it in several processes."""

from polarvit.cli import main

main()
