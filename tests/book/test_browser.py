"""The browser of the tests waits through a change of the page, and only there."""

import pytest
from browser import PageLeftError, needs_chromium, opened


@pytest.fixture
def leaving(tmp_path):
    """A page that leads to another one after a moment."""
    page = tmp_path / "first.html"
    page.write_text(
        "<script>setTimeout(() => { location = 'second.html'; }, 300);</script>", encoding="utf-8"
    )
    (tmp_path / "second.html").write_text("<p>here</p>", encoding="utf-8")
    return page


@needs_chromium
def test_what_is_waited_for_may_hold_in_the_next_page(leaving, tmp_path):
    never = "new Promise(() => {})"  # the first page is certain to be left before it answers
    with opened(tmp_path / "profile") as browser:
        browser.visit(leaving)
        with pytest.raises(PageLeftError):
            browser.run(never)
        browser.visit(leaving)
        browser.wait(
            f"location.pathname.endsWith('second.html') ? document.querySelector('p') : {never}"
        )
        with pytest.raises(RuntimeError, match="ReferenceError"):
            browser.wait("noSuchName")
