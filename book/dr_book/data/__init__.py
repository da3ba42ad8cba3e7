"""The collections behind the records: a sheet each, and what makes them from public sources.

`sheets` reads what book/data says of a collection, `make` fetches its files, converts them and
checks the digest; a module for each kind of source has the converters. Command: `dr-lib data NAME
--to FOLDER`. Page of the book: reference/data.
"""
