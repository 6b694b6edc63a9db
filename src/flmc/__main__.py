"""``python -m flmc`` is the command ``flmc``."""

import sys

from flmc.base.start_up import collecting_later, spare_threads

spare_threads(sys.argv[1:])
with collecting_later():
    from flmc.cli import main

sys.exit(main())
