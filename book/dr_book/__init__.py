"""The book's apparatus: claims and verdicts, statistics, tables and figures, own corpora, search,
export, the commands.

`dr_lib` knows nothing of it. Modules are imported one by one, so that a command starts without what
it does not need.
"""
