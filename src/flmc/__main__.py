"""``python -m flmc`` is the command ``flmc``."""

import sys

from flmc.cli import main

sys.exit(main())
