"""`python -m dr_book` is the command `dr-lib`."""

import sys

from dr_book.commands import main

sys.exit(main())
