"""`python -m tidegate` is the command `tidegate`."""

import sys

from tidegate.cli import main

sys.exit(main())
