"""Sphinx extension: the solution of an exercise, folded, with the output of its code when the book
is built.

    ```{solution}
    print(2 + 2)
    ```

The code runs in its own namespace; an error, such as a false `assert`, fails the build. If it uses
the library, it runs again when that has changed. tests/book/test_exercises.py runs it too.
Solutions take seconds, not minutes: no training.
"""

import contextlib
import io

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dr_lib import places


def run(code: str) -> str:
    """The output of a solution."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "solution", "exec"), {"__name__": "solution"})
    return printed.getvalue()


class Solution(SphinxDirective):
    """The directive."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Code and output between the tags of a `details` element."""
        code = "\n".join(self.content)
        if "dr_lib" in code:
            for path in (places.project_root() / "dr_lib").rglob("*.py"):
                self.env.note_dependency(str(path))
        parts = [nodes.literal_block(code, code, language="python")]
        if shown := run(code).rstrip():
            parts.append(nodes.literal_block(shown, shown, language="text"))
        begin = nodes.raw(
            "", '<details class="dr-folded"><summary>Solution</summary>', format="html"
        )
        return [begin, *parts, nodes.raw("", "</details>", format="html")]


def setup(app: Sphinx) -> dict[str, object]:
    """Register it."""
    app.add_directive("solution", Solution)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
