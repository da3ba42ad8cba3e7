"""The collections behind the records: their data sheets, and how they are made from public sources.

`sheets` reads the data sheets in book/data, `make` downloads a collection's files, converts them
and checks the digest; there is a module of converters for each kind of source. Command: `dr-lib
data NAME --to FOLDER`. Page of the book: reference/data.
"""
