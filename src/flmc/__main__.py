"""``python -m flmc`` is the command ``flmc``."""

import sys

from flmc_command import main

sys.exit(main())
