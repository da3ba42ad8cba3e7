/* A table that would scroll, or that spells verdicts, uses the margin as well: the theme hides the page's contents beside
   it. What does not fit on a phone takes another form there, which book.css sets. A table of sentences, one of few numbers
   that would be cut off, and one of two columns that would be cut off or squeezed are marked "prose": each row is a block,
   each cell has its column's name. Of a table of numbers that would be cut off, or whose names would be squeezed, "stacked"
   puts each name in a line of its own above its numbers, and below them what a column of words says. What does not fit
   even so scrolls, with its names in view. */
(() => {
  const WIDE = "full-width"; // the theme's own class, which it looks for when the page is ready: hence one state earlier
  const room = matchMedia("(min-width: 1200px)"); // below it there is no margin
  const phone = matchMedia("(max-width: 42rem)");
  const SENTENCE = 40; // characters in a cell: more are read, not compared
  const WORDS = 14; // characters: longer words do not stand beside numbers
  const LINES = 2.5; // lines of a name: more are squeezed
  const FORMS = ["prose", "stacked", "scrolls"];
  let wide = [];

  const isNumber = (head) => head.matches(".number, .text-right");
  const text = (cell) => cell.textContent.trim();

  /* Gives the cells of some columns their column's name. */
  function label(cells, heads) {
    for (const cell of cells.filter((one) => text(heads[one.cellIndex]))) {
      cell.dataset.column = text(heads[cell.cellIndex]).replace(/(?<![?:])$/, ":");
    }
  }

  function squeezed(cell) {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect().height > LINES * parseFloat(getComputedStyle(cell).lineHeight);
  }

  /* Tries the form with names above numbers; false where it does not fit. */
  function stack(table, heads, cells) {
    const across = heads.map((head, i) => !isNumber(head) && cells.some((cell) => cell.cellIndex === i && text(cell).length > WORDS));
    const long = [...heads, ...cells].filter((cell) => cell.cellIndex && across[cell.cellIndex]);
    long.forEach((cell) => cell.classList.add("across"));
    table.style.setProperty("--columns", across.slice(1).filter((one) => !one).length);
    table.classList.add("stacked");
    if (table.scrollWidth > table.parentElement.clientWidth + 1) {
      table.classList.remove("stacked");
      long.forEach((cell) => cell.classList.remove("across"));
      return false;
    }
    label(long.filter((cell) => cell.matches("td")), heads);
    return true;
  }

  function mark(table) {
    const heads = [...table.querySelectorAll("thead th")];
    const least = heads.some(isNumber) ? 3 : 2;
    if (heads.length < least || FORMS.some((form) => table.classList.contains(form)) || table.querySelector(".verdict")) {
      return;
    }
    const cells = [...table.querySelectorAll("tbody td")].filter((cell) => cell.cellIndex);
    const names = [...table.querySelectorAll("tbody td:first-child")];
    const numbers = heads.filter(isNumber).length;
    const prose = () => {
      table.classList.add("prose");
      label(cells, heads);
    };
    if (heads.length > 2 && numbers < 3 && cells.some((cell) => text(cell).length > SENTENCE)) {
      prose();
    } else if (phone.matches && table.offsetWidth) { // what is folded is looked at when it opens
      const cut = table.offsetWidth > table.parentElement.clientWidth + 1;
      const named = numbers && !isNumber(heads[0]);
      if (named && (cut || names.some(squeezed)) && stack(table, heads, cells)) {
        return;
      }
      if (numbers < 3 && (cut || (heads.length === 2 && names.some(squeezed)))) {
        prose();
      } else if (cut) {
        table.classList.add("scrolls");
      }
    }
  }

  function place() {
    wide.forEach((table) => table.classList.toggle(WIDE, room.matches));
  }

  document.addEventListener("readystatechange", () => {
    if (document.readyState !== "interactive") {
      return;
    }
    const resized = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
    document.querySelectorAll(".bd-article table.table").forEach((table) => {
      mark(table);
      resized.observe(table);
    });
    if (!document.querySelector(".bd-sidebar-secondary")) {
      return;
    }
    const cramped = (table) => table.scrollWidth > table.clientWidth + 1 || table.querySelector("td .verdict");
    const tables = [...document.querySelectorAll("div.dr-table")];
    const widths = (width) => tables.forEach((table) => (table.style.width = width)); // all at once: one layout, not one a table
    widths("95%"); // the book's letters may load after this, and be wider than those it is measured with
    wide = tables.filter(cramped);
    widths("");
    place();
    room.addEventListener("change", place);
  });
})();
