"""The collections behind the records: a sheet each, and what makes them from public sources.

`sheet` reads what book/data says of a collection; `make` fetches its files, converts them and
checks the digest. Command: `dr-lib data NAME --to FOLDER`. Page of the book: reference/data.
"""

from dr_book.data.files import Files, Made, fetch
from dr_book.data.make import CONVERTERS, is_here, make
from dr_book.data.sheets import Sheet, sheet, sheets
