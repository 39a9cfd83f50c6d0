"""`python -m shoal` is the command line."""

import sys

from shoal.cli import main

sys.exit(main())
